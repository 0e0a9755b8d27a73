"""GROUP BY of windows: keeps accumulators until event time passes the window's end, then emits the group's row and forgets it.

The window is part of the group's key, and each group has a timer for the last millisecond of its window: so an epoch reads the
groups with rows in it and those that it ends, no others. A row is late if the watermark that it sees has passed its window. All
rows of a window that are not late precede its timer, so the result is final: rows are only added to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.checkpoint.states import StateKind
from forkpoint.graph.specs import DeclaredState
from forkpoint.relational.aggregation.accumulators import ROWS, part_of
from forkpoint.relational.definitions.groups import GroupDefinition
from forkpoint.relational.operators.group_aggregate import (
    STATE_NAME,
    Bools,
    GroupAggregateSpec,
    GroupOperator,
    Reader,
    Update,
    outputs,
)
from forkpoint.relational.operators.results import Groups, before_elements, view_of
from forkpoint.relational.operators.windows import LAST
from forkpoint.relational.plan import window_columns
from forkpoint.runtime.columnar.keys import KeySet, decode_keys, read_timers
from forkpoint.runtime.columnar.objects import columns_of
from forkpoint.runtime.event_time.timers import EVENT_TIMERS, PROCESSING_TIMERS, TimerQueue, timers_until
from forkpoint.runtime.event_time.watermarks import MAX_MS, timer_positions
from forkpoint.runtime.exchange.batch import Batch, Coordinates, DerivedBatch, Longs, column_ms, empty_batch, spread
from forkpoint.runtime.operators.base import Epoch, Outputs, TaskInfo
from forkpoint.runtime.operators.instances import ManagedState
from forkpoint.runtime.operators.keyed_process import firing_rank
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.types import TypeInformation


@dataclass(frozen=True)
class WindowAggregateSpec(GroupAggregateSpec):
    """The input has a column ``LAST`` if rows are in several windows: a row counts as late once, in the last of them."""

    kind = "window_aggregate"

    def states(self) -> list[DeclaredState]:
        return [*super().states(), DeclaredState(*timers_of(self.definition), None)]

    def instance(self, info: TaskInfo, state: ManagedState) -> WindowAggregate:
        return WindowAggregate(info, state.keyed, self)


class WindowAggregate(GroupOperator):
    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: WindowAggregateSpec) -> None:
        super().__init__(info, backend, spec)
        definition = spec.definition
        self._end, self._rank = definition.window_keys["end"], firing_rank(info.operator.stage, event=True)
        name, kind = timers_of(definition)
        self._processing, self._queue = name == PROCESSING_TIMERS, TimerQueue(backend, name, kind, None)
        self._timers = self._queue.sid
        self._log = ChangeLog()
        self._next_timer: int | None = None

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        batch = self._input(inputs)
        self._log = ChangeLog()
        late, table = 0, None
        if batch.size:
            table = columns_of(batch, self._in)
            ends = column_ms(table.column(self._end)) - 1
            in_time = np.ones(batch.size, bool)
            if not self._processing:
                in_time = ends > epoch.window.at(spread(batch.positions, batch.size))
            late = _late(table, in_time)
            table = table.filter(pa.array(in_time))
        update = self._update(table) if table is not None and table.num_rows else None
        passed_ms = passed_until(epoch, processing=self._processing)
        fired = [] if update is None else self._add(update, passed_ms)
        fired += self._due(None if update is None else update.keys, epoch, passed_ms)
        of, groups = self._backend.key_type, self._backend.max_parallelism
        if self._processing:
            self._next_timer = earliest_end(self._queue, self._log, passed_ms)
            return outputs(self._readers, lambda reader: processed_windows(reader, fired, epoch))
        ended = Ended.of(fired, of, groups)
        return outputs(self._readers, lambda reader: results_of_windows(reader, ended, self._rank), late)

    def next_processing_timer_ms(self) -> int | None:
        return self._next_timer

    def _add(self, update: Update, passed_ms: int) -> list[Groups]:
        """Save the groups with rows, except those whose windows have ended, which are returned."""
        times = _ends(self._definition, update.keys.column) - 1
        ended = times <= passed_ms
        begun = np.flatnonzero(~ended & ~update.before.exist)
        names = update.keys.timers(self._timers, times[begun], begun, pa.repeat(pa.scalar(b""), len(begun)))
        self._log.add(names, [b""] * len(names))
        self._write(update, ~ended)
        self._columns.collect(self._log)
        for multiset in self._multisets.values():
            multiset.drop(update.keys, ended)
            multiset.collect(self._log)
        rows = pa.array(np.flatnonzero(ended))
        after = {name: column.take(rows) for name, column in update.after.state.items()}
        return [Groups(update.keys.column.take(rows), after)] if len(rows) else []

    def _due(self, updated: KeySet | None, epoch: Epoch, passed_ms: int) -> list[Groups]:
        """Remove the timers of windows that end in this epoch, and the groups without rows in it, which are returned."""
        backend = self._backend
        due = timers_until(backend, self._timers, passed_ms) if self._processing else due_timers(backend, epoch)
        self._log.delete(due)
        keys = read_timers(due)[1]
        if updated is not None and due:
            others = pc.invert(pc.is_in(pa.array(keys, pa.binary()), value_set=updated.encoded)).to_pylist()
            due = [name for name, other in zip(due, others, strict=True) if other]
            keys = [key for key, other in zip(keys, others, strict=True) if other]
        if not due:
            return []
        names = state_keys(due, backend.sid(STATE_NAME))
        self._log.delete(names)
        for name, multiset in self._multisets.items():
            multiset.remove(state_keys(due, backend.sid(name)))
            multiset.collect(self._log)
        values = [value for value in backend.store.get_many(names) if value is not None]
        assert len(values) == len(names)
        columns = dict(zip(self._columns.type.arrow_schema.names, self._columns.decoded(values), strict=True))
        return [Groups(decode_keys(keys, backend.key_type), columns)]

    def changes(self) -> ChangeLog:
        return self._log


def timers_of(definition: GroupDefinition) -> tuple[str, StateKind]:
    """The name and the kind of the timers at which windows end."""
    below = window_columns(definition.aggregate.input).values()
    processing = any(column.of.processing for column in below)
    return (PROCESSING_TIMERS, "timers-processing") if processing else (EVENT_TIMERS, "timers-event")


def passed_until(epoch: Epoch, *, processing: bool) -> int:
    """Windows with a last moment up to this have ended. At the end of all input, windows of processing time end, too."""
    return epoch.processing_time_ms - 1 if processing and epoch.window.end < MAX_MS else epoch.window.end


def earliest_end(queue: TimerQueue, log: ChangeLog, passed_ms: int) -> int | None:
    """When the next window of processing time ends. ``log``: of the epoch, with the timers that it adds."""
    stored = queue.earliest_after(passed_ms)
    begun = read_timers([name for name, value in zip(log.keys, log.values, strict=True) if value == b""])[0]
    times = [*([] if stored is None else [stored]), *begun.tolist()]
    return min(times) + 1 if times else None


def due_timers(backend: KeyedBackend, epoch: Epoch) -> list[bytes]:
    """The store keys of the timers of windows that end in this epoch."""
    window = epoch.window
    return timers_until(backend, backend.sid(EVENT_TIMERS), window.end) if window.end > window.before else []


def timers_at(keys: KeySet, sid: int, owners: Longs, times_ms: Longs) -> list[bytes]:
    """The store keys of timers of keys, each once. ``owners``: the index of the key of each time."""
    return list(dict.fromkeys(keys.timers(sid, times_ms, owners, pa.repeat(pa.scalar(b""), len(owners)))))


@dataclass(frozen=True)
class Ended:
    """The groups of windows that have ended, and numbers that order those that end at the same time."""

    groups: Groups
    keys: KeySet

    @staticmethod
    def of(fired: list[Groups], key_type: TypeInformation, max_parallelism: int) -> Ended | None:
        """None if there are none."""
        if not fired:
            return None
        groups = fired[0]
        if len(fired) > 1:
            names = set.intersection(*(set(each.state) for each in fired))
            state = {name: pa.concat_arrays([each.state[name] for each in fired]) for name in names}
            groups = Groups(pa.concat_arrays([each.keys for each in fired]), state)
        return Ended(groups, KeySet(groups.keys, key_type, max_parallelism))

    @cached_property
    def order(self) -> Longs:
        return self.keys.hashes.astype(np.int64)  # several times faster than `tie_breakers`, and as stable


def results_of_windows(reader: Reader, ended: Ended | None, rank: int) -> Batch:
    """The rows of ended windows, each at the last moment of its window."""
    type = reader.type
    if ended is None:
        return empty_batch(type)
    shown, columns = view_of(reader.definition, ended.groups)
    keys = ended.groups.keys.take(pa.array(shown))
    times = _ends(reader.definition, keys) - 1

    def coordinates() -> Coordinates:
        return timer_positions(times), rank, ended.order[shown], times

    table = pa.RecordBatch.from_arrays(columns.columns, schema=type.arrow_schema)
    return DerivedBatch(table.num_rows, coordinates, table=table, type=type)


def processed_windows(reader: Reader, fired: list[Groups], epoch: Epoch) -> Batch:
    """The rows of ended windows of processing time, which come before the epoch's elements."""
    type = reader.type
    parts = [view_of(reader.definition, groups)[1] for groups in fired]
    if not sum(part.num_rows for part in parts):
        return empty_batch(type)
    found = pa.concat_batches(parts)
    table = pa.RecordBatch.from_arrays(found.columns, schema=type.arrow_schema)
    return DerivedBatch(table.num_rows, lambda: before_elements(epoch, table.num_rows), table=table, type=type)


def _ends(definition: GroupDefinition, keys: pa.StructArray) -> Longs:
    return column_ms(keys.field(definition.key_names.index(definition.window_keys["end"])))


def _late(table: pa.RecordBatch, in_time: Bools) -> int:
    late = ~in_time
    if LAST in table.schema.names:
        late &= table.column(LAST).to_numpy(zero_copy_only=False)
    rows = part_of(ROWS).name
    if rows in table.schema.names:  # accumulators in place of rows
        return int(table.column(rows).to_numpy()[late].sum())
    return int(np.count_nonzero(late))


def state_keys(timers: list[bytes], sid: int) -> list[bytes]:
    """The store keys of a state for the keys of timers (see state/keys.py for the layout)."""
    return [name[:2] + sid.to_bytes(4, "big") + name[14:] for name in timers]

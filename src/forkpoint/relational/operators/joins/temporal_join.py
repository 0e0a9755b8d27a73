"""Temporal joins: rows wait until event time has passed them, and come out with the version of their key that was valid then.

Of each key, versions after the watermark are kept, and the latest of the others, if it is not a removal. A late row comes out at
once, with that version if it is not later than the row. A late version that is older than that one is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.functions import MapStateDescriptor
from forkpoint.graph.specs import DeclaredState
from forkpoint.relational.changes import weights_of
from forkpoint.relational.definitions.rows import RowsDefinition
from forkpoint.relational.operators.joins.interval_join import Arrivals, event_times
from forkpoint.relational.operators.joins.keyed_rows import (
    descriptor_of,
    row_type_of,
    saved_as,
    state_name,
    still_kept,
    stored_form,
    stored_type,
)
from forkpoint.relational.operators.joins.pairs import Rows, table_of, where
from forkpoint.relational.operators.keyed import grouped_together, key_columns, parts_of_keys
from forkpoint.relational.operators.multisets import Counts, Multiset, distinct, scanned, stored_entries
from forkpoint.relational.operators.results import rows_of, shown_rows
from forkpoint.relational.operators.window_aggregate import due_timers, timers_at
from forkpoint.relational.plan import LEFT, RIGHT, Join
from forkpoint.runtime.columnar.keys import KeySet, decode_keys, read_timers
from forkpoint.runtime.columnar.leaves import Codec, column_of
from forkpoint.runtime.columnar.objects import columns_of
from forkpoint.runtime.event_time.timers import EVENT_TIMERS
from forkpoint.runtime.event_time.watermarks import timer_positions
from forkpoint.runtime.exchange.batch import Batch, Coordinates, DerivedBatch, Longs, empty_batch
from forkpoint.runtime.operators.base import Epoch, KeyedOperator, Outputs, TaskInfo
from forkpoint.runtime.operators.instances import KeyedSpec, ManagedState
from forkpoint.runtime.operators.keyed_process import firing_rank
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.state import decode_state_key
from forkpoint.types import Types
from forkpoint.types.information import Field
from forkpoint.types.kinds.records import RecordType

Bools = npt.NDArray[np.bool_]
REMOVED = "$removed"
_TIME = Types.LONG()


def version_type(definition: RowsDefinition) -> RecordType:
    """The type of a version: its columns, which are NULL if the row is removed."""
    return RecordType("row", "Row", (Field(REMOVED, Types.BOOLEAN()), *row_type_of(definition.kept(RIGHT)).members))


def versions_descriptor(definition: RowsDefinition) -> MapStateDescriptor[Any, Any]:
    """The state of the versions of a key, by their time in microseconds."""
    found: MapStateDescriptor[Any, Any] = MapStateDescriptor(state_name(RIGHT), _TIME, version_type(definition))
    found.definition = definition.to_json(RIGHT)
    return found


@dataclass(frozen=True)
class TemporalJoinSpec(KeyedSpec):
    """Each input has the columns of the key, and those that are kept of its side, by their names; the right one has weights if
    rows are also removed."""

    kind = "temporal_join"

    definition: RowsDefinition

    def states(self) -> list[DeclaredState]:
        left, right = descriptor_of(self.definition, LEFT), versions_descriptor(self.definition)
        return [DeclaredState.of(left), DeclaredState.of(right), DeclaredState(EVENT_TIMERS, "timers-event", None)]

    def instance(self, info: TaskInfo, state: ManagedState) -> TemporalJoin:
        return TemporalJoin(info, state.keyed, self.definition)


@dataclass(frozen=True)
class Versions:
    """Versions of keys. ``times``: in microseconds. ``since``: from which event time on rows see them: their time, or the next
    moment after the watermark if they were late. ``removed``: which say that the row is no longer there."""

    rows: Rows
    times: Longs
    since: Longs
    removed: Bools

    def latest(self, groups: Longs, until: Longs) -> Longs:
        """The latest version of each group, by its time, that rows at ``until`` see; -1 if there is none. Of versions of one time
        it is the last one."""
        size = len(self.times)
        if not size:
            return np.full(len(groups), -1)
        moments = np.unique(self.since)
        codes = self.rows.groups * (len(moments) + 1) + np.searchsorted(moments, self.since)
        order = np.argsort(codes, kind="stable")
        codes = codes[order]
        by_time = np.lexsort((np.arange(size), self.times[order], self.rows.groups[order]))
        rank = np.empty(size, np.int64)
        rank[by_time] = np.arange(size)
        latest = order[by_time[np.maximum.accumulate(rank)]]
        at = np.searchsorted(codes, groups * (len(moments) + 1) + np.searchsorted(moments, until, "right"), "left") - 1
        found = latest[np.maximum(at, 0)]
        return np.where((at >= 0) & (groups >= 0) & (self.rows.groups[found] == groups), found, -1)


@dataclass(frozen=True)
class Step:
    """An epoch: the keys that it looks at, its rows, and the watermark at its end. ``before``: what the state means if the query
    has changed; then all is written again."""

    keys: KeySet
    arrivals: Arrivals
    until: int
    before: RowsDefinition | None


@dataclass(frozen=True)
class Waiting:
    """Left rows that event time has passed. ``times``: in microseconds. ``ranks``: their order of arrival; -1 of stored ones."""

    rows: Rows
    times: Longs
    ranks: Longs


class TemporalJoin(KeyedOperator):
    def __init__(self, info: TaskInfo, backend: KeyedBackend, definition: RowsDefinition) -> None:
        super().__init__(info, backend)
        assert isinstance(definition.node, Join)
        assert definition.node.as_of
        self._definition, self._join, self._as_of = definition, definition.node, definition.node.as_of
        self._inputs = [next(edge.type for edge in info.operator.inputs if edge.ordinal == nth) for nth in (0, 1)]
        left, right = descriptor_of(definition, LEFT), versions_descriptor(definition)
        self._before, self._saved = saved_as(info, backend, left)
        self._rows, self._counts, self._codec = Multiset(backend, left), Codec(left.value_type), Codec(right.value_type)
        backend.record("map", right.name, right.value_type, _TIME, definition=right.definition)
        backend.record("timers-event", EVENT_TIMERS, None)
        self._timers, self._rank = backend.sid(EVENT_TIMERS), firing_rank(info.operator.stage, event=True)
        self._log = ChangeLog()

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        self._log = ChangeLog()
        before = self._before if epoch.restored else None
        timers = due_timers(self._backend, epoch)
        touched = read_timers(timers)[1]
        if before is not None:
            timers = [name for name, _ in stored_entries(self._backend, EVENT_TIMERS)]
            entries = [name for side in (LEFT, RIGHT) for name, _ in stored_entries(self._backend, state_name(side))]
            touched = [decode_state_key(name).key for name in entries]
        if not touched and not any(batch.size for batch in inputs):
            return Outputs(empty_batch(self._type))
        self._log.delete(timers)
        tables = [columns_of(batch, of) for batch, of in zip(inputs, self._inputs, strict=True) if of is not None]
        of, count = self._backend.key_type, len(self._definition.key_names)
        parts = [key_columns(table, count, of) for table in tables]
        parts.append(parts_of_keys(decode_keys(touched, of), count))
        keys, (of_left, of_right, due) = grouped_together(parts, self._key, self._backend.max_parallelism)
        step = Step(keys, Arrivals.of(inputs, epoch.window), epoch.window.end, before)
        waiting = self._waiting(step, tables[0], of_left, due)
        read = distinct(np.concatenate([of_right, due, waiting.rows.owners]))
        versions, late = self._versions(step, tables[1], of_right, read)
        return Outputs(self._emitted(waiting, versions, step), late_records_dropped=late)

    def _rows_of(self, side: str, table: pa.RecordBatch, owners: Longs, keys: KeySet) -> Rows:
        values = stored_form(self._definition, side, table)
        return rows_of(self._definition, side, Counts(owners, values, np.ones(len(owners), np.int64)), keys.column)

    def _set_timers(self, keys: KeySet, owners: Longs, times: Longs) -> None:
        names = timers_at(keys, self._timers, owners, times // 1000)
        self._log.add(names, [b""] * len(names))

    # -- state

    def _waiting(self, step: Step, table: pa.RecordBatch, owners: Longs, due: Longs) -> Waiting:
        """The left rows that event time has passed. The others are stored. ``due``: the keys with timers."""
        keys, before = step.keys, step.before
        entries = scanned(self._backend, self._backend.sid(state_name(LEFT)), keys, distinct(due))
        count = self._counts.columns(entries.values)[0].to_numpy(zero_copy_only=False)
        of = stored_type(self._definition, LEFT, before, self._saved)
        values, names = decode_keys(entries.spaces, of), np.array([*entries.names, None], object)[:-1]
        stored = rows_of(before or self._definition, LEFT, Counts(entries.groups, values, count), keys.column)
        if before is not None:
            self._log.delete(entries.names)
            stored = stored.take(still_kept(before, self._definition, LEFT, stored))
        new = self._rows_of(LEFT, table, owners, keys)
        rows = stored.with_columns_of(new).followed_by(new)
        times = event_times(self._uid, LEFT, self._as_of.left, rows.columns)
        ranks = np.concatenate([np.full(len(stored.owners), -1), step.arrivals.ranks[0]])
        passed = times // 1000 <= step.until
        if before is None:
            self._log.delete(names[passed[: len(names)]].tolist())
        staying = np.flatnonzero(~passed & ((ranks >= 0) | (before is not None)))
        rest = rows.take(staying)
        rest_values = stored_form(self._definition, LEFT, rest.columns)
        if before is None:
            self._rows.update(keys, rest.owners, rest_values, rest.weights)
        else:
            self._rows.replace([], keys, rest.owners, rest_values, rest.weights)
        self._rows.collect(self._log)
        self._set_timers(keys, rest.owners, times[staying])
        done = np.flatnonzero(passed)
        return Waiting(rows.take(done), times[done], ranks[done])

    def _versions(self, step: Step, table: pa.RecordBatch, owners: Longs, read: Longs) -> tuple[Versions, int]:
        """The versions of keys, with those of the epoch, and how many of these are dropped. ``read``: the keys."""
        keys, arrivals = step.keys, step.arrivals
        sid, definition = self._backend.sid(state_name(RIGHT)), self._definition
        entries = scanned(self._backend, sid, keys, read)
        removed, *columns = self._codec.columns(entries.values)  # which the restore has converted for a changed query
        saved = column_of(columns, row_type_of(definition.kept(RIGHT)))
        stored = rows_of(definition, RIGHT, Counts(entries.groups, saved, np.ones(len(saved), np.int64)), keys.column)
        order = np.argsort(arrivals.ranks[1])
        table = table.take(pa.array(order))
        new, weights = self._rows_of(RIGHT, table, owners[order], keys), weights_of(table)
        rows = stored.with_columns_of(new).followed_by(new)
        was_removed = removed.to_numpy(zero_copy_only=False).astype(bool)
        is_removed = np.zeros(len(order), bool) if weights is None else weights < 0
        times = np.concatenate(
            [decode_keys(entries.spaces, _TIME).to_numpy(), event_times(self._uid, RIGHT, self._as_of.right, new.columns)]
        )
        seen = _microseconds(arrivals.seen[arrivals.ranks[1]][order] + 1)
        since = times.copy()
        since[len(stored.owners) :] = np.maximum(since[len(stored.owners) :], seen)
        found = Versions(rows, times, since, np.concatenate([was_removed, is_removed]))
        late = np.flatnonzero(since > times)
        newer = found.latest(rows.groups[late], since[late] - 1)
        dropped = int(np.count_nonzero((newer >= 0) & (times[newer] > times[late])))
        self._store(step, found, entries.names)
        return found, dropped

    def _store(self, step: Step, versions: Versions, stored: list[bytes]) -> None:
        """Replace the stored versions by those that later rows may see."""
        rows, times, keys, rewrite = versions.rows, versions.times, step.keys, step.before is not None
        passed = times // 1000 <= step.until
        by_time = np.lexsort((np.arange(len(times)), times, rows.owners))
        least = np.iinfo(np.int64).min  # of those that event time has passed, the last one stays
        keep = _last_of(rows.owners[by_time], np.where(passed, least, times)[by_time])
        kept = np.zeros(len(times), bool)
        kept[by_time[keep]] = True
        kept &= ~(passed & versions.removed) & (rows.groups >= 0)
        old = np.arange(len(times)) < len(stored)
        self._log.delete([name for name, stays in zip(stored, kept[old].tolist(), strict=True) if not stays or rewrite])
        written = np.flatnonzero(kept & (~old | rewrite))
        encoded = KeySet(pa.array(times[written]), _TIME, 1).encoded
        names = keys.names(self._backend.sid(state_name(RIGHT)), rows.owners[written], encoded)
        columns = stored_form(self._definition, RIGHT, rows.columns.take(pa.array(written))).flatten()
        self._log.add(names, self._codec.encode_columns([pa.array(versions.removed[written]), *columns]) if names else [])
        timed = written[~passed[written]]
        self._set_timers(keys, rows.owners[timed], times[timed])

    # -- the result

    def _emitted(self, waiting: Waiting, versions: Versions, step: Step) -> Batch:
        assert self._type is not None
        arrivals, keys = step.arrivals, step.keys
        rows, times, arrived = waiting.rows, waiting.times, waiting.ranks >= 0
        until = times.copy()
        until[arrived] = np.maximum(until[arrived], _microseconds(arrivals.seen[waiting.ranks[arrived]] + 1) - 1)
        found = versions.latest(rows.groups, until)
        paired = np.flatnonzero(found >= 0)
        paired = paired[(versions.times[found[paired]] <= times[paired]) & ~versions.removed[found[paired]]]
        left, right = where(self._join, rows, versions.rows, (paired, found[paired]))
        if self._join.kind == "left":
            of_all = np.full(len(times), -1)
            of_all[left] = right
            left, right = np.arange(len(times)), of_all
        shown, columns = shown_rows(self._definition.view, table_of(rows, versions.rows, left, right))
        left = left if shown is None else left[shown]
        at = np.repeat(np.arange(len(left)), rows.weights[left])
        if not len(at):
            return empty_batch(self._type)
        table, left = pa.RecordBatch.from_arrays(columns.take(pa.array(at)).columns, schema=self._type.arrow_schema), left[at]

        def coordinates() -> Coordinates:
            ms, ranks = times[left] // 1000, waiting.ranks[left]
            positions, splits = timer_positions(ms), np.full(len(left), self._rank)
            sequence = keys.tie_breakers[rows.owners[left]]
            late = np.flatnonzero(ranks >= 0)
            late = late[arrivals.seen[ranks[late]] >= ms[late]]
            ranks = ranks[late]
            positions[late], splits[late] = arrivals.positions[ranks], arrivals.splits[ranks]
            sequence[late] = arrivals.sequence[ranks]
            return positions, splits, sequence, ms

        return DerivedBatch(len(left), coordinates, table=table, type=self._type)

    def changes(self) -> ChangeLog:
        return self._log


def _microseconds(ms: Longs) -> Longs:
    """A watermark in microseconds, without overflow."""
    return np.clip(ms, -(2**53), 2**53) * 1000


def _last_of(owners: Longs, times: Longs) -> Longs:
    """The last of the rows with the same owner and time, which are next to each other."""
    differ = (owners[1:] != owners[:-1]) | (times[1:] != times[:-1])
    return np.flatnonzero(np.append(differ, True)) if len(owners) else np.zeros(0, np.int64)

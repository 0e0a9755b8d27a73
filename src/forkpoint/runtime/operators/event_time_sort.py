"""Emits elements in timestamp order once the watermark passes them: Flink SQL's temporal sort.

An epoch is sorted at once. Elements that the watermark passes in the epoch of their arrival are never stored. Other elements are
stored by key and timestamp, with a timer for each pair. An output has the position of its timer's firing, so a downstream
operator sees it with the watermark just below its timestamp.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from forkpoint.errors import GraphError
from forkpoint.functions import MapStateDescriptor, OutputTag
from forkpoint.graph.specs import DeclaredState
from forkpoint.runtime.event_time.timers import EVENT_TIMERS, to_flink_ms
from forkpoint.runtime.event_time.watermarks import timer_positions
from forkpoint.runtime.exchange.batch import (
    NO_TIMESTAMP_MS,
    Batch,
    Coordinates,
    DerivedBatch,
    Longs,
    concat,
    empty_batch,
    spread,
    stable_order,
)
from forkpoint.runtime.exchange.grouping import group_by_key
from forkpoint.runtime.operators.base import Epoch, KeyedOperator, Outputs, TaskInfo, with_late
from forkpoint.runtime.operators.instances import KeyedSpec, ManagedState
from forkpoint.runtime.operators.keyed_process import firing_rank, order_of
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.state import decode_timer_key, encode_keys, in_groups, key_group, state_key, timer_key, timer_range
from forkpoint.types import TypeInformation, Types

ELEMENTS = "elements"


def waiting_elements(type: TypeInformation) -> MapStateDescriptor[int, list[object]]:
    """The state of waiting elements by timestamp."""
    descriptor = MapStateDescriptor[int, list[object]](ELEMENTS, Types.LONG(), Types.LIST(type))
    descriptor.value_type = Types.LIST(type)  # an entry is never None
    return descriptor


@dataclass(frozen=True)
class EventTimeSortSpec(KeyedSpec):
    """``element_type``: the type of waiting elements. Late elements go to ``late_tag``, or are dropped without a tag.
    ``definition``: of a query that they wait for."""

    kind = "event_time_sort"

    element_type: TypeInformation
    late_tag: OutputTag | None
    definition: Any = None

    def states(self) -> list[DeclaredState]:
        elements = replace(DeclaredState.of(waiting_elements(self.element_type)), definition=self.definition)
        return [elements, DeclaredState(EVENT_TIMERS, "timers-event", None)]

    def instance(self, info: TaskInfo, state: ManagedState) -> EventTimeSort:
        return EventTimeSort(info, state.keyed, self)


class EventTimeSort(KeyedOperator):
    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: EventTimeSortSpec) -> None:
        super().__init__(info, backend)
        self._type = info.operator.inputs[0].type
        self.due_keys: list[bytes] = []
        """The keys whose timers the watermark has passed in this epoch."""
        self._key_type = backend.key_type
        self._late_tag: OutputTag | None = spec.late_tag
        self._rank = firing_rank(info.operator.stage, event=True)
        states = waiting_elements(spec.element_type)
        self._times, lists = states.key_type, states.value_type
        self._guard = backend.guard(ELEMENTS, spec.element_type)
        self._sid, self._timer_sid = backend.sid(ELEMENTS), backend.sid(EVENT_TIMERS)
        backend.record("map", ELEMENTS, lists, self._times, definition=spec.definition)
        backend.record("timers-event", EVENT_TIMERS, None)
        self._log = ChangeLog()

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        saved, ties, ready, late = self._passed(inputs[0], epoch)
        return with_late(self._sorted(saved, ties, ready), inputs[0], late, self._late_tag)

    def passed(self, batch: Batch, epoch: Epoch) -> tuple[Batch, Outputs]:
        """The elements that the watermark has passed in this epoch, sorted by time but without a place in the output; and late
        elements, as side output of nothing."""
        saved, _, ready, late = self._passed(batch, epoch)
        elements = self._together(saved, ready)
        stamps = elements.stamps
        if not (stamps[1:] >= stamps[:-1]).all():
            elements = elements.take(stable_order(stamps)[0])
        return elements, with_late(empty_batch(None), batch, late, self._late_tag)

    def _passed(self, batch: Batch, epoch: Epoch) -> tuple[Batch, list[bytes], Batch, Longs]:
        """Saved elements that the watermark passes, with their keys; those of the batch that it passes; the rows of late ones."""
        window = epoch.window
        self._log = ChangeLog()
        end = to_flink_ms(window.end)
        saved, ties = self._due(end if window.end > window.before else None)
        stamps = self._timestamps(batch)
        late = stamps <= window.at(spread(batch.positions, batch.size))
        passed = stamps <= end
        self._keep(batch, np.flatnonzero(~late & ~passed))
        rows = np.flatnonzero(~late & passed)
        ready = batch if len(rows) == batch.size else batch.take(rows)
        return saved, ties, ready, np.flatnonzero(late)

    def _timestamps(self, batch: Batch) -> Longs:
        stamps = batch.timestamps
        if batch.size and (stamps is None or bool((stamps == NO_TIMESTAMP_MS).any())):
            raise GraphError(
                f"operator {self._uid!r}: it got elements without timestamps; give the stream a "
                "WatermarkStrategy with a timestamp assigner ahead of it"
            )
        return np.empty(0, np.int64) if stamps is None else stamps

    # -- waiting elements

    def _due(self, until_ms: int | None) -> tuple[Batch, list[bytes]]:
        """The saved elements that the watermark passes, in time order for each key, and the keys of the elements."""
        timers: list[bytes] = []
        if until_ms is not None:
            store, due = self._backend.store, timer_range(0, self._timer_sid, until_ms)
            for start, stop in store.occupied(in_groups(range(*self._backend.groups), due)):
                timers += [name for name, _ in store.scan(start, stop)]
        found = list(map(decode_timer_key, timers))
        self.due_keys = [timer.key for timer in found]
        names = [state_key(t.kg, self._sid, t.key, self._times.encode(t.ts_ms)) for t in found]
        guard, stored = self._guard, self._backend.store.get_many(names)
        lists = [guard.give_all(guard.decoded_all(raw)) if raw is not None else [] for raw in stored]
        self._log.keys += timers + names
        self._log.values += [None] * (len(timers) + len(names))
        values = [value for elements in lists for value in elements]
        counts = np.array(list(map(len, lists)), dtype=np.int64)
        stamps: Longs = np.repeat(np.array([t.ts_ms for t in found], dtype=np.int64), counts)
        keys = [t.key for t, elements in zip(found, lists, strict=True) for _ in elements]
        return Batch(len(values), 0, 0, np.zeros(len(values), np.int64), values=values, type=self._type, timestamps=stamps), keys

    def _keep(self, batch: Batch, rows: Longs) -> None:
        """Add the elements at ``rows`` to the waiting elements."""
        if not len(rows):
            return
        waiting = batch.take(rows)
        stamps, values = self._timestamps(waiting).tolist(), waiting.values
        groups = group_by_key(waiting, self._key)
        names, hashes = encode_keys(groups.keys, self._key_type)
        kgs = key_group(hashes, self._backend.max_parallelism).tolist()
        lists: dict[bytes, list[Any]] = {}
        order, starts = groups.order.tolist(), groups.starts.tolist()
        for i, (key, kg) in enumerate(zip(names, kgs, strict=True)):
            times: dict[int, bytes] = {}
            self._backend.current_key = groups.keys[i]
            for row in order[starts[i] : starts[i + 1]]:
                stamp = stamps[row]
                name = times.get(stamp)
                if name is None:
                    name = times[stamp] = state_key(kg, self._sid, key, self._times.encode(stamp))
                    lists[name] = []
                    self._log.keys.append(timer_key(kg, self._timer_sid, stamp, key))
                    self._log.values.append(b"")
                lists[name].append(self._guard.keep(values[row]))
        for name, raw in zip(lists, self._backend.store.get_many(list(lists)), strict=True):
            earlier = [] if raw is None else self._guard.decoded_all(raw)
            self._log.keys.append(name)
            self._log.values.append(self._guard.encoded_all(earlier + lists[name]))

    # -- outputs

    def _together(self, saved: Batch, ready: Batch) -> Batch:
        if saved.size and ready.table is not None and self._type is not None:
            saved.table = pa.RecordBatch.from_arrays(self._type.to_columns(saved.values), schema=ready.table.schema)
        return concat([batch for batch in (saved, ready) if batch.size], self._type)

    def _sorted(self, saved: Batch, saved_keys: list[bytes], ready: Batch) -> Batch:
        elements = self._together(saved, ready)
        if not elements.size:
            return elements
        order, times = stable_order(self._timestamps(elements))

        def coordinates() -> Coordinates:
            ties = np.concatenate((np.fromiter(map(order_of, saved_keys), np.int64, saved.size), self._ties(ready)))
            return timer_positions(times), self._rank, ties[order], times

        out = elements.take(order)
        values = out.values if out.has_values and out.table is None else None
        return DerivedBatch(out.size, coordinates, values=values, table=out.table, type=self._type)

    def _ties(self, ready: Batch) -> Longs:
        """Numbers that order elements of different keys at the same time, equal at any parallelism."""
        groups = group_by_key(ready, self._key)
        ties: Longs = np.empty(ready.size, np.int64)
        of_keys = np.fromiter(map(order_of, map(self._key_type.encode, groups.keys)), np.int64, len(groups.keys))
        ties[groups.order] = np.repeat(of_keys, np.diff(groups.starts))
        return ties

    # -- state

    def changes(self) -> ChangeLog:
        log, self._log = self._log, ChangeLog()
        return log

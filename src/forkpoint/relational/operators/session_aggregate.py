"""GROUP BY of session windows: keeps the open sessions of each key, whose accumulators become one when sessions do.

As other windows, sessions end when event time, or the clock, passes their end, by a timer each, and their result is final.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from forkpoint.functions import MapStateDescriptor
from forkpoint.graph.specs import DeclaredState
from forkpoint.relational.aggregation.accumulators import Accumulator, accumulated, merging
from forkpoint.relational.definitions.groups import GroupDefinition
from forkpoint.relational.operators.group_aggregate import (
    STATE_NAME,
    Sides,
    filled,
    follows_order,
    outputs,
    readers_of,
    state_type,
)
from forkpoint.relational.operators.keyed import key_by, key_columns, parts_of_keys
from forkpoint.relational.operators.results import Groups
from forkpoint.relational.operators.window_aggregate import (
    Ended,
    due_timers,
    earliest_end,
    passed_until,
    processed_windows,
    results_of_windows,
    state_keys,
    timers_of,
)
from forkpoint.relational.operators.windows import TIME, moments
from forkpoint.relational.sessions import Spans, sessions
from forkpoint.runtime.columnar.keys import GroupedRows, KeySet, decode_keys, read_timers
from forkpoint.runtime.columnar.leaves import Codec, column_of
from forkpoint.runtime.columnar.msgpack import encode_array
from forkpoint.runtime.columnar.objects import columns_of
from forkpoint.runtime.event_time.timers import PROCESSING_TIMERS, TimerQueue, timers_until
from forkpoint.runtime.event_time.watermarks import MIN_MS
from forkpoint.runtime.exchange.batch import Batch, Longs, column_ms, spread, stable_order
from forkpoint.runtime.operators.base import Epoch, KeyedOperator, OperatorInstance, Outputs, TaskInfo
from forkpoint.runtime.operators.instances import KeyedSpec, ManagedState
from forkpoint.runtime.operators.keyed_process import firing_rank
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.state import decode_state_key
from forkpoint.types import Types, from_description
from forkpoint.types.information import Field
from forkpoint.types.kinds.records import RecordType

END = "end_ms"
_START = Types.SQL_TIMESTAMP()


def descriptor_of(definition: GroupDefinition) -> MapStateDescriptor[Any, Any]:
    """The state of a key's sessions, by their start: their end and accumulators."""
    accumulators = state_type(definition).members
    found: MapStateDescriptor[Any, Any] = MapStateDescriptor(
        STATE_NAME, _START, RecordType("row", "Row", (Field(END, Types.LONG()), *accumulators))
    )
    found.definition = definition.to_json()
    return found


@dataclass(frozen=True)
class SessionAggregateSpec(KeyedSpec):
    """The input has a column for each key that is not the window's, its time, and a column for each accumulator's input."""

    kind = "session_aggregate"

    definition: GroupDefinition
    gap_ms: int
    sides: Sides = ()

    def states(self) -> list[DeclaredState]:
        timers = DeclaredState(*timers_of(self.definition), None, _START)
        return [DeclaredState.of(descriptor_of(self.definition)), timers]

    def instance(self, info: TaskInfo, state: ManagedState) -> OperatorInstance:
        return SessionAggregate(info, state.keyed, self)


@dataclass(frozen=True)
class Stored:
    """Stored sessions: their store keys, spans, and columns by name."""

    names: list[bytes]
    spans: Spans
    columns: Mapping[str, pa.Array]

    def take(self, rows: Longs) -> Stored:
        columns = {name: column.take(pa.array(rows)) for name, column in self.columns.items()}
        return Stored([self.names[at] for at in rows.tolist()], self.spans.take(rows), columns)


class SessionAggregate(KeyedOperator):
    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: SessionAggregateSpec) -> None:
        super().__init__(info, backend)
        self._readers = readers_of(spec.definition, self._type, spec.sides)
        self._in, self._definition, self._gap_ms = info.operator.inputs[0].type, spec.definition, spec.gap_ms
        descriptor = descriptor_of(spec.definition)
        known = info.known_states.get(backend.sid(STATE_NAME))
        if known is not None and known.definition != descriptor.definition:
            descriptor.value_type = from_description(known.value_type)  # which both definitions need
        self._schema, self._codec = descriptor.value_type.arrow_schema, Codec(descriptor.value_type)
        backend.record("map", STATE_NAME, descriptor.value_type, _START, definition=descriptor.definition)
        name, kind = timers_of(spec.definition)
        self._processing, self._queue = name == PROCESSING_TIMERS, TimerQueue(backend, name, kind, _START)
        self._sid, self._timers = backend.sid(STATE_NAME), self._queue.sid
        self._next_timer: int | None = None
        names = spec.definition.key_names
        self._group_type = key_by(names, names, [key.of.type for key in spec.definition.aggregate.keys]).key_type
        self._rank = firing_rank(info.operator.stage, event=True)
        self._log = ChangeLog()

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        self._log = ChangeLog()
        passed_ms = passed_until(epoch, processing=self._processing)
        fired, merged_names, late = self._add(inputs[0], epoch, passed_ms) if inputs[0].size else ([], [], 0)
        fired += self._due(epoch, passed_ms, merged_names)
        if self._processing:
            self._next_timer = earliest_end(self._queue, self._log, passed_ms)
            return outputs(self._readers, lambda reader: processed_windows(reader, fired, epoch))
        of, groups = self._group_type, self._backend.max_parallelism
        ended = Ended.of(fired, of, groups)
        return outputs(self._readers, lambda reader: results_of_windows(reader, ended, self._rank), late)

    def next_processing_timer_ms(self) -> int | None:
        return self._next_timer

    def _add(self, batch: Batch, epoch: Epoch, passed_ms: int) -> tuple[list[Groups], list[bytes], int]:
        """Add rows to sessions. Returns those that end in this epoch, the store keys of those that have changed, and the number
        of late rows."""
        batch = batch.in_order() if follows_order(self._definition) else batch
        table, of = columns_of(batch, self._in), self._backend.key_type
        count = len(self._definition.key_names) - 2
        grouped = GroupedRows.of(key_columns(table, count, of), self._key, self._backend.max_parallelism)
        keys, order = grouped.keys, grouped.order
        times = column_ms(table.column(TIME))[order]
        rows = Spans(np.repeat(np.arange(len(grouped.starts) - 1), np.diff(grouped.starts)), times, times + self._gap_ms)
        stored = self._stored(keys)
        if self._processing:  # rows have the time of the epoch, so they are in no session that has ended by then, and never late
            stored = stored.take(np.flatnonzero(stored.spans.ends > epoch.processing_time_ms))
            seen = np.full(batch.size, MIN_MS)
        else:
            seen = epoch.window.at(spread(batch.positions, batch.size))[order]
        found = sessions(rows, seen, stored.spans)
        in_time = np.flatnonzero(found.of_rows >= 0)
        by_session, of_rows = stable_order(found.of_rows[in_time])
        touched, starts = np.unique(of_rows, return_index=True)
        if not len(touched):
            return [], [], batch.size
        members = np.flatnonzero(np.isin(found.of_open, touched))
        at = np.searchsorted(touched, found.of_open[members])
        picked = table.take(pa.array(order[in_time][by_session]))
        state = self._accumulated(picked, np.append(starts, len(of_rows)), stored, members, at)
        return (
            self._save(keys, found.spans.take(touched), state, stored, members, passed_ms),
            [stored.names[i] for i in members.tolist()],
            batch.size - len(in_time),
        )

    def _stored(self, keys: KeySet) -> Stored:
        """The open sessions of these keys."""
        counts, names, values = self._backend.store.scan_prefixes(keys.names(self._sid))
        of_key = np.repeat(np.arange(len(counts)), counts)
        starts = column_ms(_START.to_arrow([_START.decode(decode_state_key(name).namespace) for name in names]))
        columns = dict(zip(self._schema.names, self._codec.columns(values), strict=True))
        return Stored(names, Spans(of_key, starts, columns[END].to_numpy()), columns)

    def _accumulated(self, rows: pa.RecordBatch, starts: Longs, stored: Stored, members: Longs, at: Longs) -> dict[str, pa.Array]:
        """The accumulators of sessions: those of their members, and their rows. ``at``: the session of each member."""
        state = {}
        for accumulator in self._definition.accumulators:
            values = stored.columns[accumulator.name].take(pa.array(members))
            saved = merged(accumulator, values, at, len(starts) - 1)
            given = None if accumulator.input is None else rows.column(accumulator.column)
            state[accumulator.name] = accumulated(accumulator, given, None, starts, saved)
        return state

    def _save(
        self, keys: KeySet, spans: Spans, state: dict[str, pa.Array], stored: Stored, members: Longs, passed_ms: int
    ) -> list[Groups]:
        """Replace sessions by those that they have become, without those that end in this epoch, which are returned."""
        was = stored.spans.take(members)
        self._log.delete([stored.names[i] for i in members.tolist()])
        self._log.delete(keys.timers(self._timers, was.ends - 1, was.keys, _spaces(was)))
        ended = spans.ends - 1 <= passed_ms
        kept = np.flatnonzero(~ended)
        left = spans.take(kept)
        size = len(spans.ends)
        columns = {END: pa.array(spans.ends), **state}
        all_columns = [columns[f.name] if f.name in columns else filled(pa.nulls(size, f.type)) for f in self._schema]
        values = self._codec.encode_columns([column.take(pa.array(kept)) for column in all_columns]) if len(kept) else []
        self._log.add(keys.names(self._sid, left.keys, _spaces(left)), values)
        timers = keys.timers(self._timers, left.ends - 1, left.keys, _spaces(left))
        self._log.add(timers, [b""] * len(timers))
        out = np.flatnonzero(ended)
        done = {name: column.take(pa.array(out)) for name, column in state.items()}
        return [self._groups(keys.column, spans.take(out), done)] if len(out) else []

    def _due(self, epoch: Epoch, passed_ms: int, changed: list[bytes]) -> list[Groups]:
        """Remove the sessions that end in this epoch without having changed in it, and return them."""
        timers = timers_until(self._backend, self._timers, passed_ms) if self._processing else due_timers(self._backend, epoch)
        self._log.delete(timers)
        skipped = set(changed)
        due = [(timer, name) for timer, name in zip(timers, state_keys(timers, self._sid), strict=True) if name not in skipped]
        if not due:
            return []
        names = [name for _, name in due]
        self._log.delete(names)
        times, keys, spaces = read_timers([timer for timer, _ in due])
        values = [value for value in self._backend.store.get_many(names) if value is not None]
        columns = dict(zip(self._schema.names, self._codec.columns(values), strict=True))
        spans = Spans(np.arange(len(due)), column_ms(_START.to_arrow(list(map(_START.decode, spaces)))), times + 1)
        return [self._groups(decode_keys(keys, self._backend.key_type), spans, columns)]

    def _groups(self, keys: pa.Array, spans: Spans, state: Mapping[str, pa.Array]) -> Groups:
        """Sessions as groups: the window's bounds are part of their keys."""
        definition = self._definition
        parts = iter(parts_of_keys(keys.take(pa.array(spans.keys)), len(definition.key_names) - 2))
        starts, ends = (moments(times, _START.arrow_type) for times in (spans.starts, spans.ends))
        bounds = {definition.window_keys["start"]: starts, definition.window_keys["end"]: ends}
        return Groups(
            column_of([bounds[n] if n in bounds else next(parts) for n in definition.key_names], self._group_type), state
        )

    def changes(self) -> ChangeLog:
        return self._log


def merged(accumulator: Accumulator, values: pa.Array, groups: Longs, count: int) -> pa.Array:
    """Accumulators of the same group as one; null for groups without any. ``groups``: the group of each value."""
    if not len(groups):
        return pa.nulls(count, values.type)
    order, ordered = stable_order(groups)
    found, starts = np.unique(ordered, return_index=True)
    adding = merging(accumulator)
    bounds, new = np.append(starts, len(order)), pa.nulls(len(found), values.type)
    sums = accumulated(adding, values.take(pa.array(order)), None, bounds, new)
    at = np.full(count, -1)
    at[found] = np.arange(len(found))
    return sums.take(pa.array(at, mask=at < 0))


def _spaces(spans: Spans) -> pa.BinaryArray:
    """The namespaces of sessions."""
    return encode_array(moments(spans.starts, _START.arrow_type), _START)

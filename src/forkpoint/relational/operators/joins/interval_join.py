"""Interval and window joins: rows wait for pairs until event time has passed the times of all rows that they may pair with.

A row without a pair, if the join shows it, comes out then. So rows are only added to the result. The state of each side is, by
row, how many there are, and how many of these have had no pair; each time at which rows of a key leave the state has a timer.
Late rows pair with the rows that are still there, which are none of an ended window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.errors import JobFailed
from forkpoint.functions import MapStateDescriptor
from forkpoint.graph.specs import DeclaredState
from forkpoint.relational.definitions.rows import RowsDefinition
from forkpoint.relational.evaluation import evaluate
from forkpoint.relational.expressions import Expression
from forkpoint.relational.operators.joins.keyed_rows import (
    row_type_of,
    saved_as,
    state_name,
    still_kept,
    stored_form,
    stored_type,
)
from forkpoint.relational.operators.joins.pairs import Pairs, Rows, between, table_of, where, with_new
from forkpoint.relational.operators.keyed import grouped_together, key_columns, parts_of_keys
from forkpoint.relational.operators.multisets import Counts, scanned, stored_entries
from forkpoint.relational.operators.results import rows_of, shown_rows
from forkpoint.relational.operators.window_aggregate import due_timers, timers_at
from forkpoint.relational.plan import LEFT, Join, Within
from forkpoint.runtime.columnar.keys import KeySet, decode_keys, read_timers
from forkpoint.runtime.columnar.leaves import Codec
from forkpoint.runtime.columnar.objects import columns_of
from forkpoint.runtime.event_time.timers import EVENT_TIMERS
from forkpoint.runtime.event_time.watermarks import Window, timer_positions
from forkpoint.runtime.exchange.batch import Batch, Coordinates, DerivedBatch, Longs, empty_batch, spread
from forkpoint.runtime.operators.base import Epoch, KeyedOperator, Outputs, TaskInfo
from forkpoint.runtime.operators.instances import KeyedSpec, ManagedState
from forkpoint.runtime.operators.keyed_process import firing_rank
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.types import TypeInformation, Types
from forkpoint.types.information import Field
from forkpoint.types.kinds.records import RecordType

_NUMBERS = RecordType("row", "Row", (Field("count", Types.LONG()), Field("alone", Types.LONG())))


def descriptor_of(definition: RowsDefinition, side: str) -> MapStateDescriptor[Any, Any]:
    """The state of one side: by row, how many there are, and how many of these have had no pair."""
    found: MapStateDescriptor[Any, Any] = MapStateDescriptor(state_name(side), row_type_of(definition.kept(side)), _NUMBERS)
    found.definition = definition.to_json(side)
    return found


@dataclass(frozen=True)
class IntervalJoinSpec(KeyedSpec):
    """Each input has the columns of the key, and those that are kept of its side, by their names."""

    kind = "interval_join"

    definition: RowsDefinition

    @property
    def watermark_delay_ms(self) -> int:
        return bounds_of(self.definition).delay_ms

    def states(self) -> list[DeclaredState]:
        sides = [DeclaredState.of(descriptor_of(self.definition, side)) for side in self.definition.sides]
        return [*sides, DeclaredState(EVENT_TIMERS, "timers-event", None)]

    def instance(self, info: TaskInfo, state: ManagedState) -> IntervalJoin:
        return IntervalJoin(info, state.keyed, self)


def bounds_of(definition: RowsDefinition) -> Within:
    assert isinstance(definition.node, Join)
    assert definition.node.within
    return definition.node.within


@dataclass(frozen=True)
class Side:
    """One side of a running join. ``input``: the type of its input. ``saved``: that of its rows when the state was saved.
    ``counts_alone``: whether rows without a pair make a difference."""

    name: str
    sid: int
    input: TypeInformation
    saved: TypeInformation
    counts_alone: bool


@dataclass(frozen=True)
class Arrivals:
    """The new rows of both sides in the order of their arrival. ``seen``: the watermark before each. ``ranks``: of the rows of
    each side, their numbers in this order."""

    positions: Longs
    splits: Longs
    sequence: Longs
    seen: Longs
    ranks: Sequence[Longs]

    @staticmethod
    def of(inputs: Sequence[Batch], window: Window) -> Arrivals:
        positions = np.concatenate([spread(batch.positions, batch.size) for batch in inputs])
        splits = np.concatenate([spread(batch.splits, batch.size) for batch in inputs])
        sequence = np.concatenate([batch.sequence for batch in inputs])
        order = np.lexsort((sequence, splits, positions))
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        positions = positions[order]
        return Arrivals(positions, splits[order], sequence[order], window.at(positions), np.split(ranks, [inputs[0].size]))


def event_times(uid: str, side: str, of: Expression, columns: pa.RecordBatch) -> Longs:
    """The event times of the rows of a side, in microseconds."""
    column = evaluate(of, columns)
    if column.null_count:
        raise JobFailed(f"operator {uid!r}: a row of its {state_name(side)} input has no event time")
    moments = column.cast(pa.timestamp("us", getattr(column.type, "tz", None))).cast(pa.int64())
    return np.asarray(moments.to_numpy(zero_copy_only=False))


@dataclass(frozen=True)
class Held:
    """The rows of one side: stored ones, then new ones. ``names``: the store keys of the stored ones. ``values``: the rows as
    they are stored. ``alone``: how many of each have had no pair. ``times``: in microseconds. ``ends``: the watermark, in ms,
    from which on no row in time can pair with it. ``ranks``: of new rows, their order of arrival; -1 for stored ones."""

    names: list[bytes]
    rows: Rows
    values: pa.Array
    alone: Longs
    times: Longs
    ends: Longs
    ranks: Longs

    @property
    def new(self) -> npt.NDArray[np.bool_]:
        return self.ranks >= 0


@dataclass(frozen=True)
class Shown:
    """Rows of the result: indices of left and right rows, -1 for none, and the weight of each. ``ranks``: of the arrival with
    which it appears, -1 if that is the end of its row."""

    left: Longs
    right: Longs
    weights: Longs
    ranks: Longs


class IntervalJoin(KeyedOperator):
    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: IntervalJoinSpec) -> None:
        super().__init__(info, backend)
        assert isinstance(spec.definition.node, Join)
        self._definition, self._join, self._within = spec.definition, spec.definition.node, bounds_of(spec.definition)
        self._before: RowsDefinition | None = None
        self._rank, self._codec = firing_rank(info.operator.stage, event=True), Codec(_NUMBERS)
        self._timers = backend.sid(EVENT_TIMERS)
        self._sides = []
        for ordinal, name in enumerate(spec.definition.sides):
            descriptor = descriptor_of(spec.definition, name)
            before, saved = saved_as(info, backend, descriptor)
            self._before = before or self._before
            backend.record("map", descriptor.name, _NUMBERS, descriptor.key_type, definition=descriptor.definition)
            of = next(edge.type for edge in info.operator.inputs if edge.ordinal == ordinal)
            assert of is not None
            self._sides.append(Side(name, backend.sid(descriptor.name), of, saved, self._join.needs_pairless(name)))
        backend.record("timers-event", EVENT_TIMERS, None)
        self._log = ChangeLog()

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        self._log = ChangeLog()
        before = self._before if epoch.restored else None
        timers = due_timers(self._backend, epoch)
        if before is not None:  # every row has one
            timers = [name for name, _ in stored_entries(self._backend, EVENT_TIMERS)]
        if not timers and not any(batch.size for batch in inputs):
            return Outputs(empty_batch(self._type))
        tables = [columns_of(batch, side.input) for batch, side in zip(inputs, self._sides, strict=True)]
        of, count = self._backend.key_type, len(self._definition.key_names)
        of_timers = decode_keys(read_timers(timers)[1], of)
        parts = [*(key_columns(table, count, of) for table in tables), parts_of_keys(of_timers, count) or [of_timers]]
        keys, (*owners, _) = grouped_together(parts, self._key, self._backend.max_parallelism)
        arrivals = Arrivals.of(inputs, epoch.window)
        left, right = (
            self._held(side, keys, table, of_table, ranks, before)
            for side, table, of_table, ranks in zip(self._sides, tables, owners, arrivals.ranks, strict=True)
        )
        pairs = self._pairs(left, right, arrivals)
        self._log.delete(timers)
        for side, held, paired in zip(self._sides, (left, right), pairs, strict=True):
            self._save(side, keys, held, paired, epoch, rewrite=before is not None)
        shown, late = self._shown(left, right, pairs, arrivals, epoch)
        return Outputs(self._emitted(left, right, shown, arrivals, keys), late_records_dropped=late)

    def _held(
        self, side: Side, keys: KeySet, table: pa.RecordBatch, owners: Longs, ranks: Longs, before: RowsDefinition | None
    ) -> Held:
        entries = scanned(self._backend, side.sid, keys, np.arange(len(keys.column)))
        of = stored_type(self._definition, side.name, before, side.saved)
        names, saved = entries.names, decode_keys(entries.spaces, of)
        count, alone = (column.to_numpy(zero_copy_only=False) for column in self._codec.columns(entries.values))
        stored = rows_of(before or self._definition, side.name, Counts(entries.groups, saved, count), keys.column)
        if before is not None:
            self._log.delete(names)
            kept = still_kept(before, self._definition, side.name, stored)
            stored, alone = stored.take(kept), alone[kept]
            saved, names = stored_form(self._definition, side.name, stored.columns), [b""] * len(alone)
        values = stored_form(self._definition, side.name, table)
        added_rows = rows_of(self._definition, side.name, Counts(owners, values, np.ones(len(owners), np.int64)), keys.column)
        rows = stored.with_columns_of(added_rows).followed_by(added_rows)
        times = event_times(self._uid, side.name, self._within.left if side.name == LEFT else self._within.right, rows.columns)
        ends = (times - self._within.lower_us if side.name == LEFT else times + self._within.upper_us) // 1000
        alone = np.concatenate([alone, added_rows.weights])
        ranks = np.concatenate([np.full(len(names), -1), ranks])
        return Held(names, rows, pa.concat_arrays([saved, values]), alone, times, ends, ranks)

    def _pairs(self, left: Held, right: Held, arrivals: Arrivals) -> Pairs:
        """The pairs with a new row, of which the other one was still there when it arrived."""
        within, (one, other) = self._within, (left.rows.groups, right.rows.groups)
        found = with_new(
            (left.new, right.new),
            lambda a, b: between(one[a], other[b], (left.times[a], right.times[b]), within.lower_us, within.upper_us),
        )
        of_left, of_right = where(self._join, left.rows, right.rows, found)
        left_ranks, right_ranks = left.ranks[of_left], right.ranks[of_right]
        ends = np.where(left_ranks > right_ranks, right.ends[of_right], left.ends[of_left])
        rows = np.flatnonzero(arrivals.seen[np.maximum(left_ranks, right_ranks)] < ends)
        return of_left[rows], of_right[rows]

    def _save(self, side: Side, keys: KeySet, held: Held, paired: Longs, epoch: Epoch, *, rewrite: bool) -> None:
        """Store the rows that can still have pairs. ``paired``: those that had some. ``rewrite``: also those that have not
        changed."""
        alone = held.alone.copy()
        alone[paired] = 0
        stays = (held.ends > epoch.window.end) & (side.counts_alone | (held.rows.groups >= 0))
        changed = held.new | ((alone != held.alone) & side.counts_alone) | rewrite
        gone = np.flatnonzero(~stays & ~held.new)
        if not rewrite:
            self._log.delete([held.names[at] for at in gone.tolist()])
        rows = np.flatnonzero(stays)
        if not changed[rows].any():
            return
        names = self._names(side, keys, held, rows)
        codes = pa.array(names, pa.binary()).dictionary_encode()
        numbers = np.zeros((3, len(codes.dictionary)), np.int64)
        for nth, each in enumerate((held.rows.weights, alone, changed)):
            np.add.at(numbers[nth], codes.indices.to_numpy(), each[rows])
        written = np.flatnonzero(numbers[2])
        values = self._codec.encode_columns([pa.array(numbers[nth, written]) for nth in (0, 1)])
        self._log.add(codes.dictionary.take(pa.array(written)).to_pylist(), values)
        timed = rows[held.new[rows] | rewrite]
        timers = timers_at(keys, self._timers, held.rows.owners[timed], held.ends[timed])
        self._log.add(timers, [b""] * len(timers))

    def _names(self, side: Side, keys: KeySet, held: Held, rows: Longs) -> list[bytes]:
        encoded = KeySet(held.values.take(pa.array(rows)), row_type_of(self._definition.kept(side.name)), 1).encoded
        return keys.names(side.sid, held.rows.owners[rows], encoded)

    # -- the result

    def _shown(self, left: Held, right: Held, pairs: Pairs, arrivals: Arrivals, epoch: Epoch) -> tuple[Shown, int]:
        """The rows of the result, and the number of late rows that are not in it."""
        late, parts = 0, []
        ranks = np.maximum(left.ranks[pairs[0]], right.ranks[pairs[1]])
        if self._join.kind not in ("semi", "anti"):
            weights = left.rows.weights[pairs[0]] * right.rows.weights[pairs[1]]
            parts.append(Shown(pairs[0], pairs[1], weights, ranks))
        if self._join.kind == "semi":
            first = np.full(len(left.ranks), len(arrivals.seen))
            np.minimum.at(first, pairs[0], ranks)
            rows = np.flatnonzero((first < len(arrivals.seen)) & (left.alone > 0))
            parts.append(Shown(rows, np.full(len(rows), -1), left.alone[rows], first[rows]))
        for side, held, paired in zip(self._sides, (left, right), pairs, strict=True):
            alone = held.alone.copy()
            alone[paired] = 0
            behind = held.new & (held.ends <= arrivals.seen[held.ranks]) if len(arrivals.seen) else held.new
            if self._within.windows or not side.counts_alone or self._join.kind == "semi":
                late += int(np.count_nonzero(behind & (alone > 0)))
                alone[behind] = 0
            if not side.counts_alone or self._join.kind == "semi":
                continue
            rows = np.flatnonzero((held.ends <= epoch.window.end) & (alone > 0))
            missing = np.full(len(rows), -1)
            one, other = (rows, missing) if side.name == LEFT else (missing, rows)
            parts.append(Shown(one, other, alone[rows], np.where(behind[rows], held.ranks[rows], -1)))
        columns = ("left", "right", "weights", "ranks")
        return Shown(*(np.concatenate([getattr(part, name) for part in parts]) for name in columns)), late

    def _emitted(self, left: Held, right: Held, shown: Shown, arrivals: Arrivals, keys: KeySet) -> Batch:
        if not len(shown.left):
            return empty_batch(self._type)
        assert self._type is not None
        passing, columns = shown_rows(self._definition.view, table_of(left.rows, right.rows, shown.left, shown.right))
        at = np.arange(len(shown.left)) if passing is None else passing
        rows = np.repeat(np.arange(len(at)), shown.weights[at])
        table, at = pa.RecordBatch.from_arrays(columns.take(pa.array(rows)).columns, schema=self._type.arrow_schema), at[rows]

        def coordinates() -> Coordinates:
            sides = ((left, shown.left[at]), (right, shown.right[at]))
            times, ends, owners = (np.full((2, len(at)), np.iinfo(np.int64).min) for _ in range(3))
            for nth, (held, of) in enumerate(sides):
                there = np.flatnonzero(of >= 0)
                times[nth, there] = held.times[of[there]] // 1000
                ends[nth, there], owners[nth, there] = held.ends[of[there]], held.rows.owners[of[there]]
            positions, splits = timer_positions(ends.max(0)), np.full(len(at), self._rank)
            sequence = keys.tie_breakers[owners.max(0)]
            arrived = np.flatnonzero(shown.ranks[at] >= 0)
            ranks = shown.ranks[at][arrived]
            positions[arrived], splits[arrived] = arrivals.positions[ranks], arrivals.splits[ranks]
            sequence[arrived] = arrivals.sequence[ranks]
            return positions - 2 * self._within.delay_ms, splits, sequence, times.max(0)

        return DerivedBatch(len(at), coordinates, table=table, type=self._type)

    def changes(self) -> ChangeLog:
        return self._log

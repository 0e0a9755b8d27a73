"""GROUP BY: keeps accumulators by key, and emits the changes of the view of the groups, net for each epoch.

If the query has changed since its state was saved, the first epoch emits the difference between its new result and the old one,
for all groups. Both are functions of the state, and the state carries the definition of the old one (``StateInfo.definition``),
which the commit of that epoch replaces. So an epoch that is repeated, or a run that dies before its commit, emits the difference
again, and a later run does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.functions import MapStateDescriptor, ValueStateDescriptor
from forkpoint.graph.specs import DeclaredState
from forkpoint.relational.aggregation import ordered
from forkpoint.relational.aggregation.accumulators import ROWS, Accumulator, accumulated, filtered_value, merging, part_of
from forkpoint.relational.changes import WEIGHT, never_added, weights_of, with_schema
from forkpoint.relational.definitions.groups import GroupDefinition, described, split_filter, stored_definition
from forkpoint.relational.expressions import Column
from forkpoint.relational.operators.keyed import key_columns
from forkpoint.relational.operators.multisets import Multiset, of_distinct, values_descriptor
from forkpoint.relational.operators.replaced import Replaced
from forkpoint.relational.operators.results import Groups, before_elements, stored_groups, view_of
from forkpoint.relational.operators.retention import FOREVER, Retention, kept_for, sweeper, with_values_of
from forkpoint.runtime.columnar.codes import codes_of
from forkpoint.runtime.columnar.keys import GroupedRows, KeySet
from forkpoint.runtime.columnar.objects import columns_of
from forkpoint.runtime.exchange.batch import Batch, DerivedBatch, Longs, empty_batch, spread
from forkpoint.runtime.operators.base import Epoch, KeyedOperator, OperatorInstance, Outputs, TaskInfo
from forkpoint.runtime.operators.instances import KeyedSpec, ManagedState
from forkpoint.runtime.state.columns import ValueColumns
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.types import TypeInformation, from_description
from forkpoint.types.information import Field
from forkpoint.types.kinds.records import RecordType

STATE_NAME = "groups"
Bools = npt.NDArray[np.bool_]
Sides = tuple[tuple[str, TypeInformation], ...]
"""Of an aggregate that several places of a query have: the uid of each of the others, which is the tag of its output, and that
output's type."""
Changes = tuple[pa.RecordBatch, Longs | None]
"""Rows with weights, and for each the row of the epoch at whose coordinates it is emitted; None: before all of them."""


def state_type(definition: GroupDefinition) -> RecordType:
    """The type of a group's state: a column for each accumulator."""
    return RecordType("row", "Row", tuple(Field(each.name, each.type.stream_type) for each in definition.accumulators))


def descriptor_of(definition: GroupDefinition, ttl_ms: int | None = None) -> ValueStateDescriptor[Any]:
    found: ValueStateDescriptor[Any] = ValueStateDescriptor(STATE_NAME, state_type(definition))
    found.definition = definition.to_json()
    kept_for(found, ttl_ms)
    return found


def follows_order(definition: GroupDefinition) -> bool:
    """Whether the result depends on the order of rows."""
    return any(each.kind in (*ordered.FUNCTIONS.values(), "kept", "user") for each in definition.accumulators)


def values_of(definition: GroupDefinition) -> dict[str, MapStateDescriptor[Any, int]]:
    """The states of values that the accumulators need, by their names."""
    needed = {each.values: each.input for each in definition.accumulators if each.values is not None}
    return {name: values_descriptor(name, of) for name, of in needed.items() if of is not None}


def wholes_of(definition: GroupDefinition) -> dict[str, str]:
    """The states of values of some rows, by a FILTER, each with that of the values of all rows."""
    inputs = {each.values: each.input for each in definition.accumulators if each.values is not None}
    names = {str(of): name for name, of in inputs.items()}
    found = {name: names.get(str(filtered_value(of))) for name, of in inputs.items() if of is not None}
    return {name: _last(found, name) for name, whole in found.items() if whole is not None}


def _last(following: Mapping[str, str | None], name: str) -> str:
    """The end of the chain that begins with a name."""
    then = following[name]
    return name if then is None else _last(following, then)


@dataclass(frozen=True)
class GroupAggregateSpec(KeyedSpec):
    """The input has a column for each key (``key_names``), for each accumulator's input (by its name), and weights if rows are
    also removed. ``parts``: whether it has accumulators of rows in place of rows."""

    kind = "group_aggregate"

    definition: GroupDefinition
    retention: Retention = FOREVER
    sides: Sides = ()
    parts: bool = False

    def states(self) -> list[DeclaredState]:
        groups = descriptor_of(self.definition, self.retention.of(0))
        return [DeclaredState.of(descriptor) for descriptor in (groups, *values_of(self.definition).values())]

    def instance(self, info: TaskInfo, state: ManagedState) -> OperatorInstance:
        return GroupAggregate(info, state.keyed, self)


@dataclass(frozen=True)
class Update:
    """The groups with rows in an epoch, before and after it, and the last row of each. ``unused``: accumulators that only the old
    query needs."""

    keys: KeySet
    before: Groups
    after: Groups
    unused: Mapping[str, pa.Array]
    last: Longs


@dataclass(frozen=True)
class Reader:
    """Who reads an operator's output: its tag, "" for the main one, the view that it sees, and the type of that."""

    tag: str
    definition: GroupDefinition
    type: TypeInformation


def readers_of(definition: GroupDefinition, main: TypeInformation | None, sides: Sides) -> list[Reader]:
    """The readers of an operator, the main one first."""
    assert main is not None
    found = [(tag, definition.of_reader(tag), of) for tag, of in (("", main), *sides)]
    return [Reader(tag, of_reader, of) for tag, of_reader, of in found if of_reader is not None]


def outputs(readers: Sequence[Reader], of: Callable[[Reader], Batch], late: int = 0) -> Outputs:
    """What each reader gets."""
    main, *others = readers
    return Outputs(of(main), {each.tag: of(each) for each in others}, late_records_dropped=late)


class GroupOperator(KeyedOperator):
    """Accumulators by key."""

    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: GroupAggregateSpec) -> None:
        super().__init__(info, backend)
        self._in = info.operator.inputs[0].type
        definition, retention = spec.definition, spec.retention
        self._definition, self._retention, self._parts = definition, retention, spec.parts
        self._readers = readers_of(definition, self._type, spec.sides)
        descriptor = descriptor_of(definition, retention.of(0))
        known = info.known_states.get(backend.sid(STATE_NAME))
        self._before: GroupDefinition | None = None
        if known is not None and known.definition != descriptor.definition:
            self._before = stored_definition(known.definition)
            descriptor.value_type = from_description(known.value_type)  # which both definitions need
        self._columns = ValueColumns(backend, descriptor)
        self._multisets = {
            name: Multiset(backend, of, incomplete=retention.incomplete) for name, of in values_of(definition).items()
        }
        # After expiry, more may be taken back of some rows than was added, so nothing follows for parts of them.
        self._wholes = {} if retention.incomplete else wholes_of(definition)
        self._multisets = dict(sorted(self._multisets.items(), key=lambda item: item[0] in self._wholes))
        self._ordered = follows_order(definition)

    def _input(self, inputs: list[Batch]) -> Batch:
        return inputs[0].in_order() if self._ordered else inputs[0]

    def _update(self, table: pa.RecordBatch) -> Update | None:
        """Add rows to their groups, or take them back. ``_write`` saves the groups. None if all rows are taken back from groups
        that have expired."""
        keys = key_columns(table, len(self._definition.key_names), self._backend.key_type)
        grouped = GroupedRows.of(keys, self._key, self._backend.max_parallelism)
        key_set, starts = grouped.keys, grouped.starts
        given, last = table, grouped.order[starts[1:] - 1]
        table = table if len(last) == 1 else table.take(pa.array(grouped.order))  # the rows of one group are in order
        self._columns.begin(key_set)
        saved, weights, of_row = self._columns.read(), weights_of(table), np.repeat(np.arange(len(last)), np.diff(starts))
        anew = ~self._columns.exists if self._retention.incomplete else None
        if anew is not None and weights is not None:
            rows = np.sort(grouped.order[_with_row_before(weights, of_row, ~anew)])
            if len(rows) < given.num_rows:
                found = self._update(given.take(pa.array(rows))) if len(rows) else None
                return None if found is None else replace(found, last=rows[found.last])
        changes, places, crossings = {}, {}, {}
        for name, multiset in self._multisets.items():
            values, whole = table.column(name), self._wholes.get(name)
            valid = np.ones(len(values), bool) if not values.null_count else values.is_valid().to_numpy(zero_copy_only=False)
            rows = np.flatnonzero(valid)
            of_values = None if weights is None else weights[rows]
            if whole is None:
                places[name] = np.cumsum(valid) - 1  # of rows, among those with a value
                values = values if not values.null_count else values.take(pa.array(rows))
                changes[name] = multiset.update(key_set, of_row[rows], values, of_values, anew)
            else:
                changes[name] = multiset.update_part(key_set, changes[whole], places[whole][rows], of_values)
            crossings[name] = changes[name].crossings
        after = {}
        for accumulator in self._definition.accumulators:
            name, before = accumulator.name, saved.column(accumulator.name)
            if accumulator.values is not None:
                multiset = self._multisets[accumulator.values]
                after[name] = of_distinct(accumulator, crossings[accumulator.values], multiset, key_set, before)
            else:
                adding = self._adding(accumulator)
                values = None if adding.input is None else table.column(adding.column)
                after[name] = accumulated(adding, values, weights, starts, before)
        if weights is not None and anew is None and (negative := np.flatnonzero(pc.less(after[ROWS.name], 0))).size:
            group = key_set.column[int(negative[0])].as_py()
            raise never_added(self._uid, f"a row of group {group!r}", described(*split_filter(self._definition.aggregate.input)))
        unused = {name: filled(saved.column(name)) for name in saved.schema.names if name not in after}
        before_all = Groups(key_set.column, dict(zip(saved.schema.names, saved.columns, strict=True)))
        return Update(key_set, before_all, Groups(key_set.column, after), unused, last)

    def _adding(self, accumulator: Accumulator) -> Accumulator:
        """What adds the input's column to an accumulator."""
        if not self._parts:
            return accumulator
        part = part_of(accumulator)
        return replace(merging(part), input=part.input or Column(part.name, part.type))  # errors name the query's own

    def _write(self, update: Update, kept: Bools) -> None:
        """Save the groups that are kept, and clear the others."""
        self._columns.write({**update.after.state, **update.unused}, kept)
        self._columns.clear(~kept)


class GroupAggregate(GroupOperator):
    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: GroupAggregateSpec) -> None:
        super().__init__(info, backend, spec)
        self._changed = False
        self._replaced = Replaced.of(info, backend)
        ttl_ms = spec.retention.of(0)
        if ttl_ms is not None:
            values = [backend.sid(name) for name in self._multisets]
            backend.sweepers.append(with_values_of(sweeper(backend, backend.sid(STATE_NAME), ttl_ms), backend, values))

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        self._backend.processing_time_ms = epoch.processing_time_ms
        batch = self._input(inputs)
        before = self._before if epoch.restored else None
        found = self._update(columns_of(batch, self._in)) if batch.size else None
        self._changed = found is not None
        if found is not None:
            self._write(found, found.after.exist)
        untouched = None if before is None else self._untouched(None if found is None else found.keys.column)

        def of(reader: Reader) -> Batch:
            was = reader.definition if before is None else before.of_reader(reader.tag)
            parts: list[Changes] = []
            if found is not None:
                changes, groups = self._changes(reader, was, found.before, found.after)
                parts.append((changes, found.last[groups]))
            if untouched is not None:
                parts.append((self._changes(reader, was, untouched, untouched)[0], None))
            return self._emitted(reader.type, batch, epoch, [part for part in parts if part[0].num_rows])

        result = outputs(self._readers, of)
        if self._replaced is not None and epoch.restored:
            assert self._type is not None
            result.main = self._replaced.with_difference(result.main, epoch, self._type)
        return result

    # -- changes of a view

    def _changes(
        self, reader: Reader, was: GroupDefinition | None, before: Groups, after: Groups
    ) -> tuple[pa.RecordBatch, Longs]:
        """The rows to remove and to add, with weights, each group's next to each other, and their groups. ``was``: the reader's
        view before; None if it is new."""
        new, size = view_of(reader.definition, after), len(after.keys)
        old = (new[0][:0], new[1][:0]) if was is None else view_of(was, before)
        schema = pa.schema([field for field in reader.type.arrow_schema if field.name != WEIGHT])
        removes, adds = with_schema(old[1], schema), with_schema(new[1], schema)
        at = np.full((2, size), -1)
        at[0, old[0]], at[1, new[0]] = np.arange(len(old[0])), np.arange(len(new[0]))
        both = np.flatnonzero((at[0] >= 0) & (at[1] >= 0))
        # Rows with other columns than before are emitted again, whatever their values.
        equal = np.full(len(both), old[1].schema.equals(new[1].schema))
        for name in schema.names:
            equal &= _equal(removes.column(name).take(pa.array(at[0, both])), adds.column(name).take(pa.array(at[1, both])))
        at[:, both[equal]] = -1
        rows = at.T.ravel()  # of each group, the old row and the new one
        picked = np.flatnonzero(rows >= 0)
        removed = picked % 2 == 0
        joined = pa.concat_batches([removes, adds]).take(pa.array(rows[picked] + np.where(removed, 0, removes.num_rows)))
        return joined.append_column(WEIGHT, pa.array(np.where(removed, -1, 1))), picked // 2

    def _untouched(self, touched: pa.Array | None) -> Groups | None:
        """The groups without rows in this epoch, which change because the query has changed; None if there are no others."""
        groups = stored_groups(self._backend, STATE_NAME, self._columns.type, self._backend.key_type, self._retention.of(0))
        if not len(groups.keys):
            return None
        if touched is not None:
            known = set(map(self._backend.key_type.encode, self._backend.key_type.from_arrow(touched)))
            encoded = map(self._backend.key_type.encode, self._backend.key_type.from_arrow(groups.keys))
            keep = pa.array([key not in known for key in encoded])
            groups = Groups(groups.keys.filter(keep), {name: column.filter(keep) for name, column in groups.state.items()})
        return groups

    def _emitted(self, of: TypeInformation, batch: Batch, epoch: Epoch, parts: list[Changes]) -> Batch:
        if not parts:
            return empty_batch(of)
        table = pa.concat_batches([changes for changes, _ in parts])
        table = pa.RecordBatch.from_arrays(table.columns, schema=of.arrow_schema)

        def coordinates() -> tuple[Longs, Longs, Longs, None]:
            found = []
            for changes, rows in parts:
                if rows is None:
                    found.append(before_elements(epoch, changes.num_rows)[:3])
                else:
                    positions, splits, sequence, _ = batch.coordinates(rows)
                    found.append((spread(positions, len(rows)), spread(splits, len(rows)), sequence))
            positions, splits, sequence = map(np.concatenate, zip(*found, strict=True))
            return positions, splits, sequence, None

        return DerivedBatch(table.num_rows, coordinates, table=table, type=of)

    def changes(self) -> ChangeLog:
        log = ChangeLog()
        if self._changed:
            self._columns.collect(log)
            for multiset in self._multisets.values():
                multiset.collect(log)
        if self._replaced is not None:
            self._replaced.collect(log)
        self._backend.sweep(log)
        return log


def _with_row_before(weights: Longs, of_row: Longs, exist: Bools) -> Bools:
    """The rows but those that take back a row before any was added to their group, of groups that do not exist: as in Flink, it
    is a row of before the group's state expired. ``of_row``: the group of each row, in order."""
    added = np.cumsum(weights > 0)
    before = np.concatenate([[0], added])[np.searchsorted(of_row, of_row)]
    return np.asarray(exist[of_row] | (added > before))


def filled(column: pa.Array) -> pa.Array:
    """An accumulator that only the old query needs: it must have a value, which nothing reads."""
    numbers = pa.types.is_primitive(column.type) or pa.types.is_decimal(column.type)
    return column.fill_null(0) if numbers and not pa.types.is_temporal(column.type) else column


def _equal(one: pa.Array, other: pa.Array) -> Bools:
    """Where two columns have the same value; NULL equals NULL, and NaN equals NaN."""
    if pa.types.is_nested(one.type):
        codes = codes_of([pa.concat_arrays([one, other])])
        return np.asarray(codes[: len(one)] == codes[len(one) :])
    same = pc.fill_null(pc.equal(one, other), False)
    same = pc.or_(same, pc.and_(one.is_null(), other.is_null()))
    if pa.types.is_floating(one.type):
        same = pc.or_(same, pc.fill_null(pc.and_(pc.is_nan(one), pc.is_nan(other)), False))
    found: Bools = same.to_numpy(zero_copy_only=False)
    return found

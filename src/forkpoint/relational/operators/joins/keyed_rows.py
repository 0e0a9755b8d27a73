"""Keeps rows by key, and emits the changes of what is computed from those of each key, net for each epoch: joins, and OVER.

If the query has changed since its state was saved, the first epoch computes the old and the new result over all stored rows,
emits the difference, and writes the rows as the new query needs them. As in GROUP BY, the commit of that epoch also replaces the
definition that the state carries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from forkpoint.functions import MapStateDescriptor
from forkpoint.graph.specs import DeclaredState
from forkpoint.relational.changes import WEIGHT, Owned, consolidated, difference, elements, weights_of
from forkpoint.relational.definitions.groups import View, split_filter
from forkpoint.relational.definitions.rows import RowsDefinition, narrower, stored_rows, takes_back
from forkpoint.relational.evaluation import column_named, true_rows
from forkpoint.relational.expressions import Call, Expression, all_of, conjuncts_of
from forkpoint.relational.operators.joins.pairs import Rows
from forkpoint.relational.operators.keyed import grouped_together, key_columns, parts_of_keys
from forkpoint.relational.operators.multisets import Counts, Multiset, distinct, stored_counts
from forkpoint.relational.operators.over import leading
from forkpoint.relational.operators.replaced import Replaced
from forkpoint.relational.operators.results import before_elements, none_of, result_of, rows_of
from forkpoint.relational.operators.retention import FOREVER, Retention, kept_for, sweeper, whole_keys
from forkpoint.relational.plan import LEFT, Join, Over
from forkpoint.relational.types import BOOLEAN
from forkpoint.relational.types import Field as Column
from forkpoint.runtime.columnar.keys import KeySet
from forkpoint.runtime.columnar.leaves import column_of
from forkpoint.runtime.columnar.objects import columns_of
from forkpoint.runtime.exchange.batch import Batch, Coordinates, DerivedBatch, Longs, empty_batch, spread
from forkpoint.runtime.operators.base import Epoch, KeyedOperator, Outputs, TaskInfo
from forkpoint.runtime.operators.instances import KeyedSpec, ManagedState
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.types import TypeInformation, Types, from_description
from forkpoint.types.information import Field
from forkpoint.types.kinds.records import RecordType

ROW = "row"
"""The column of stored rows without columns of their own."""


def row_type_of(columns: Sequence[Column]) -> RecordType:
    """The type of the stored rows of one side."""
    fields = [Field(each.name, each.type.stream_type) for each in columns] or [Field(ROW, Types.BOOLEAN())]
    return RecordType("row", "Row", tuple(fields))


def state_name(side: str) -> str:
    return side.rstrip(".") or "rows"


def descriptor_of(definition: RowsDefinition, side: str, ttl_ms: int | None = None) -> MapStateDescriptor[Any, int]:
    """The state of one side: how often each row is there."""
    found: MapStateDescriptor[Any, int] = MapStateDescriptor(state_name(side), row_type_of(definition.kept(side)), Types.LONG())
    found.definition = definition.to_json(side)
    kept_for(found, ttl_ms)
    return found


def saved_as(
    info: TaskInfo, backend: KeyedBackend, descriptor: MapStateDescriptor[Any, Any]
) -> tuple[RowsDefinition | None, TypeInformation]:
    """What the stored rows of a side mean if the query has changed since they were saved, else None; and their type."""
    known = info.known_states.get(backend.sid(descriptor.name))
    if known is None or known.definition == descriptor.definition:
        return None, descriptor.key_type
    return stored_rows(known.definition), from_description(known.namespace_type)


def stored_type(definition: RowsDefinition, side: str, before: RowsDefinition | None, saved: TypeInformation) -> TypeInformation:
    """The type of the stored rows of a side: ``saved`` until the first epoch of a changed query, for which there is a query
    ``before``, has written them anew."""
    return row_type_of(definition.kept(side)) if before is None else saved


@dataclass(frozen=True)
class KeyedRowsSpec(KeyedSpec):
    """Each input has the columns of the key, those that are kept of its side, by their names, and weights if rows are also
    removed. ``updating``: whether the result has weights."""

    kind = "keyed_rows"

    definition: RowsDefinition
    updating: bool
    retention: Retention = FOREVER

    def states(self) -> list[DeclaredState]:
        return [DeclaredState.of(each) for each in self.descriptors()]

    def descriptors(self) -> list[MapStateDescriptor[Any, int]]:
        """The states of the sides."""
        sides = enumerate(self.definition.sides)
        return [descriptor_of(self.definition, side, self.retention.of(ordinal)) for ordinal, side in sides]

    def instance(self, info: TaskInfo, state: ManagedState) -> KeyedRows:
        return KeyedRows(info, state.keyed, self)


@dataclass(frozen=True)
class Side:
    """One side of a running operator. ``input``: the type of its input. ``saved``: that of its rows when the state was saved."""

    name: str
    input: TypeInformation
    rows: Multiset
    saved: TypeInformation


class KeyedRows(KeyedOperator):
    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: KeyedRowsSpec) -> None:
        super().__init__(info, backend)
        self._definition, self._updating, self._retention = spec.definition, spec.updating, spec.retention
        self._before: RowsDefinition | None = None
        self._sides = []
        for ordinal, (name, descriptor) in enumerate(zip(spec.definition.sides, spec.descriptors(), strict=True)):
            before, saved = saved_as(info, backend, descriptor)
            self._before = before or self._before
            of = next(edge.type for edge in info.operator.inputs if edge.ordinal == ordinal)
            assert of is not None
            rows = Multiset(backend, descriptor, incomplete=spec.retention.incomplete, together=self._is_over)
            self._sides.append(Side(name, of, rows, saved))
            ttl_ms = spec.retention.of(ordinal)
            if ttl_ms is not None:
                sweep = sweeper(backend, backend.sid(descriptor.name), ttl_ms)
                backend.sweepers.append(whole_keys(sweep, backend) if self._is_over else sweep)
        self._replaced = Replaced.of(info, backend)

    @property
    def _is_over(self) -> bool:
        return isinstance(self._definition.node, Over)

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        self._backend.processing_time_ms = epoch.processing_time_ms
        found = self._run(inputs, epoch)
        if self._replaced is not None and epoch.restored:
            assert self._type is not None
            found = self._replaced.with_difference(found, epoch, self._type)
        return Outputs(found)

    def _run(self, inputs: list[Batch], epoch: Epoch) -> Batch:
        tables = [columns_of(batch, side.input) for batch, side in zip(inputs, self._sides, strict=True)]
        if self._before is not None and epoch.restored:
            return self._changed(tables, self._before, epoch)
        if not any(table.num_rows for table in tables):
            return empty_batch(self._type)
        keys, owners = self._grouped([self._key_columns(table) for table in tables])
        if self._definition.limit is not None:
            before, added = self._leading(keys, owners[0], tables[0])
        else:
            added = []
            for side, table, of in zip(self._sides, tables, owners, strict=True):
                values = stored_form(self._definition, side.name, table)
                change = side.rows.update(keys, of, values, weights_of(table)).net
                added.append(rows_of(self._definition, side.name, change.take(np.flatnonzero(change.counts)), keys.column))
            before = [
                rows_of(self._definition, side.name, side.rows.stored(keys, which), keys.column)
                for side, which in zip(self._sides, self._looked_at(added), strict=True)
            ]
        found = result_of(self._definition, before, added)
        if self._updating:
            found = consolidated(*found)
        return self._emitted(found, lambda at: _last_of_keys(inputs, owners, at))

    def _leading(self, keys: KeySet, owners: Longs, table: pa.RecordBatch) -> tuple[list[Rows], list[Rows]]:
        """The stored rows, and those that are added, of rows of which only the first of each partition are kept. What comes after
        these can never be shown."""
        (side,), of, counts = self._sides, self._definition, np.ones(len(owners), np.int64)
        values = stored_form(of, side.name, table)
        added = rows_of(of, side.name, Counts(owners, values, counts), keys.column)
        first = self._first(added)
        added, values = added.take(first), values.take(pa.array(first))
        stored = side.rows.stored(keys, distinct(added.owners))
        before = rows_of(of, side.name, stored, keys.column)
        stays = np.zeros(len(before.owners) + len(added.owners), bool)
        stays[self._first(before.followed_by(added))] = True
        leave, come = np.flatnonzero(~stays[: len(before.owners)]), np.flatnonzero(stays[len(before.owners) :])
        added, values, left = added.take(come), values.take(pa.array(come)), stored.take(leave)
        side.rows.update(
            keys,
            np.concatenate([added.owners, left.groups]),
            pa.concat_arrays([values, left.values]),
            np.concatenate([added.weights, -left.counts]),
        )
        return [before], [added]

    def _first(self, rows: Rows) -> Longs:
        """The rows that are kept, as far as these are all that there are."""
        node, limit = self._definition.node, self._definition.limit
        if limit is None:
            return np.arange(len(rows.owners))
        assert isinstance(node, Over)
        return leading(node, rows, limit)

    def _key_columns(self, table: pa.RecordBatch) -> list[pa.Array]:
        return key_columns(table, len(self._definition.key_names), self._backend.key_type)

    def _grouped(self, parts: Sequence[list[pa.Array]]) -> tuple[KeySet, list[Longs]]:
        return grouped_together(parts, self._key, self._backend.max_parallelism)

    def _looked_at(self, added: Sequence[Rows]) -> Sequence[Longs]:
        """The keys of each side whose stored rows the result depends on, for those whose rows have changed."""
        node = self._definition.node
        if isinstance(node, Over):
            return [distinct(added[0].owners)]
        left, right = (distinct(rows.groups[rows.groups >= 0]) for rows in added)
        both = distinct(np.concatenate([left, right]))
        # A row that is shown without a pair depends on all rows of the other side, not only on new ones.
        return both if node.pads(LEFT) else right, left if node.kind in ("inner", "right") else both

    # -- the first epoch of a changed query

    def _changed(self, tables: list[pa.RecordBatch], before: RowsDefinition, epoch: Epoch) -> Batch:
        """The difference between the new result, with the epoch's rows, and the old one."""
        stored = [
            stored_counts(
                self._backend,
                state_name(side.name),
                side.saved,
                self._backend.key_type,
                self._retention.of(ordinal),
                together=self._is_over,
            )
            for ordinal, side in enumerate(self._sides)
        ]
        if not any(len(each.names) for each in stored) and not any(table.num_rows for table in tables):
            return empty_batch(self._type)
        of_stored = [self._key_parts(each.keys) for each in stored]
        keys, owners = self._grouped([*of_stored, *map(self._key_columns, tables)])
        old, kept, added = [], [], []
        for ordinal, (side, each, table) in enumerate(zip(self._sides, stored, tables, strict=True)):
            of_table, values = owners[len(self._sides) + ordinal], stored_form(self._definition, side.name, table)
            weights = np.ones(table.num_rows, np.int64) if (given := weights_of(table)) is None else given
            old.append(rows_of(before, side.name, Counts(owners[ordinal], each.values, each.counts), keys.column))
            kept.append(old[ordinal].take(still_kept(before, self._definition, side.name, old[ordinal])))
            added.append(rows_of(self._definition, side.name, Counts(of_table, values, weights), keys.column))
            stays = kept[ordinal].with_columns_of(added[ordinal]).followed_by(added[ordinal])
            stays = stays.take(self._first(stays))
            form = stored_form(self._definition, side.name, stays.columns)
            side.rows.replace(each.names, keys, stays.owners, form, stays.weights)
        old_node, node = before.node, self._definition.node
        if not self._updating and isinstance(old_node, Join) and isinstance(node, Join) and old_node.kind == node.kind == "inner":
            was_shown = all_of((*conjuncts_of(old_node.condition), *conjuncts_of(before.view.condition)))
            found = self._gained(was_shown, kept, added)
        else:
            found = self._difference(before, old, kept, added)
            rows = np.flatnonzero(self._updating | (found[1] > 0))
            found = found[0].take(pa.array(rows)), found[1][rows], found[2][rows]
        return self._emitted(found, lambda at: before_elements(epoch, len(at)))

    def _difference(self, before: RowsDefinition, old: list[Rows], kept: list[Rows], added: list[Rows]) -> Owned:
        """The new result, with the epoch's rows, without the old one."""
        assert self._type is not None
        schema = pa.schema([field for field in self._type.arrow_schema if field.name != WEIGHT])
        new = [one.with_columns_of(other).followed_by(other) for one, other in zip(kept, added, strict=True)]
        shown, was_shown = result_of(self._definition, none_of(new), new), result_of(before, none_of(old), old)
        return difference(was_shown, shown, schema)

    def _gained(self, was_shown: Expression | None, kept: list[Rows], added: list[Rows]) -> Owned:
        """What an inner join that only adds rows has gained. What was emitted stays, even if the new query has no such rows.
        ``was_shown``: the condition on the pairs that were emitted."""
        definition, rows = self._definition, [one.with_columns_of(other) for one, other in zip(kept, added, strict=True)]
        parts = [result_of(definition, rows, added)]
        if was_shown is not None:
            unseen = Call("NOT", (Call("IS TRUE", (was_shown,), BOOLEAN),), BOOLEAN)
            view = View(all_of((unseen, *conjuncts_of(definition.view.condition))), definition.view.items)
            parts.append(result_of(RowsDefinition(definition.node, view), none_of(kept), kept))
        table = pa.concat_batches([part[0] for part in parts])
        return table, np.concatenate([part[1] for part in parts]), np.concatenate([part[2] for part in parts])

    def _key_parts(self, keys: pa.Array) -> list[pa.Array]:
        return parts_of_keys(keys, len(self._definition.key_names)) or [keys]

    def _emitted(self, changes: Owned, coordinates: Callable[[Longs], Coordinates]) -> Batch:
        """One element for each row and change. ``coordinates``: of elements, by the index of their key."""
        table, weights, owners = changes
        if not weights.any():
            return empty_batch(self._type)
        assert self._type is not None
        table, rows = elements(table, weights, self._type)
        return DerivedBatch(len(rows), lambda: coordinates(owners[rows]), table=table, type=self._type)

    def changes(self) -> ChangeLog:
        log = ChangeLog()
        for side in self._sides:
            side.rows.collect(log)
        if self._replaced is not None:
            self._replaced.collect(log)
        self._backend.sweep(log)
        return log


def stored_form(definition: RowsDefinition, side: str, table: pa.RecordBatch) -> pa.Array:
    """Rows as values of the state."""
    names = [field.name for field in definition.kept(side)]
    columns = [column_named(name, table) for name in names] or [pa.repeat(pa.scalar(True), table.num_rows)]
    return column_of(columns, row_type_of(definition.kept(side)))


def still_kept(old: RowsDefinition, new: RowsDefinition, side: str, rows: Rows) -> Longs:
    """The indices of the stored rows that the new query keeps, unless its input removes them."""
    (source, before), (_, after) = (split_filter(each.input(side)) for each in (old, new))
    added = None if takes_back(source) else narrower(before, after)
    found = None if added is None else true_rows(added, rows.columns)
    return np.arange(len(rows.owners)) if found is None else found


def _last_of_keys(inputs: Sequence[Batch], owners: Sequence[Longs], at: Longs) -> Coordinates:
    """The coordinates of the last row of each of these keys."""
    parts = [batch.coordinates(np.arange(batch.size)) for batch in inputs]
    positions = np.concatenate([spread(part[0], len(part[2])) for part in parts])
    splits = np.concatenate([spread(part[1], len(part[2])) for part in parts])
    sequence = np.concatenate([part[2] for part in parts])
    last = np.zeros(1 + max(int(each.max(initial=0)) for each in owners), np.int64)
    last[np.concatenate(owners)] = np.arange(len(sequence))
    rows = last[at]
    return positions[rows], splits[rows], sequence[rows], None

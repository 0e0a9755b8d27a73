"""Lookup joins: each row is joined with the rows that a table of another system has for its key when it is processed.

The cache, retries and metrics are those of ``DataStream.lookup_join``. A key that is NULL is not looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from forkpoint.functions import ValueStateDescriptor
from forkpoint.functions.async_lookup import ExponentialBackoffDelayRetryStrategy
from forkpoint.relational.changes import row_type
from forkpoint.relational.definitions.rows import RowsDefinition
from forkpoint.relational.functions import cast
from forkpoint.relational.lookups import LookupTable
from forkpoint.relational.operators.joins.pairs import Rows, equal, table_of, where
from forkpoint.relational.operators.results import shown_rows
from forkpoint.relational.operators.select import derived
from forkpoint.relational.plan import LEFT, PRESENT, Join
from forkpoint.relational.types import Schema
from forkpoint.runtime.columnar.objects import columns_of
from forkpoint.runtime.exchange.batch import Batch, Longs, empty_batch
from forkpoint.runtime.exchange.grouping import group_by_key
from forkpoint.runtime.operators.base import Epoch, Outputs, TaskInfo
from forkpoint.runtime.operators.instances import ManagedState
from forkpoint.runtime.operators.requests.lookup_join import LookupJoin, LookupJoinSpec
from forkpoint.runtime.state.keyed_backend import KeyedBackend
from forkpoint.types import Types

_TIMEOUT_MS = 30_000


def lookup_spec(definition: RowsDefinition, table: LookupTable) -> TableLookupSpec:
    retry = ExponentialBackoffDelayRetryStrategy(table.max_retries, 100, 2000, 2.0)
    rows = Types.LIST(row_type(table.schema))
    return TableLookupSpec(
        table.function, None, rows, "null", table.cache_ttl_ms, table.cache_misses, _TIMEOUT_MS, retry, definition, table.schema
    )


@dataclass(frozen=True)
class TableLookupSpec(LookupJoinSpec):
    """The input has the columns of the key, and those of the left side that the join reads. ``schema``: of the rows found."""

    kind = "table_lookup"

    definition: RowsDefinition
    schema: Schema

    @property
    def cache(self) -> ValueStateDescriptor[Any] | None:
        """Named by the columns of the key, because rows that were found by other columns are no answers."""
        found = super().cache
        if found is not None:
            assert isinstance(self.definition.node, Join)
            found.name = "_".join(("cache_by", *(str(column) for _, column in self.definition.node.keys)))
        return found

    def instance(self, info: TaskInfo, state: ManagedState) -> TableLookup:
        return TableLookup(info, state.keyed, self)


class TableLookup(LookupJoin):
    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: TableLookupSpec) -> None:
        super().__init__(info, backend, spec)
        assert isinstance(spec.definition.node, Join)
        self._definition, self._join, self._schema = spec.definition, spec.definition.node, spec.schema
        self._in, self._row = info.operator.inputs[0].type, row_type(spec.schema)

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        (batch,) = inputs
        table = columns_of(batch, self._in)
        known = np.ones(batch.size, bool)
        for column in table.columns[: len(self._definition.key_names)]:
            known &= column.is_valid().to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(known)
        groups = group_by_key(batch.take(rows), self._key)
        self._backend.begin(groups.keys, epoch.processing_time_ms, lambda: epoch.window.start)
        if not batch.size:
            return Outputs(empty_batch(self._type))
        key_of = np.full(batch.size, -1)
        key_of[rows[groups.order]] = np.repeat(np.arange(len(groups.keys)), np.diff(groups.starts))
        left, right = self._left(table, key_of), self._right(self._look_up(groups.keys))
        found = np.zeros(batch.size, bool)
        of_left, of_right = where(self._join, left, right, equal(left.groups, right.groups))
        found[of_left] = True
        if self._join.kind == "left":
            alone = np.flatnonzero(~found)
            of_left, of_right = np.concatenate([of_left, alone]), np.concatenate([of_right, np.full(len(alone), -1)])
        self._missing.inc(batch.size - int(np.count_nonzero(found)))
        shown, columns = shown_rows(self._definition.view, table_of(left, right, of_left, of_right))
        assert self._type is not None
        return Outputs(derived(batch, of_left if shown is None else of_left[shown], columns, self._type))

    def _left(self, table: pa.RecordBatch, key_of: Longs) -> Rows:
        columns = {field.name: table.column(field.name) for field in self._definition.kept(LEFT)}
        columns |= {name: table.column(at) for name, at in self._definition.in_key(LEFT).items()}
        return _rows(columns, np.arange(table.num_rows), key_of)

    def _right(self, found: Sequence[Any]) -> Rows:
        """The rows found. ``found``: by the index of each key."""
        lists = [[] if kept is None else self._guard.give(kept) for kept in found]
        rows = self._row.to_arrow([row for each in lists for row in each])
        owners = np.repeat(np.arange(len(lists)), np.fromiter(map(len, lists), np.int64, len(lists)))
        pairs = zip(self._schema, rows.flatten(), strict=True)
        columns = {field.name: cast(column, field.type, failing_null=False) for field, column in pairs}  # digits of seconds
        return _rows(columns, owners, owners)


def _rows(columns: dict[str, pa.Array], owners: Longs, groups: Longs) -> Rows:
    table = pa.RecordBatch.from_pydict({**columns, PRESENT: pa.repeat(pa.scalar(True), len(owners))})
    return Rows(table, owners, groups, np.ones(len(owners), np.int64))

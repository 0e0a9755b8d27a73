"""Changes of tables as columns: the rows, and the weight of each, +1 for a row that is added and -1 for one that is removed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.errors import JobFailed
from forkpoint.relational.types import Schema
from forkpoint.runtime.columnar.codes import codes_of
from forkpoint.runtime.columnar.segments import run_starts
from forkpoint.runtime.exchange.batch import stable_order
from forkpoint.types import RowKind, TypeInformation, Types
from forkpoint.types.information import Field
from forkpoint.types.kinds.records import RecordType

WEIGHT = "$weight"
"""The column of weights in a stream of changes; a stream of added rows only has none."""

Longs = npt.NDArray[np.int64]
Owned = tuple[pa.RecordBatch, Longs, Longs]
"""Rows, the weight of each, and its owner: the index of the key that it belongs to."""


def row_type(schema: Schema, *, updating: bool = False) -> RecordType:
    """The type of a stream's elements, with weights if rows are also removed.

    Then all fields may be NULL: rows of an earlier version of a query, which a changed query removes, lack its new columns.
    """
    types = [field.type.with_null() if updating else field.type for field in schema]
    fields = [Field(field.name, of.stream_type) for field, of in zip(schema, types, strict=True)]
    if updating:
        fields.append(Field(WEIGHT, Types.LONG()))
    return RecordType("row", "Row", tuple(fields))


def weights_of(table: pa.RecordBatch) -> Longs | None:
    """The weight of each row; None if all rows are added."""
    at = table.schema.get_field_index(WEIGHT)
    return None if at < 0 else table.column(at).to_numpy(zero_copy_only=False)


def without_weights(table: pa.RecordBatch) -> pa.RecordBatch:
    return table if WEIGHT not in table.schema.names else table.drop_columns([WEIGHT])


def with_weights(table: pa.RecordBatch, weights: Longs | None) -> pa.RecordBatch:
    return table if weights is None else table.append_column(WEIGHT, pa.array(weights, pa.int64()))


def added_by_key(table: pa.RecordBatch, key: Sequence[str]) -> Longs:
    """The indices of one row of each key, in order: one that is added, if there is one. A key's row is at one place at most, so
    the removals of others are of rows that it had before."""
    keys, weights = _keyed(table, key)
    return np.sort(_last_of_each(keys, weights > 0))


def last_by_key(table: pa.RecordBatch, key: Sequence[str]) -> Longs:
    """The indices of the rows that determine the final row of each key, in order: its last row that is added on balance, else one
    that is removed. If its changes cancel out, its last one: a row that stays is written again, as its columns may be others."""
    keys, weights = _keyed(table, key)
    _, at, sizes = np.unique(keys, return_inverse=True, return_counts=True)
    single, several = np.flatnonzero(sizes[at] == 1), np.flatnonzero(sizes[at] > 1)
    if not len(several):
        return single
    rows = codes_of([column.take(pa.array(several)) for column in without_weights(table).columns])
    _, rows = np.unique(rows, return_inverse=True)
    balance, given = np.bincount(rows, weights[several])[rows], weights[several]
    rank = np.select([(balance > 0) & (given > 0), (balance < 0) & (given < 0), balance == 0], [3, 2, 1])
    return np.sort(np.concatenate([single, several[_last_of_each(keys[several], rank)]]))


def left_by_key(table: pa.RecordBatch, key: Sequence[str]) -> Longs:
    """The indices of the changes that are left on balance, key by key, and of each key the removals first. A row whose changes
    cancel out is removed and added if its last change adds it: it stays, but columns of it may be others."""
    keys, weights = _keyed(table, key)
    _, rows = np.unique(codes_of(without_weights(table).columns), return_inverse=True)
    balance, last = np.bincount(rows, weights).astype(np.int64), np.zeros(rows.max(initial=-1) + 1, np.int64)
    last[rows] = weights
    wanted = np.stack([-balance, balance], 1).clip(0) + ((balance == 0) & (last > 0))[:, np.newaxis]
    order, sides = stable_order(rows * 2 + (weights > 0))
    following = np.cumsum(np.bincount(sides))[sides] - np.arange(len(sides))
    kept = np.sort(order[following <= wanted.ravel()[sides]])
    _, first, of = np.unique(keys[kept], return_index=True, return_inverse=True)
    return kept[np.lexsort((weights[kept], first[of]))]


def _keyed(table: pa.RecordBatch, key: Sequence[str]) -> tuple[Longs, Longs]:
    """A number for the key of each row, and its weight."""
    weights = weights_of(table)
    assert weights is not None
    return codes_of([table.column(name) for name in key]) if key else np.zeros(table.num_rows, np.int64), weights


def _last_of_each(keys: Longs, rank: npt.NDArray[Any]) -> Longs:
    """The index of the last of the rows of each key with the highest rank."""
    order = np.lexsort((np.arange(len(keys)), rank, keys))[::-1]
    return order[np.unique(keys[order], return_index=True)[1]]


def consolidated(table: pa.RecordBatch, weights: Longs, owners: Longs) -> Owned:
    """Distinct rows with the sums of their weights, without those that add up to 0, in the order of their first occurrence.
    The owner stays that of its first occurrence."""
    if not table.num_rows:
        return table, weights, owners
    order, codes = stable_order(codes_of(table.columns) if table.num_columns else np.zeros(table.num_rows, np.int64))
    starts = np.flatnonzero(run_starts(codes))
    sums = np.add.reduceat(weights[order], starts)
    by_first = np.argsort(order[starts])
    by_first = by_first[sums[by_first] != 0]
    rows = order[starts][by_first]
    return table.take(pa.array(rows)), sums[by_first], owners[rows]


def difference(old: Owned, new: Owned, schema: pa.Schema) -> Owned:
    """What a new result has and an old one has not, with their columns by the names of the schema. Rows with other columns than
    before are emitted again, whatever their values."""
    changes = (
        pa.concat_batches([with_schema(part[0], schema) for part in (old, new)]),
        np.concatenate([-old[1], new[1]]),
        np.concatenate([old[2], new[2]]),
    )
    return consolidated(*changes) if old[0].schema == new[0].schema else changes


def elements(table: pa.RecordBatch, weights: Longs, of: TypeInformation) -> tuple[pa.RecordBatch, Longs]:
    """An element of the stream for each time that a row is there, and the row of each. ``of``: their type; if it has no weights,
    no row may be removed."""
    rows = np.repeat(np.arange(len(weights)), np.abs(weights))
    found = with_weights(table.take(pa.array(rows)), np.sign(weights[rows]) if WEIGHT in of.column_names else None)
    return pa.RecordBatch.from_arrays(found.columns, schema=of.arrow_schema), rows


def with_schema(columns: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Columns by the names of the schema; null where an older result has no such column."""
    found = []
    for field in schema:
        at = columns.schema.get_field_index(field.name)
        same = at >= 0 and columns.column(at).type == field.type
        found.append(columns.column(at) if same else pa.nulls(columns.num_rows, field.type))
    return pa.RecordBatch.from_arrays(found, schema=pa.schema([field.with_nullable(True) for field in schema]))


def changed_rows(kinds: Longs, before: pa.StructArray, after: pa.StructArray) -> tuple[pa.RecordBatch, Longs]:
    """The rows before and after changes with these kinds, with weights, and the index of each row's change. An update without the
    row before it only adds one."""
    removes, adds = kinds != RowKind.INSERT.value, kinds != RowKind.DELETE.value
    removes = removes & before.is_valid().to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(np.stack([removes, adds], 1))  # of each change, the row before it and the one after it
    found = pa.concat_arrays([before, after]).take(pa.array(rows // 2 + rows % 2 * len(kinds)))
    columns = pa.RecordBatch.from_arrays(found.flatten(), names=[field.name for field in found.type])
    return with_weights(columns, rows % 2 * 2 - 1), rows // 2


def structs(rows: pa.RecordBatch, of: pa.StructType, present: npt.NDArray[np.bool_]) -> pa.StructArray:
    """Rows as values of one column, NULL where they are not present."""
    columns = [column.cast(field.type) for column, field in zip(rows.columns, of, strict=True)]
    return pa.StructArray.from_arrays(columns, fields=list(of), mask=pa.array(~present))


def never_added(uid: str, row: str, tables: str = "") -> JobFailed:
    """The error for the removal of a row that is not there."""
    of = f" of {tables}" if tables else ""
    return JobFailed(
        f"operator {uid!r}: {row}{of} is removed, but was never added; read tables with changes from their beginning. If the "
        "same change may come twice, give the table a PRIMARY KEY, and SET 'table.exec.source.cdc-events-duplicate' = 'true'"
    )


def rows_only(count: int) -> pa.RecordBatch:
    """Rows without columns that anything reads."""
    return pa.RecordBatch.from_pydict({"": pa.nulls(count)})

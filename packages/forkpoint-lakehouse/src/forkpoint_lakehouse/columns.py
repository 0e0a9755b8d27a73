"""Converts elements to a table's rows: columns, deletions, and checks against the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.contract.sink import SinkBatch
from forkpoint.errors import ConfigError, TypeNotSupported
from forkpoint.types import RowKind, TypeInformation, type_of
from forkpoint.types.information import cast_exactly
from forkpoint.types.kinds.records import RecordType
from forkpoint.types.wire import shown

DELETED = "_forkpoint_deleted"
"""The column of staged changes that marks deletions."""

_CHANGE = ("kind", "before", "after")


def type_of_rows(type: TypeInformation[Any] | None, table: str) -> RecordType:
    """The stream's type. Raises ConfigError if its elements cannot be rows."""
    if type is None:
        raise ConfigError(f"{table}: the type of the elements is unknown; declare it (output_type=, or a return annotation)")
    if not isinstance(type, RecordType) or not type.members:
        raise ConfigError(
            f"{table}: elements of {type!r} are not rows; map them to records: a NamedTuple, dataclass, Row or msgspec.Struct"
        )
    for field in type.members:
        if opaque := {"any", "union"} & field.type.kinds():
            raise ConfigError(
                f"{table}: column {field.name!r} is of {field.type!r}, which no column can hold ({', '.join(sorted(opaque))}); "
                "give the field a specific type, or map it to a str"
            )
    return type


def to_batch(batch: SinkBatch[Any], type: RecordType) -> pa.RecordBatch:
    """Elements as a batch with the columns of their type."""
    schema, columns = type.arrow_schema, batch.table
    if columns is not None and columns.schema.names == schema.names:
        return pa.RecordBatch.from_arrays(
            [c if c.type == t else c.cast(t) for c, t in zip(columns.columns, schema.types, strict=True)], schema=schema
        )
    values = batch.values
    try:
        return pa.RecordBatch.from_arrays(type.to_columns(values), schema=schema)
    except (TypeError, ValueError, AttributeError, IndexError, pa.ArrowException) as error:
        raise TypeNotSupported(f"an element such as {shown(values[0])} does not fit {type!r}: {error}") from error


# -- changes


def is_change(type: RecordType) -> bool:
    """Whether elements are row changes, of a type made by `change_type`."""
    return tuple(type.names[:3]) == _CHANGE and type.members[0].type == type_of(RowKind)


def row_schema(type: RecordType) -> pa.Schema:
    """The columns of the elements, or of the changed rows if the elements are changes."""
    if not is_change(type):
        return type.arrow_schema
    row = type.members[2].type.arrow_type
    if not pa.types.is_struct(row):
        raise ConfigError(f"changes of {type.members[2].type!r} are not row changes; declare a record type for the rows")
    return pa.schema([pa.field(f.name, f.type) for f in row])


def changes(batch: pa.RecordBatch, type: RecordType) -> pa.Table:
    """Rows with the column ``DELETED``, in order. An update with a known former row deletes that row first, because its key may
    differ."""
    if not is_change(type):
        return pa.table([*batch.columns, pa.repeat(False, len(batch))], names=[*batch.schema.names, DELETED])
    kind = type.members[0].type
    deleted = pc.is_in(batch.column("kind"), kind.to_arrow([RowKind.DELETE, RowKind.UPDATE_BEFORE]))
    before, after = batch.column("before"), batch.column("after")
    count = len(batch)
    rows = pa.concat_arrays([before, after])
    flags = pa.concat_arrays([pa.repeat(True, count), deleted])
    # A change's former row precedes its new row; a deletion has no new row.
    order = np.arange(2 * count).reshape(2, count).T.ravel()
    ordered = pa.table([*rows.flatten(), flags, rows.is_valid()], names=[*row_schema(type).names, DELETED, "_there"]).take(order)
    there = ordered.column("_there")
    return ordered.filter(there).drop_columns(["_there"])


def last_of_each_key(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """The last row per key, in order."""
    numbered = pa.table([*(rows.column(k) for k in key), pa.array(np.arange(len(rows)))], names=[*key, "_at"])
    last = numbered.group_by(list(key)).aggregate([("_at", "max")]).column("_at_max")
    return rows.take(pa.array(np.sort(last.to_numpy())))


def check_key_columns(rows: pa.Schema, key: Sequence[str], table: str) -> None:
    """Raise ConfigError if the key cannot identify rows of these columns."""
    for name in key:
        if name not in rows.names:
            raise ConfigError(
                f"{table}: the elements have no key column {name!r}; their columns are {', '.join(rows.names)}: add it to them, "
                "or correct key="
            )
        if pa.types.is_nested(rows.field(name).type):
            raise ConfigError(
                f"{table}: key column {name!r} is {rows.field(name).type}, which cannot identify rows; choose another "
                "key, or map it to a str or int"
            )


def check_key(rows: pa.Table, key: Sequence[str], table: str) -> None:
    """Raise ConfigError if a row lacks a key value."""
    for name in key:
        if rows.column(name).null_count:
            raise ConfigError(f"{table}: an element has no value in the key column {name!r}; filter such elements out")


# -- fitting a table


def fit(rows: pa.Table, schema: pa.Schema, table: str) -> pa.Table:
    """Rows with the table's types and column order, without columns that the rows lack. Raises ConfigError."""
    columns, fields = [], []
    for field in schema:
        at = rows.schema.get_field_index(field.name)
        if at < 0:
            continue
        column = rows.column(at)
        if column.type != field.type:
            try:
                column = cast_exactly(column, field.type)
            except pa.ArrowException as error:
                raise ConfigError(
                    f"{table}: column {field.name!r} is {field.type}, and the elements' {column.type} does not fit: {error}. "
                    "Change the table's column, or map the elements"
                ) from error
        if column.null_count and not field.nullable:
            raise ConfigError(
                f"{table}: column {field.name!r} is required, and an element has None there; filter such elements out, or make "
                "the column nullable"
            )
        columns.append(column)
        fields.append(field)
    return pa.table(columns, schema=pa.schema(fields))


def complete(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with all columns of a schema, in its order and types. Missing columns are None."""
    columns = [
        rows.column(field.name).cast(field.type) if field.name in rows.column_names else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.table(columns, names=schema.names)


def without(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """The rows whose key is not among ``keys``, in order. ``keys`` has the key columns."""
    key = keys.column_names
    numbered = rows.select(key).cast(keys.schema).append_column("_at", pa.array(np.arange(len(rows))))
    left = numbered.join(keys, key, join_type="left anti").column("_at")
    return rows if len(left) == len(rows) else rows.take(pa.array(np.sort(left.to_numpy())))


def check_case(rows: pa.Schema, present: pa.Schema, table: str) -> None:
    """Raise ConfigError for fields, also of nested records, that differ from other fields or the table's columns only in case."""
    names = {field.name.lower(): field for field in present}
    for field in rows:
        other = names.setdefault(field.name.lower(), field)
        if field.name != other.name:
            whose = f"its column {other.name!r}" if other.name in present.names else f"the field {other.name!r}"
            raise ConfigError(
                f"{table}: the elements' field {field.name!r} differs from {whose} only in case, and the table can have only one "
                "of them; give the field the column's name, or a different name"
            )
        inner, inside = _record_in(field.type), None if other is field else _record_in(other.type)
        if inner is not None:
            check_case(inner, pa.schema([]) if inside is None else inside, f"{table}, column {field.name!r}")


def _record_in(of: pa.DataType) -> pa.Schema | None:
    while pa.types.is_list(of) or pa.types.is_large_list(of) or pa.types.is_map(of):
        of = of.item_type if pa.types.is_map(of) else of.value_type
    return pa.schema(list(of)) if pa.types.is_struct(of) else None


def new_columns(rows: pa.Schema, present: pa.Schema, table: str, *, evolution: bool) -> list[pa.Field]:
    """The columns to add to a table. Raises ConfigError if there are any but no ``evolution``, if the elements lack a required
    column, or if a type cannot be cast to the table's."""
    for field in present:
        if field.name not in rows.names and not field.nullable:
            raise ConfigError(
                f"{table}: its column {field.name!r} is required, and the elements have no such field; add it to them, or make "
                "the column nullable"
            )
    added = [field for field in rows if field.name not in present.names]
    if added and not evolution:
        names = ", ".join(repr(field.name) for field in added)
        raise ConfigError(
            f"{table} has no column {names}; add it to the table, drop the field from the elements, or set schema_evolution=True"
        )
    for field in rows:
        if field.name in present.names:
            _check_cast(field, present.field(field.name), table)
    return [field.with_nullable(True) for field in added]


def _check_cast(field: pa.Field, to: pa.Field, table: str) -> None:
    if field.type == to.type:
        return
    try:
        cast_exactly(pa.nulls(0, field.type), to.type)
    except pa.ArrowException:
        raise ConfigError(
            f"{table}: column {field.name!r} is {to.type}, which cannot hold the elements' {field.type}; change the table's "
            "column, or map the elements"
        ) from None

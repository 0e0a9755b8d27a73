"""Streams as tables: their columns, in SQL's types."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from forkpoint.api.streams.streams import DataStream
from forkpoint.connectors.collection import CollectionSource
from forkpoint.errors import ConfigError
from forkpoint.functions import ProcessFunction, WatermarkStrategy
from forkpoint.graph.specs import SourceSpec
from forkpoint.graph.transformations import Edge, Forward, KeyBy, Transformation
from forkpoint.relational.changes import row_type
from forkpoint.relational.expressions import Call, Column, Expression, Item
from forkpoint.relational.functions.user import NO_FUNCTIONS, Functions
from forkpoint.relational.operators.select import SelectSpec
from forkpoint.relational.plan import ONE_ROW
from forkpoint.relational.types import BOOLEAN, STRING, Field, SqlType, decimal_type, sql_type
from forkpoint.table.catalog import StreamTable
from forkpoint.table.schema import Metadata, Schema, reading_of, with_digits
from forkpoint.types import Row, TypeInformation, Types
from forkpoint.types.kinds.containers import optional, present

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ANY_DECIMAL = decimal_type((38, 18))
"""What Flink makes of decimals without fixed digits."""


def stream_table(
    name: str, stream: DataStream[Any], schema: Schema | None = None, functions: Functions = NO_FUNCTIONS
) -> StreamTable:
    """A stream as a table, with the fields of its type as columns; of single values, ``f0``. Raises ConfigError."""
    of = stream.get_type()
    if of is not None and not of.fields and sql_type(of) is not None:
        stream = stream.map(_boxed, output_type=Types.ROW_NAMED(["f0"], [of]))
    for column in () if schema is None else schema._columns:
        if isinstance(column, Metadata) and (column.key or column.name) == "rowtime":
            stream = _with_timestamps(name, stream, column.name)
    edges = tuple(replace(e, partitioning=Forward()) if isinstance(e.partitioning, KeyBy) else e for e in stream.edges)
    fields, edges = table_of(name, stream.get_type(), edges)
    fields = with_digits(fields, schema)
    return StreamTable(fields, edges, None if schema is None else reading_of(schema, fields, functions))


def _with_timestamps(name: str, stream: DataStream[Any], column: str) -> DataStream[Any]:
    """A stream with its elements' timestamps as a field more."""
    of = stream.get_type()
    if of is None or not of.fields:
        raise ConfigError(f"{name!r}: a stream needs a type with fields to have metadata, not {of}; map() it with output_type")
    types = {**{field.name: field.type for field in of.fields}, column: optional(Types.INSTANT())}
    return stream.process(_Timestamps(), output_type=Types.ROW_NAMED(list(types), list(types.values())))


class _Timestamps(ProcessFunction[Any, Any]):
    def process_element(self, value: Any, ctx: ProcessFunction.Context, /) -> Any:
        yield (*value, time_of(ctx))


def time_of(ctx: ProcessFunction.Context) -> datetime | None:
    """The element's timestamp."""
    ms = ctx.timestamp()
    return None if ms is None else _EPOCH + timedelta(milliseconds=ms)


def _boxed(value: Any) -> tuple[Any]:
    return (value,)


def table_of(
    name: str, of: TypeInformation | None, edges: tuple[Edge, ...], *, updating: bool = False
) -> tuple[tuple[Field, ...], tuple[Edge, ...]]:
    """The columns of a stream with elements of this type, and the edges that have them. Raises ConfigError. ``updating``: they
    also have weights."""
    items = columns_of(name, of)
    fields = tuple(Field(item.name, item.of.type) for item in items)
    if not any(isinstance(item.of, Call) for item in items):
        return fields, edges
    type = row_type(fields, updating=updating)
    return fields, (Edge(Transformation(SelectSpec(None, tuple(items)), "select", edges, type)),)


def columns_of(name: str, of: TypeInformation | None) -> list[Item]:
    """The fields of elements of a type, as columns in SQL's types. Raises ConfigError."""
    if of is None or not of.fields:
        raise ConfigError(f"{name!r}: a stream needs a type with fields to be a table, not {of}; map() it with output_type")
    items = []
    for each in of.fields:
        column = _column(each.name, each.type)
        if column is None:
            raise ConfigError(f"{name!r}: field {each.name!r} has type {each.type}, for which SQL has no type yet; map() it")
        items.append(Item(each.name, column))
    return items


def one_row() -> tuple[Edge, ...]:
    """What queries without FROM read."""
    of = row_type((Field("row", BOOLEAN.with_null(False)),))
    spec = SourceSpec(CollectionSource([Row(True)], of), WatermarkStrategy.no_watermarks())
    return (Edge(Transformation(spec, ONE_ROW.table, (), of, uid=ONE_ROW.table)),)


def _column(name: str, of: TypeInformation) -> Expression | None:
    """A field as a column; None if SQL has no type for it."""
    if present(of).kind == "big_dec":  # columns have its text
        return Call("CAST", (Column(name, STRING.with_null(of.nullable)),), _ANY_DECIMAL.with_null(of.nullable))
    found: SqlType | None = sql_type(of)
    if found is None:
        return None
    column = Column(name, found)
    # Parts that are never None have another Arrow type.
    return Call("CAST", (column,), found) if found.is_nested and found.arrow_type != of.arrow_type else column

"""Values of a program as the rows of a table: their types, and the rows themselves."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import pyarrow as pa

from forkpoint.errors import ConfigError, TypeNotSupported, WrongType
from forkpoint.relational.changes import row_type
from forkpoint.relational.types import Field, Schema, SqlType
from forkpoint.table.api.expression import Expression
from forkpoint.table.api.nodes import Node, Sql, Value, children
from forkpoint.table.data_types import DataType, DataTypes, RowField, fields_of
from forkpoint.types import Row

RowSchema = DataType | Sequence[str] | Sequence[DataType] | None

_DIGITS = Context(prec=76, rounding=ROUND_HALF_UP)
_TYPES: dict[type, DataType] = {
    bool: DataTypes.BOOLEAN(),
    int: DataTypes.BIGINT(),
    float: DataTypes.DOUBLE(),
    str: DataTypes.STRING(),
    bytes: DataTypes.BYTES(),
    bytearray: DataTypes.BYTES(),
    Decimal: DataTypes.DECIMAL(38, 18),
    date: DataTypes.DATE(),
    datetime: DataTypes.TIMESTAMP_LTZ(),
    time: DataTypes.TIME(),
}


_OF_ARROW = {
    SqlType(name).arrow_type: DataType(name)
    for name in ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "BYTES", "DATE", "TIME")
}


def rows_of(elements: Iterable[Any], schema: RowSchema) -> tuple[list[tuple[Any, ...]], DataType]:
    """The rows of elements, and their type. ``schema``: the type, or the names or types of the columns. Raises ConfigError."""
    found = [_evaluated(each._node) if isinstance(each, Expression) else each for each in elements]
    if isinstance(schema, DataType) and schema.name != "ROW":
        return rows_of([(each,) for each in found], DataTypes.ROW([DataTypes.FIELD("value", schema)]))
    if isinstance(schema, DataType):
        types = schema.field_types()
        return [tuple(map(_value, _row(each, schema.names), types)) for each in found], schema
    given = list(schema or ())
    names = [each for each in given if isinstance(each, str)]
    if given and not names:
        types = [each for each in given if isinstance(each, DataType)]
        return rows_of(found, DataTypes.ROW([RowField(f"f{at}", of) for at, of in enumerate(types)]))
    if not found:
        raise ConfigError("an empty list has no types; give a schema: DataTypes.ROW([DataTypes.FIELD('a', DataTypes.INT())])")
    names = [*names, *_names_of(found[0])[len(names) :]]
    rows = [_row(each, names) for each in found]
    columns = zip(*rows, strict=True)
    fields = [
        RowField(name, _common([_inferred(value) for value in column], name)) for name, column in zip(names, columns, strict=True)
    ]
    return rows_of(rows, DataTypes.ROW(fields))


def _value(value: Any, of: DataType) -> Any:
    """A value as its type has it: PyFlink's programs also give bytearrays, arrays, and times of another kind."""
    match value:
        case bytearray():
            return bytes(value)
        case array():
            return value.tolist()
        case datetime() if value.tzinfo is None and of.name == "TIMESTAMP_LTZ":
            return value.replace(tzinfo=UTC)
        case datetime() if value.tzinfo is not None and of.name == "TIMESTAMP":
            return value.astimezone(UTC).replace(tzinfo=None)
        case Decimal() if of.name == "DECIMAL" and value.is_finite():
            return value.quantize(Decimal(1).scaleb(-of.numbers[1]), context=_DIGITS)
        case list() if of.name == "ARRAY":
            return [_value(each, of.parts[0].data_type) for each in value]
        case list() | tuple() | Row() if of.name == "ROW":
            return Row.of(tuple(of.names), [_value(*each) for each in zip(value, of.field_types(), strict=True)])
    return value


def check_types(rows: list[tuple[Any, ...]], fields: Schema) -> None:
    """Raise WrongType if a value is not of its column's type."""
    try:
        row_type(fields).to_columns(rows)
    except TypeNotSupported as error:
        raise WrongType(f"from_elements(): {error}") from error


def frame_rows(frame: Any, schema: RowSchema) -> tuple[list[Any], DataType]:
    """The rows of a pandas DataFrame, and their type. Raises ConfigError."""
    given = [] if isinstance(schema, DataType) else list(schema or ())
    names = schema.names if isinstance(schema, DataType) else [each for each in given if isinstance(each, str)]
    types = schema.field_types() if isinstance(schema, DataType) else [each for each in given if isinstance(each, DataType)]
    names = names or list(map(str, frame.columns))
    count = len(frame.columns)
    if len(names) != count or len(types) not in (0, count):
        raise ConfigError(f"the frame has {count} columns, the schema {len(names)} names and {len(types)} types")
    if not types:
        of_arrow = pa.Schema.from_pandas(frame, preserve_index=False).types
        types = [_of_arrow(of, name) for of, name in zip(of_arrow, names, strict=True)]
    of = DataTypes.ROW([RowField(*each) for each in zip(names, types, strict=True)])
    fields = fields_of(of)
    return row_type(fields).from_columns([_column(frame.iloc[:, at], field) for at, field in enumerate(fields)]), of


def _column(series: Any, field: Field) -> pa.Array:
    """A column of a frame. Raises ConfigError if it has values of another type."""
    of = field.type.arrow_type
    try:
        whole = pa.types.is_decimal(of) and series.dtype.kind in "iu"  # which Arrow takes for bytes
        found = pa.Array.from_pandas(series).cast(of) if whole else pa.Array.from_pandas(series, type=of)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ConfigError(f"column {field.name!r} of the frame does not fit the schema: {error}") from None
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _of_arrow(of: pa.DataType, name: str) -> DataType:
    if pa.types.is_list(of):
        return DataTypes.ARRAY(_of_arrow(of.value_type, name))
    if pa.types.is_decimal(of):
        return DataTypes.DECIMAL(of.precision, of.scale)
    if pa.types.is_timestamp(of):
        return DataTypes.TIMESTAMP() if of.tz is None else DataTypes.TIMESTAMP_LTZ()
    if pa.types.is_string(of) or pa.types.is_large_string(of):
        return DataTypes.STRING()
    found = _OF_ARROW.get(of)
    if found is None:
        raise ConfigError(f"column {name!r} of the frame is {of}; give its type in the schema")
    return found


def _names_of(element: Any) -> list[str]:
    if isinstance(element, dict):
        return sorted(element)
    named = element.field_names if isinstance(element, Row) else getattr(element, "_fields", None)
    if named:
        return list(named)
    if isinstance(element, Row | tuple | list):
        return [f"_{at}" for at in range(1, len(element) + 1)]
    if hasattr(element, "__dict__"):
        return sorted(vars(element))
    return ["_1"]


def _row(element: Any, names: Sequence[str]) -> tuple[Any, ...]:
    if isinstance(element, dict):
        return tuple(element.get(name) for name in names)
    if isinstance(element, Row | tuple | list):
        values = tuple(element)
    elif hasattr(element, "__dict__"):
        values = tuple(getattr(element, name) for name in names)
    else:
        values = (element,)
    if len(values) != len(names):
        raise ConfigError(f"{element!r} has {len(values)} values, but there are {len(names)} columns: {', '.join(names)}")
    return values


def _inferred(value: Any) -> DataType:
    if value is None:
        return DataTypes.NULL()
    found = _TYPES.get(type(value))
    if found is not None:
        return found
    match value:
        case dict():
            key, of = next(((key, of) for key, of in value.items() if of is not None), (None, None))
            return DataTypes.MAP(_inferred(key), _inferred(of))
        case list():
            return DataTypes.ARRAY(_common([_inferred(each) for each in value], "element"))
        case array():
            return DataTypes.ARRAY(DataTypes.DOUBLE() if value.typecode in "fd" else DataTypes.BIGINT())
        case Row() | tuple():
            names = _names_of(value)
            return DataTypes.ROW([RowField(name, _inferred(each)) for name, each in zip(names, value, strict=True)])
    raise ConfigError(f"a column cannot have {type(value).__name__} objects; give a schema with another type")


def _common(types: list[DataType], name: str) -> DataType:
    found = {of.label: of for of in types if of.name != "NULL"}
    if len(found) != 1:
        has = f"values of different types ({', '.join(found)})" if found else "no value but None"
        raise ConfigError(f"column {name!r} has {has}; give its type in the schema")
    return next(iter(found.values()))


def _evaluated(node: Node) -> Any:
    """The values of ``row(…)`` with literals."""
    match node:
        case Sql():
            return tuple(_evaluated(each) for each in children(node))
        case Value(value):
            return value
    raise ConfigError("from_elements() takes values, not columns")

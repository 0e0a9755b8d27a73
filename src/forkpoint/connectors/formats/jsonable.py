"""Encodes elements as JSON, for the lines of file sinks and for messages."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from itertools import starmap
from operator import attrgetter, itemgetter
from typing import Any, Literal
from uuid import UUID

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.errors import TypeNotSupported
from forkpoint.types import Row, TypeInformation
from forkpoint.types.kinds.records import RecordType
from forkpoint.types.wire import shown, type_name

# The kinds of values that `to_jsonable` leaves unchanged for msgspec.
_SCALARS = {
    "optional",
    "boolean",
    "byte",
    "short",
    "int",
    "long",
    "big_int",
    "float",
    "double",
    "big_dec",
    "decimal",
    "string",
    "char",
    "date",
    "time",
    "timestamp",
    "instant",
    "duration",
    "uuid",
}
_INFINITY = float("inf")
TimestampFormat = Literal["ISO-8601", "SQL"]
"""The names of Flink's option ``timestamp-format.standard``: ``2020-12-30T12:13:14.5``, ``2020-12-30 12:13:14.5``; in UTC, both
end with Z."""
_TIMESTAMPS = frozenset({"timestamp", "instant"})
_FIELDS, _JSON_NAMES = attrgetter("__struct_fields__"), attrgetter("__struct_encode_fields__")
_KEYS = frozenset({str, int, float, Decimal, date, time, datetime, timedelta, UUID, bytes})  # msgspec makes text of them


def _hook(value: Any) -> Any:
    # msgspec does not accept np.float64 and np.str_, although they are a float and a str.
    jsonable = to_jsonable(value.item() if isinstance(value, np.generic) else value)
    if jsonable is value:  # msgspec would call this hook forever
        raise TypeNotSupported(f"{shown(value)} ({type_name(type(value))}) cannot be written as JSON; map it to a type that can")
    return jsonable


_ENCODERS = {number: msgspec.json.Encoder(enc_hook=_hook, decimal_format=number) for number in ("string", "number")}


def _encoder_of(type: TypeInformation | None) -> msgspec.json.Encoder:
    """Decimals are numbers if their type has fixed digits, as in Flink; others are text, which no reader rounds."""
    return _ENCODERS["number" if type is not None and "decimal" in type.kinds() else "string"]


def encode_lines(values: list[Any], type: TypeInformation | None, timestamps: TimestampFormat = "ISO-8601") -> bytes:
    """The elements as JSON lines, each with a final newline."""
    if timestamps == "SQL" and (type is None or not _TIMESTAMPS.isdisjoint(type.kinds())):
        return _encoder_of(type).encode_lines(list(map(_sql_jsonable, values)))
    names = _flat_fields(type)
    flat = names is not None and values and isinstance(values[0], tuple) and hasattr(values[0], "_fields")
    if flat and type is not None and names is not None and _all_finite(values, type):
        try:
            object_of = _object_class(tuple(names))
        except ValueError:  # a name needs escaping
            return _encoder_of(type).encode_lines([dict(zip(names, v, strict=True)) for v in values])
        return _encoder_of(type).encode_lines(list(starmap(object_of, values)))
    return _encoder_of(type).encode_lines(list(map(to_jsonable, values)))


def encode_columns(table: pa.RecordBatch, type: TypeInformation, timestamps: TimestampFormat = "ISO-8601") -> bytes | None:
    """The result of `encode_lines` for the elements in these columns of the type, without creating them; None for nested values,
    or other values that `to_jsonable` would change."""
    schema = type.arrow_schema
    fields = type.fields or ()
    plain = isinstance(type, RecordType) and type.flavor != "tuple" and all(f.type.kinds() <= _SCALARS for f in fields)
    if not (fields and plain) or (table.schema.names, table.schema.types) != (schema.names, schema.types):
        return None
    if any(pa.types.is_floating(column.type) and pc.any(pc.is_inf(column)).as_py() for column in table.columns):
        return None
    values: list[Iterable[Any]] = [field.type.from_arrow(column) for field, column in zip(fields, table.columns, strict=True)]
    if timestamps == "SQL":
        of_times = [not _TIMESTAMPS.isdisjoint(field.type.kinds()) for field in fields]
        values = [map(_sql_jsonable, each) if is_time else each for each, is_time in zip(values, of_times, strict=True)]
    return _encoder_of(type).encode_lines(list(map(_object_class(tuple(field.encoded_name for field in fields)), *values)))


@lru_cache(maxsize=256)
def _object_class(names: tuple[str, ...]) -> type[msgspec.Struct]:
    """A class whose objects are encoded with these names. The garbage collector, which would take most of the time, ignores
    them."""
    fields = {f"f{i}": name for i, name in enumerate(names)}
    return msgspec.defstruct("Object", [(field, Any) for field in fields], rename=fields, gc=False)


def to_plain(value: Any) -> Any:
    """Records at any depth as dicts by field name; other values unchanged."""
    return _by_name(value, to_plain, _FIELDS)


def to_jsonable(value: Any) -> Any:
    """Like `to_plain`, but for msgspec's encoder, and with the JSON names of the fields of Structs.

    An infinite number, for which msgspec would write null, becomes Jackson's text, which Flink and Spark also write.
    """
    return _jsonable(value, to_jsonable)


def _sql_jsonable(value: Any) -> Any:
    """Like `to_jsonable`, with timestamps as SQL writes them."""
    if isinstance(value, datetime):
        zone, text = "" if value.tzinfo is None else "Z", value.replace(tzinfo=None).isoformat(" ")
        return (text.rstrip("0") if "." in text else text) + zone
    return _jsonable(value, _sql_jsonable)


def _jsonable(value: Any, inner: Callable[[Any], Any]) -> Any:
    if isinstance(value, float) and (value == _INFINITY or value == -_INFINITY):
        return "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict) and not _KEYS.issuperset(map(type, value)):
        return _with_any_keys(value, inner)
    return _by_name(value, inner, _JSON_NAMES)


def _with_any_keys(map: dict[Any, Any], inner: Callable[[Any], Any]) -> Any:
    """A map with keys that msgspec does not make text: bools and enums become text; with others, the map becomes an array of
    pairs, which `RecordConverter` reads, too."""
    if all(isinstance(key, bool | Enum) or type(key) in _KEYS for key in map):
        names = {True: "true", False: "false"}
        return {names[k] if isinstance(k, bool) else inner(k): inner(v) for k, v in map.items()}
    return [[inner(key), inner(value)] for key, value in map.items()]


def _by_name(value: Any, inner: Callable[[Any], Any], names_of: Callable[[Any], tuple[str, ...]]) -> Any:
    if isinstance(value, str | int | float | bytes | None):
        return value
    if isinstance(value, dict):
        return {k: inner(v) for k, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {k: inner(v) for k, v in zip(value._fields, value, strict=True)}
    if isinstance(value, list | tuple | set | frozenset | deque):
        return list(map(inner, value))
    if dataclasses.is_dataclass(value):
        return {f.name: inner(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, msgspec.Struct):
        pairs = zip(names_of(value), value.__struct_fields__, strict=True)
        return {name: inner(getattr(value, field)) for name, field in pairs}
    if isinstance(value, Row):
        return inner(list(value) if value.field_names is None else value.as_dict())
    if isinstance(value, Enum) and not isinstance(value.value, str | int):
        return value.name  # like the enum's type
    if isinstance(value, np.ndarray | np.generic) and not isinstance(value, np.longdouble | np.clongdouble):
        return inner(value.tolist())
    if hasattr(type(value), "model_fields"):  # of pydantic
        return {name: inner(getattr(value, name)) for name in type(value).model_fields}
    return value


def _all_finite(values: list[Any], type: TypeInformation) -> bool:
    """Whether no field of these tuples is an infinite number."""
    floats = [index for index, field in enumerate(type.fields or ()) if field.type.kinds() & {"float", "double"}]
    return not any(number in map(itemgetter(i), values) for i in floats for number in (_INFINITY, -_INFINITY))


def _flat_fields(type: TypeInformation | None) -> list[str] | None:
    """The field names of a record, None if it has nested or binary fields."""
    if type is None or type.fields is None:
        return None
    nested = any(pa.types.is_nested(t) or pa.types.is_binary(t) for t in type.arrow_schema.types)
    return None if nested else type.column_names

"""Elements as JSON, as a file sink writes them on lines and a message carries them."""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import Any

import msgspec
import pyarrow as pa

from forkpoint.types import Row, TypeInformation

_encoder = msgspec.json.Encoder(enc_hook=lambda value: to_jsonable(value))


def encode_lines(values: list[Any], type: TypeInformation | None) -> bytes:
    """The elements as JSON, each on a line that ends with a newline."""
    names = _flat_fields(type)
    if names is not None and values and isinstance(values[0], tuple) and hasattr(values[0], "_fields"):
        return _encoder.encode_lines([dict(zip(names, v, strict=True)) for v in values])
    return _encoder.encode_lines(list(map(to_jsonable, values)))


def to_jsonable(value: Any) -> Any:
    """Records, however nested, as dicts by field name; everything else as msgspec encodes it."""
    if isinstance(value, str | int | float | bytes | None):
        return value
    if isinstance(value, dict):
        return {k: to_jsonable(v) for k, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {k: to_jsonable(v) for k, v in zip(value._fields, value, strict=True)}
    if isinstance(value, list | tuple | set | frozenset):
        return list(map(to_jsonable, value))
    if dataclasses.is_dataclass(value):
        return {f.name: to_jsonable(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, msgspec.Struct):
        return {name: to_jsonable(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Row):
        return to_jsonable(list(value) if value.field_names is None else value.as_dict())
    if isinstance(value, Enum) and not isinstance(value.value, str | int):
        return value.name  # as the enum's type does
    return value


def _flat_fields(type: TypeInformation | None) -> list[str] | None:
    """The field names of a record, None if it has nested or binary fields."""
    if type is None or type.fields is None:
        return None
    nested = any(pa.types.is_nested(t) or pa.types.is_binary(t) for t in type.arrow_schema.types)
    return None if nested else type.column_names

"""Makes values without a declared type independent; chooses the method once per class."""

from __future__ import annotations

import copy
import dataclasses
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from operator import attrgetter
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any
from uuid import UUID

import msgspec
import numpy as np
import pyarrow as pa

from forkpoint.errors import TypeNotSupported
from forkpoint.types.acceptance import Convert, collections, converted, unless_same
from forkpoint.types.information import TypeInformation
from forkpoint.types.kinds.containers import MapType, OptionalType, SequenceType
from forkpoint.types.kinds.records import RecordType
from forkpoint.types.kinds.scalars import AnyType
from forkpoint.types.wire import shown, type_name

_IMMUTABLE: set[type] = {
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    Decimal,
    UUID,
    date,
    time,
    datetime,
    timedelta,
    timezone,
    type,
    range,
    type(Ellipsis),
    type(NotImplemented),
    FunctionType,
    BuiltinFunctionType,
    ModuleType,
}
_IMMUTABLE_BASES = (Enum, np.generic, type, pa.Array, pa.ChunkedArray, pa.RecordBatch, pa.Table, pa.Scalar, pa.DataType)


def independent(value: Any) -> Any:
    """Return the value itself if it is deeply immutable, else a deep copy; raises TypeNotSupported if that fails."""
    try:
        return _part(value)
    except RecursionError:
        return _copied(value)  # it contains itself, or is nested too deeply


def independent_all(values: list[Any]) -> list[Any]:
    """`independent` for many values; the list itself if all values are immutable."""
    return _each(values, independent)


def _part(value: Any) -> Any:
    cls = type(value)
    if cls in _IMMUTABLE:
        return value
    convert = _CONVERTERS.get(cls)
    if convert is None:
        convert = _converter(cls)
        if convert is None:
            _IMMUTABLE.add(cls)
            return value
        _CONVERTERS[cls] = convert
    return convert(value)


def _parts(values: list[Any]) -> list[Any]:
    return _each(values, _part)


def _each(values: list[Any], convert: Convert) -> list[Any]:
    return values if _IMMUTABLE.issuperset(map(type, values)) else converted(values, convert)


def _converter(cls: type) -> Convert | None:
    """The function that makes values of a class independent; None if they are immutable."""
    if issubclass(cls, _IMMUTABLE_BASES):
        return None
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return unless_same(lambda parts: tuple.__new__(cls, parts), _IMMUTABLE, _parts)
    if issubclass(cls, msgspec.Struct) and cls.__struct_config__.frozen:
        return _frozen(cls.__struct_fields__)
    if dataclasses.is_dataclass(cls) and cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        return _frozen(tuple(field.name for field in dataclasses.fields(cls)))
    return _copied


def _frozen(names: tuple[str, ...]) -> Convert:
    gets = list(map(attrgetter, names))

    def keep(value: Any) -> Any:
        parts = [get(value) for get in gets]
        return value if _parts(parts) is parts else _copied(value)

    return keep


def _copied(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception as error:
        raise TypeNotSupported(
            f"{shown(value)} of type {type_name(type(value))} is mutable and cannot be copied: {error}; pass on its "
            "contents instead, as a NamedTuple, a frozen dataclass or another plain value"
        ) from error


_COLLECTIONS = collections(_IMMUTABLE, _parts)


def _dict(value: dict[Any, Any]) -> dict[Any, Any]:
    immutable = _IMMUTABLE.issuperset(map(type, value)) and _IMMUTABLE.issuperset(map(type, value.values()))
    return value.copy() if immutable else _COLLECTIONS[dict](value)


_CONVERTERS: dict[type, Convert] = _COLLECTIONS | {
    dict: _dict,
    bytearray: lambda value: value[:],
    np.ndarray: lambda value: value.copy() if value.dtype != object else _copied(value),
}


# -- elements of streams -----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ObjectType(AnyType):
    """Any object, for stream elements without a declared type. Elements are not stored, so they need no encoding."""

    accept = staticmethod(independent)
    accept_all = staticmethod(independent_all)


_OBJECT = ObjectType("any")


def element_type(of: TypeInformation | None) -> TypeInformation:
    """The type against which a stream checks its elements: the declared type, with `ObjectType` for ANY or no type."""
    if of is None or of.kind == "any":
        return _OBJECT
    if "any" not in of.kinds():
        return of
    match of:
        case OptionalType():
            return OptionalType(element_type(of.of))
        case SequenceType():
            return SequenceType(of.form, element_type(of.element))
        case MapType():
            return MapType(element_type(of.key), element_type(of.value))
        case RecordType():
            members = tuple(dataclasses.replace(field, type=element_type(field.type)) for field in of.members)
            return dataclasses.replace(of, members=members)
    return of

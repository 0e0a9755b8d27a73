"""`infer_type`: the type of values without a declared type."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import Enum
from typing import Any

from forkpoint.errors import TypeNotSupported
from forkpoint.types.annotations import type_of
from forkpoint.types.information import TypeInformation
from forkpoint.types.kinds.classes import flavor_of
from forkpoint.types.kinds.containers import MapType, SequenceType, optional
from forkpoint.types.kinds.records import row_type, tuple_type
from forkpoint.types.kinds.row import Row
from forkpoint.types.kinds.scalars import scalar


def infer_type(values: Iterable[Any]) -> TypeInformation:
    """Return the narrowest type that restores all values exactly; `Types.ANY()` if there is no other type.

    None among other values makes the type Optional. A mix of ints and floats is ANY, because DOUBLE would restore the ints
    as floats. The type is also ANY without values, and for objects of other classes, which only state refuses.
    """
    values = list(values)
    present = [value for value in values if value is not None]
    if not present:
        return scalar("any")
    of = _infer(present)
    return of if len(present) == len(values) else optional(of)


def _infer(values: list[Any]) -> TypeInformation:
    """The type of values that are not None."""
    classes = set(map(type, values))
    if len(classes) > 1:
        return scalar("any")
    (cls,) = classes
    if cls is int:
        return scalar("long" if min(values) >= -(2**63) and max(values) < 2**63 else "big_int")
    if cls is datetime:
        aware = {value.tzinfo is not None for value in values}
        return scalar("any") if len(aware) > 1 else scalar("instant" if aware.pop() else "timestamp")
    if cls is tuple:
        if len(set(map(len, values))) > 1:
            return scalar("any")
        return tuple_type([infer_type(column) for column in zip(*values, strict=True)])
    if cls in (list, set, frozenset):
        return SequenceType(cls.__name__, infer_type([element for value in values for element in value]))
    if cls is dict:
        keys = infer_type([key for value in values for key in value])
        return MapType(keys, infer_type([item for value in values for item in value.values()]))
    if cls is Row:
        if len({(row.field_names, len(row)) for row in values}) > 1:
            return scalar("any")
        return row_type(values[0].field_names, [optional(infer_type(column)) for column in zip(*values, strict=True)])
    return _infer_class(cls, values)


def _infer_class(cls: type, values: list[Any]) -> TypeInformation:
    try:
        of = type_of(cls)
    except TypeNotSupported:
        return scalar("any")
    if flavor_of(cls) is None or issubclass(cls, Enum):
        return of
    try:
        of.to_columns(values)
    except TypeNotSupported:  # fields do not match their annotations
        return scalar("any")
    return of

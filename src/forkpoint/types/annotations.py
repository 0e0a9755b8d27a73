"""`type_of`: converts a Python annotation to a type."""

from __future__ import annotations

import collections.abc
import datetime
import types
import typing
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, TypeVar, Union
from uuid import UUID

from msgspec import Meta

from forkpoint.errors import TypeNotSupported
from forkpoint.types.information import RenamedFrom, TypeInformation
from forkpoint.types.kinds.classes import flavor_of, record_type
from forkpoint.types.kinds.containers import MapType, SequenceType, union
from forkpoint.types.kinds.enums import EnumType
from forkpoint.types.kinds.literals import literal
from forkpoint.types.kinds.records import tuple_type
from forkpoint.types.kinds.row import Row
from forkpoint.types.kinds.scalars import scalar
from forkpoint.types.wire import type_name

Instant = Annotated[datetime.datetime, scalar("instant")]
"""Annotation of an aware datetime, stored and restored in UTC. Plain ``datetime`` means a naive datetime."""

_SCALARS: dict[Any, str] = {
    None: "null",
    type(None): "null",
    bool: "boolean",
    int: "long",
    float: "double",
    str: "string",
    bytes: "bytes",
    Decimal: "big_dec",
    UUID: "uuid",
    datetime.date: "date",
    datetime.time: "time",
    datetime.datetime: "timestamp",
    datetime.timedelta: "duration",
    Any: "any",
    object: "any",
}

_SEQUENCES: dict[Any, str] = {
    list: "list",
    set: "set",
    frozenset: "frozenset",
    collections.abc.Sequence: "list",
    collections.abc.MutableSequence: "list",
    collections.abc.Set: "set",
    collections.abc.MutableSet: "set",
}

_MAPS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)

_HINTS: dict[Any, str] = {
    Row: "declare the fields: Types.ROW_NAMED(names, types)",
    complex: "use a tuple of two floats",
    bytearray: "use bytes",
    collections.deque: "use list",
    collections.OrderedDict: "use dict",
    collections.defaultdict: "use dict",
    collections.Counter: "use dict[..., int]",
}
_GENERAL_HINT = (
    "use a NamedTuple, dataclass, msgspec.Struct or Enum, a type built from int, float, str, bytes, bool, Decimal, date, "
    "time, datetime, timedelta, UUID, tuple, list, dict and set, a Types.* type, or Types.ANY() for dynamic values"
)


def type_of(annotation: Any) -> TypeInformation:
    """Return the type of an annotation; returns a `TypeInformation` unchanged.

    ``int`` is a 64-bit LONG, ``datetime`` a naive datetime (see `Instant` for aware datetimes), ``Any`` and unparametrised
    ``list``, ``dict``, ... hold dynamic values. ``Annotated[T, Types.X()]`` means ``Types.X()``.

    Raises TypeNotSupported if such values have no durable encoding; the message names alternatives.
    """
    of = _translate(annotation)
    try:
        of.decode  # noqa: B018 - so that msgspec refuses a type here, not at the first value
        of.arrow_type  # noqa: B018
        hash(of)  # describes the type, defaults included
    except (TypeError, ValueError) as error:
        raise TypeNotSupported(f"{annotation!r} has no durable encoding: {error}; {_GENERAL_HINT}") from error
    return of


def _translate(annotation: Any) -> TypeInformation:
    if isinstance(annotation, TypeInformation):
        return annotation
    try:
        name = _SCALARS.get(annotation)
    except TypeError:
        raise _refused(annotation) from None
    if name is not None:
        return scalar(name)
    bare = {typing.List: list, typing.Dict: dict, typing.Set: set, typing.Tuple: tuple}.get(annotation)  # noqa: UP006
    if bare is not None:
        return _class(bare)
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is not None:
        return _generic(annotation, origin, args)
    if isinstance(annotation, type):
        return _class(annotation)
    if hasattr(annotation, "__supertype__"):  # NewType
        return _translate(annotation.__supertype__)
    if hasattr(annotation, "__value__"):  # type X = ...
        return _translate(annotation.__value__)
    raise _refused(annotation)


def _generic(annotation: Any, origin: Any, args: tuple[Any, ...]) -> TypeInformation:
    if origin is Annotated:
        return _annotated(args[0], args[1:])
    if origin in (Union, types.UnionType):
        return union([_translate(arg) for arg in args])
    if origin is Literal:
        return union([literal(_translate(type(arg)), (arg,)) for arg in args])
    if origin is tuple:
        if len(args) == 2 and args[1] is Ellipsis:
            return SequenceType("tuple_of", _translate(args[0]))
        return tuple_type([_translate(arg) for arg in args])
    if origin in _SEQUENCES:
        return SequenceType(_SEQUENCES[origin], _translate(args[0]))
    if origin in _MAPS:
        return MapType(_translate(args[0]), _translate(args[1]))
    if origin in (typing.ClassVar, typing.Final):
        return _translate(args[0])
    raise _refused(annotation)


def _annotated(of: Any, extras: tuple[Any, ...]) -> TypeInformation:
    for extra in extras:
        if isinstance(extra, TypeInformation):
            return extra
        if isinstance(extra, Meta) and extra.tz is not None and of is datetime.datetime:
            return scalar("instant" if extra.tz else "timestamp")
        if isinstance(extra, RenamedFrom):
            raise TypeNotSupported(
                f"{extra!r} is inside another type, where it has no effect; put it around a field's whole type: "
                f"Annotated[Optional[int], {extra!r}]"
            )
    return _translate(of)


def _class(cls: type) -> TypeInformation:
    if cls is tuple:
        return SequenceType("tuple_of", scalar("any"))
    if cls in _SEQUENCES:
        return SequenceType(_SEQUENCES[cls], scalar("any"))
    if cls in _MAPS:
        return MapType(scalar("any"), scalar("any"))
    if issubclass(cls, Enum):
        if not cls.__members__:
            raise TypeNotSupported(f"the Enum {type_name(cls)} has no members")
        return EnumType.of(cls)
    if flavor_of(cls) is not None:
        return record_type(cls, _translate)
    raise _refused(cls)


def _refused(annotation: Any) -> TypeNotSupported:
    name = type_name(annotation) if isinstance(annotation, type) else repr(annotation)
    origin = typing.get_origin(annotation) or annotation
    if isinstance(annotation, str):
        hint = "give the class itself, not its name"
    elif isinstance(annotation, TypeVar):
        hint = "a type variable has no type at run time; annotate the field with a concrete type"
    elif isinstance(origin, type) and typing.get_args(annotation) and flavor_of(origin) is not None:
        hint = "parametrised record classes are not supported; define a subclass with concrete field types"
    else:
        hint = _HINTS.get(origin, _GENERAL_HINT) if isinstance(origin, collections.abc.Hashable) else _GENERAL_HINT
    return TypeNotSupported(f"values of {name} have no durable encoding; {hint}")

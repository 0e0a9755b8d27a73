"""Record classes: their fields, and the construction of objects from field values."""

from __future__ import annotations

import dataclasses
import sys
import threading
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from forkpoint.errors import TypeNotSupported
from forkpoint.types.information import REQUIRED, Field, RenamedFrom, TypeInformation
from forkpoint.types.kinds.records import RecordType
from forkpoint.types.wire import type_name

TypeOf = Callable[[Any], TypeInformation]
_Declared = tuple[str, Any, Any]  # a field's name, default and factory of defaults
_NONE: Any = dataclasses.MISSING  # no default, no factory

_known: WeakKeyDictionary[type, RecordType] = WeakKeyDictionary()
_in_progress = threading.local()


def flavor_of(cls: type) -> str | None:
    """Return "namedtuple", "dataclass" or "struct"; None for a class that is not a record."""
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return "namedtuple"
    if issubclass(cls, msgspec.Struct):
        return "struct"
    return "dataclass" if dataclasses.is_dataclass(cls) else None


def record_type(cls: type, type_of: TypeOf) -> RecordType:
    """Return the type of a record class; `type_of` translates the annotations of its fields.

    Raises TypeNotSupported if an annotation cannot be resolved or encoded, or the class contains itself.
    """
    known = _known.get(cls)
    if known is not None:
        return known
    flavor = flavor_of(cls)
    assert flavor is not None
    with _guard(cls):
        hints = _hints(cls)
        declared = {"namedtuple": _namedtuple_fields, "dataclass": _dataclass_fields, "struct": _struct_fields}[flavor]
        names: Any = cls
        renames = dict(zip(names.__struct_fields__, names.__struct_encode_fields__, strict=True)) if flavor == "struct" else {}
        members = tuple(
            _field(cls, name, hints.get(name, Any), default, factory, type_of, renames.get(name, name))
            for name, default, factory in declared(cls, hints)
        )
    return restore_record(flavor, cls.__name__, members, cls)


def restore_record(flavor: str, name: str, members: tuple[Field, ...], cls: type | None) -> RecordType:
    """Return the type of a record from its resolved parts; restores pickled types.

    Pickled types carry the fields' types: in another process, the class's textual annotations may not be resolvable.
    """
    of = record_of_parts(flavor, name, members, cls)
    return of if cls is None else _known.setdefault(cls, of)


def record_of_parts(flavor: str, name: str, members: tuple[Field, ...], cls: type | None) -> RecordType:
    """Return a record type whose fields may have other types than those of its class."""
    if cls is None:
        return RecordType(flavor, name, members)
    names = tuple(field.name for field in members)
    builder = {"dataclass": dataclass_build, "struct": struct_build}.get(flavor)
    plain, build = builder(cls, names) if builder else (True, None)
    return RecordType(flavor, name, members, cls, plain, build)


@contextmanager
def _guard(cls: type) -> Iterator[None]:
    in_progress: list[type] = _in_progress.__dict__.setdefault("classes", [])
    if cls in in_progress:
        raise TypeNotSupported(
            f"{type_name(cls)} contains itself, so it has no columns; store references as ids, "
            "or declare the inner field Any and store tuples, lists and dicts in it"
        )
    in_progress.append(cls)
    try:
        yield
    finally:
        in_progress.pop()


def _hints(cls: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls, None, _locals_around(cls), include_extras=True)
    except NameError as error:
        raise TypeNotSupported(
            f"an annotation of {type_name(cls)} cannot be resolved: {error}; define that name at module level, "
            "and import it outside `if TYPE_CHECKING`"
        ) from error


def _locals_around(cls: type) -> dict[str, Any] | None:
    """The local variables of the running function that defines the class: textual annotations may refer to them."""
    function, inside, _ = cls.__qualname__.rpartition(".<locals>.")
    frame = sys._getframe() if inside else None
    while frame is not None:
        if frame.f_code.co_qualname == function and frame.f_globals.get("__name__") == cls.__module__:
            return frame.f_locals
        frame = frame.f_back
    return None


def _field(cls: type, name: str, hint: Any, default: Any, factory: Any, type_of: TypeOf, encoded: str) -> Field:
    extras = getattr(hint, "__metadata__", ())
    renamed = [extra.names for extra in extras if isinstance(extra, RenamedFrom)]
    if renamed:
        rest = [extra for extra in extras if not isinstance(extra, RenamedFrom)]
        hint = typing.Annotated[(hint.__origin__, *rest)] if rest else hint.__origin__
    default, factory = REQUIRED if absent(default) else default, None if absent(factory) else factory
    try:
        former = tuple(chain.from_iterable(renamed))
        return Field(name, type_of(hint), default, factory, None, former, None if encoded == name else encoded)
    except TypeNotSupported as error:
        raise TypeNotSupported(f"{cls.__name__}.{name}: {error}") from error


def absent(value: object) -> bool:
    # Compares classes: a dataclass that was unpickled by value has a different MISSING object.
    return type(value) is type(dataclasses.MISSING) or value is msgspec.NODEFAULT


def _namedtuple_fields(cls: Any, hints: dict[str, Any]) -> list[_Declared]:
    return [(name, cls._field_defaults.get(name, _NONE), _NONE) for name in cls._fields]


def _dataclass_fields(cls: Any, hints: dict[str, Any]) -> list[_Declared]:
    for name in cls.__dataclass_fields__:
        if isinstance(hints.get(name), dataclasses.InitVar):
            raise TypeNotSupported(
                f"{cls.__name__}.{name} is an InitVar: it is not stored, so objects could not be restored; "
                "make it a field, or use a class method as constructor"
            )
    return [(field.name, field.default, field.default_factory) for field in dataclasses.fields(cls)]


def dataclass_build(cls: Any, names: tuple[str, ...]) -> tuple[bool, Callable[..., Any]]:
    fields = dataclasses.fields(cls)
    for field in fields:  # the class may have been unpickled by value
        if absent(field.default):
            field.default = _NONE
        if absent(field.default_factory):
            field.default_factory = _NONE
    post_init = hasattr(cls, "__post_init__")
    positional = all(field.init and not field.kw_only for field in fields) and _has_own_init(cls)
    if positional and not post_init:
        return True, cls

    def build(*values: Any) -> Any:
        record = object.__new__(cls)
        for name, value in zip(names, values, strict=True):
            object.__setattr__(record, name, value)
        if post_init:
            record.__post_init__()
            for name, value in zip(names, values, strict=True):
                object.__setattr__(record, name, value)
        return record

    return all(field.init for field in fields) and not post_init, build


def _has_own_init(cls: Any) -> bool:
    """Whether ``cls(*field_values)`` runs the __init__ that @dataclass generated."""
    owner = next(base for base in cls.__mro__ if "__dataclass_params__" in base.__dict__)
    return bool(owner.__dataclass_params__.init and cls.__init__ is owner.__dict__.get("__init__"))


def _struct_fields(cls: Any, hints: dict[str, Any]) -> list[_Declared]:
    names, defaults = cls.__struct_fields__, cls.__struct_defaults__
    padded = [_NONE] * (len(names) - len(defaults)) + list(defaults)
    return [
        (name, _NONE, default.factory) if type(default).__name__ == "Factory" else (name, default, _NONE)
        for name, default in zip(names, padded, strict=True)
    ]


def struct_build(cls: Any, names: tuple[str, ...]) -> tuple[bool, Callable[..., Any]]:
    config = cls.__struct_config__
    post_init = hasattr(cls, "__post_init__")
    as_named = cls.__struct_encode_fields__ == names and config.tag is None
    plain = as_named and not (config.array_like or config.omit_defaults or post_init)
    if cls.__match_args__ == names and not post_init:
        return plain, cls

    def build(*values: Any) -> Any:
        record = cls(**dict(zip(names, values, strict=True)))
        if post_init:
            for name, value in zip(names, values, strict=True):
                msgspec.structs.force_setattr(record, name, value)
        return record

    return plain, build

"""Sending classes and functions of a running program to its workers.

cloudpickle sends by value what is defined in ``__main__`` or inside a function, but a msgspec.Struct class arrives without
its fields. `dumps` sends these too. This is for the life of one run only: nothing that is stored is pickled.
"""

from __future__ import annotations

import inspect
import io
import sys
import uuid
from collections.abc import Callable, Mapping
from enum import EnumMeta
from functools import lru_cache
from types import CodeType
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec

_StructMeta = type(msgspec.Struct)
_ids: WeakKeyDictionary[type, str] = WeakKeyDictionary()
_classes: WeakValueDictionary[str, type] = WeakValueDictionary()

_FLAGS = (
    "frozen", "eq", "order", "array_like", "gc", "repr_omit_defaults", "omit_defaults", "forbid_unknown_fields",
    "weakref", "dict", "cache_hash", "tag", "tag_field",
)  # fmt: skip
_NOT_SENT = frozenset(
    {"__dict__", "__weakref__", "__slots__", "__module__", "__qualname__", "__annotations__", "__match_args__"}
)

_NO_FILE = "<dynamic-code>"
"""The file of all code that cloudpickle sends, from 3.1.3 on. Tracebacks need the real one, which is sent beside it."""

_preparations: list[Callable[[], None]] = []


def before_loading(prepare: Callable[[], None]) -> None:
    """Have other processes call ``prepare``, a module-level function, before they load anything that `dumps` returns."""
    _preparations.append(prepare)


def dumps(value: Any) -> bytes:
    """Pickle by cloudpickle's rules, msgspec.Struct classes included; any ``pickle.loads`` reads it."""
    buffer = io.BytesIO()
    calls = [_Reduced(prepare, ()) for prepare in _preparations]
    _pickler()(buffer).dump(_Reduced(_last, (*calls, value)) if calls else value)
    return buffer.getvalue()


class _Reduced:
    """Unpickles to what is made by these instructions, as `__reduce__` returns them."""

    def __init__(self, *instructions: Any) -> None:
        self.instructions = instructions

    def __reduce__(self) -> tuple[Any, ...]:
        return self.instructions


def _last(*loaded: Any) -> Any:
    return loaded[-1]


@lru_cache(maxsize=1)
def _pickler() -> Any:
    import cloudpickle  # only where something is sent

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, CodeType) and obj.co_filename != _NO_FILE:
                return _in_file, (obj.replace(co_filename=_NO_FILE), obj.co_filename)
            if _by_value(obj):
                return _reduce(obj)
            reduced = super().reducer_override(obj)
            return _with_aliases(obj, reduced) if isinstance(obj, EnumMeta) and isinstance(reduced, tuple) else reduced

    return Pickler


def _in_file(code: CodeType, filename: str) -> CodeType:
    return code.replace(co_filename=filename)


def _with_aliases(cls: EnumMeta, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """How cloudpickle makes an enum, with the aliases of its members, which it would set as attributes, and enums refuse."""
    found: Mapping[str, Any] = cls.__members__
    aliases = {name: member.value for name, member in found.items() if name != member.name}
    if not aliases:
        return reduced
    make, arguments, (attributes, slots), *rest = reduced
    members = {name: member.value for name, member in found.items() if name not in aliases}  # cloudpickle's
    made = tuple(
        {name: member.value for name, member in found.items()} if each == members else each for each in arguments
    )
    return make, made, ({k: v for k, v in attributes.items() if k not in aliases}, slots), *rest


def portable(cls: type | None) -> Any:
    """Return an object that unpickles to `cls`, also with plain cloudpickle."""
    return _Reduced(*_reduce(cls)) if cls is not None and _by_value(cls) else cls


def _by_value(obj: Any) -> bool:
    if not isinstance(obj, _StructMeta):
        return False
    found: Any = sys.modules.get(obj.__module__)
    for part in obj.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is not obj or obj.__module__ == "__main__":
        return True
    from cloudpickle import list_registry_pickle_by_value

    return obj.__module__.partition(".")[0] in list_registry_pickle_by_value()


def _reduce(cls: Any) -> tuple[Any, ...]:
    tracker = _ids.setdefault(cls, uuid.uuid4().hex)
    _classes[tracker] = cls
    own = set(inspect.get_annotations(cls))
    fields = [
        (field.name, field.type, field.default, field.default_factory, field.encode_name)
        for field in msgspec.structs.fields(cls)
        if field.name in own
    ]
    flags = {name: getattr(cls.__struct_config__, name) for name in _FLAGS}
    flags["kw_only"] = any(name not in cls.__match_args__ for name, *_ in fields)
    bases = tuple(portable(base) for base in cls.__bases__)
    sent = {
        name: value
        for name, value in cls.__dict__.items()
        if name not in _NOT_SENT and name not in own and not name.startswith("__msgspec")
    }
    made = cls.__name__, cls.__qualname__, cls.__module__, bases, fields, flags, "__post_init__" in sent
    return _make, (tracker, *made), sent, None, None, _fill


def _make(
    tracker: str, name: str, qualname: str, module: str, bases: Any, fields: Any, flags: Any, post_init: bool
) -> type:
    """Make the class without its methods, which may refer to it; `_fill` adds them."""
    known = _classes.get(tracker)
    if known is not None:
        return known
    make_field: Any = msgspec.field  # its annotations do not know NODEFAULT
    declared = [
        (field, annotation, make_field(default=default, default_factory=factory, name=encoded))
        for field, annotation, default, factory, encoded in fields
    ]
    namespace: dict[str, Any] = {"__post_init__": _deferred()} if post_init else {}
    cls = msgspec.defstruct(name, declared, bases=bases, module=module, namespace=namespace, **flags)
    cls.__qualname__ = qualname
    _ids[cls] = tracker
    _classes[tracker] = cls
    return cls


def _deferred() -> Any:
    """A __post_init__ that calls the real one: msgspec looks for the method when the class is made, before `_fill`."""
    real: list[Any] = []

    def __post_init__(self: Any) -> None:  # noqa: N807
        real[0](self)

    __post_init__.real = real  # type: ignore[attr-defined]
    return __post_init__


def _fill(cls: Any, sent: dict[str, Any]) -> None:
    for name, value in sent.items():
        if name == "__post_init__":
            getattr(cls.__dict__[name], "real", []).append(value)
        setattr(cls, name, value)

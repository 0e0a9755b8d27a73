"""Sends classes and functions of a running program to its workers.

cloudpickle sends objects defined in ``__main__`` or inside a function by value, but a msgspec.Struct class arrives without its
fields. `dumps` sends the fields too. It is for the duration of one run only: stored values are not pickled.

If an object cannot be sent (a lock, a connection, an open file), pickle's error names only its type; `culprit` finds its path.
"""

from __future__ import annotations

import functools
import inspect
import io
import sys
import types
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import EnumMeta
from functools import lru_cache
from types import CodeType
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec

from forkpoint.extras import is_own

_StructMeta = type(msgspec.Struct)
_ids: WeakKeyDictionary[type, str] = WeakKeyDictionary()
_classes: WeakValueDictionary[str, type] = WeakValueDictionary()

_FLAGS = (
    "frozen",
    "eq",
    "order",
    "array_like",
    "gc",
    "repr_omit_defaults",
    "omit_defaults",
    "forbid_unknown_fields",
    "weakref",
    "dict",
    "cache_hash",
    "tag",
    "tag_field",
)
_NOT_SENT = frozenset({"__dict__", "__weakref__", "__slots__", "__module__", "__qualname__", "__annotations__", "__match_args__"})

_NO_FILE = "<dynamic-code>"
"""The file name of all code that cloudpickle sends, from 3.1.3 on. Tracebacks need the real name, so `dumps` sends it too."""

_preparations: list[Callable[[], None]] = []

_MAX_STEPS = 20


def before_loading(prepare: Callable[[], None]) -> None:
    """Make other processes call ``prepare``, a module-level function, before they load anything that `dumps` returns."""
    _preparations.append(prepare)


def dumps(value: Any) -> bytes:
    """Pickle by cloudpickle's rules, msgspec.Struct classes included; any ``pickle.loads`` reads it."""
    buffer = io.BytesIO()
    calls = [_Reduced(prepare, ()) for prepare in _preparations]
    _pickler()(buffer).dump(_Reduced(_last, (*calls, value)) if calls else value)
    return buffer.getvalue()


class _Reduced:
    """Unpickles to the object that these instructions create, in the form of `__reduce__`."""

    def __init__(self, *instructions: Any) -> None:
        self.instructions = instructions

    def __reduce__(self) -> tuple[Any, ...]:
        return self.instructions


def _last(*loaded: Any) -> Any:
    return loaded[-1]


@lru_cache(maxsize=1)
def _pickler() -> Any:
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, CodeType) and obj.co_filename != _NO_FILE:
                return _in_file, (obj.replace(co_filename=_NO_FILE), obj.co_filename)
            if obj is msgspec.NODEFAULT:
                return _no_default, ()  # pickle would search all loaded modules for its name, which takes 2 ms
            if _by_value(obj):
                return _reduce(obj)
            reduced = super().reducer_override(obj)
            return _with_aliases(obj, reduced) if isinstance(obj, EnumMeta) and isinstance(reduced, tuple) else reduced

    return Pickler


def _no_default() -> Any:
    return msgspec.NODEFAULT


def _in_file(code: CodeType, filename: str) -> CodeType:
    return code.replace(co_filename=filename)


def _with_aliases(cls: EnumMeta, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """Adds the aliases of members to cloudpickle's reduction of an enum; cloudpickle would set attributes, which enums refuse."""
    found: Mapping[str, Any] = cls.__members__
    aliases = {name: member.value for name, member in found.items() if name != member.name}
    if not aliases:
        return reduced
    make, arguments, (attributes, slots), *rest = reduced
    members = {name: member.value for name, member in found.items() if name not in aliases}  # cloudpickle's
    every = {name: member.value for name, member in found.items()}
    arguments = tuple(every if each == members else each for each in arguments)
    return make, arguments, ({k: v for k, v in attributes.items() if k not in aliases}, slots), *rest


def portable(cls: type | None) -> Any:
    """Return an object that unpickles to `cls`, even with plain cloudpickle."""
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


def _make(tracker: str, name: str, qualname: str, module: str, bases: Any, fields: Any, flags: Any, post_init: bool) -> type:
    """Create the class without its methods, which may refer to it; `_fill` adds them."""
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
    """A __post_init__ that calls the real method: msgspec looks for it when the class is created, before `_fill`."""
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


@dataclass(frozen=True)
class Culprit:
    """An object that cannot be pickled, and its path: ``attribute 'pool'['a'][0]``. ``error``: pickle's message."""

    path: str
    kind: str
    error: str
    of_instance: bool


def culprit(value: Any) -> Culprit | None:
    """The innermost object that prevents a value from being pickled; None if it can be pickled."""
    error = _refusal(value)
    if error is None:
        return None
    path: list[str] = []
    seen: set[int] = set()
    of_instance = False
    for _ in range(_MAX_STEPS):
        seen.add(id(value))
        found = next((part for part in _parts(value) if id(part[1]) not in seen and _refusal(part[1])), None)
        if found is None:
            break
        if found[0] and not is_own(type(value).__module__):
            of_instance = of_instance or found[0].startswith("attribute")
            path.append(found[0])
        value = found[1]
        error = _refusal(value) or error
    kind = type(value)
    shown = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    text = "".join(step if step.startswith("[") or not index else f", {step}" for index, step in enumerate(path))
    return Culprit(text, shown, error, of_instance)


def _refusal(value: Any) -> str | None:
    try:
        dumps(value)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """The objects that are pickled with a value, with their path steps."""
    match value:
        case types.FunctionType():
            yield from _of_function(value)
        case types.MethodType():
            yield "", value.__self__
            yield "", value.__func__
        case functools.partial():
            yield "", value.func
            yield from ((f"argument {index}", each) for index, each in enumerate(value.args, 1))
            yield from ((f"argument {name!r}", each) for name, each in value.keywords.items())
        case Mapping():
            yield from ((f"[{key!r}]", each) for key, each in value.items())
        case list() | tuple() | set() | frozenset():
            yield from ((f"[{index}]", each) for index, each in enumerate(value))
        case type():
            yield from ((f"class attribute {value.__name__}.{name}", each) for name, each in vars(value).items())
    if not isinstance(value, type | types.FunctionType):
        state: Any = getattr(value, "__dict__", {})
        with suppress(Exception):  # __getstate__ may omit objects that cannot be sent
            state = value.__getstate__()
        if isinstance(state, tuple):  # a class with slots
            state = {name: each for part in state for name, each in (part or {}).items()}
        yield from ((f"attribute {name!r}", each) for name, each in (state or {}).items())
        yield "", type(value)


def _of_function(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # not assigned yet
            yield f"variable {name!r} of {function.__qualname__}", cell.cell_contents
    for name in _names(code):
        if name in function.__globals__:
            yield f"global variable {name!r} of {function.__qualname__}", function.__globals__[name]
    for each in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        yield f"a default of {function.__qualname__}", each
    yield from ((f"attribute {name!r} of {function.__qualname__}", each) for name, each in vars(function).items())


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _names(each)

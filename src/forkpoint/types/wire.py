"""The msgpack codec that all types share: an encoder, and a factory of decoders.

A type's *wire* annotation describes it to msgspec. If that is the user's class, msgspec encodes and decodes in one C call;
otherwise the type adds ``lower`` (value → wire value) and ``lift`` (wire value → value).
"""

from __future__ import annotations

import copyreg
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from msgspec import Meta, msgpack

from forkpoint.decoders import BUILDING, msgpack_decoder
from forkpoint.errors import TypeNotSupported

NativeClasses = Mapping[type, Mapping[str, Any] | None]
"""Classes that msgspec decodes by itself, with the wire annotations of their fields (None: an Enum)."""


def shown(value: object, limit: int = 80) -> str:
    """Return ``repr(value)`` cut to `limit` characters; never raises."""
    try:
        text = repr(value)
    except Exception:
        text = object.__repr__(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def type_name(cls: type) -> str:
    """Return the name by which a user would import the class."""
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def from_numpy(value: Any) -> Any:
    """Return the bool, int or float that exactly equals a numpy scalar; raises TypeNotSupported if there is none."""
    result = float(value) if isinstance(value, np.floating) else value.item()
    if isinstance(value, np.timedelta64):
        exact = not isinstance(result, int)  # numpy returns nanoseconds as an int
    else:
        exact = isinstance(result, bool | int | float) and (result == value or value != value)
    if not exact:
        raise TypeNotSupported(f"{value!r} is not exact as a value of Python; convert it to a type that can represent it")
    return result


def _foreign(value: Any) -> Any:
    """Convert numpy scalars and subclasses of primitives, which msgspec does not know, to primitives."""
    if isinstance(value, np.bool_ | np.number):
        return from_numpy(value)
    for base in (float, int, str, bytes):
        if isinstance(value, base):
            return base(value)  # type: ignore[arg-type]
    raise TypeNotSupported(
        f"a value of type {type_name(type(value))} does not belong to the declared type: {shown(value)}; "
        "declare the actual type of the values (NamedTuple, dataclass, msgspec.Struct, Enum), or Types.ANY()"
    )


pack: Callable[[Any], bytes] = msgpack.Encoder(order="deterministic", uuid_format="bytes", enc_hook=_foreign).encode

_META = (
    "gt",
    "ge",
    "lt",
    "le",
    "multiple_of",
    "pattern",
    "min_length",
    "max_length",
    "tz",
    "title",
    "description",
    "examples",
    "extra_json_schema",
    "extra",
)


# msgspec's Meta cannot be pickled, so a class with a Meta in its annotations could not be sent to a worker.
copyreg.pickle(Meta, lambda meta: (partial(Meta, **{name: getattr(meta, name) for name in _META}), ()))

_CACHE = "__msgspec_cache__"


def unpacker(wire: Any, native: NativeClasses) -> Callable[[bytes], Any]:
    """Return the C function that decodes msgpack bytes to `wire`. Raises TypeError if msgspec does not support it."""
    with BUILDING, _resolved(native):
        return msgpack_decoder(wire)


@contextmanager
def _resolved(native: NativeClasses) -> Iterator[None]:
    """Give msgspec resolved annotations, and restore the classes afterwards.

    A class unpickled by cloudpickle may have textual annotations, whose names exist only in the process that defined it.
    msgspec also caches its findings in the class's ``__dict__``; that entry cannot be pickled, so the class could no longer be
    sent to a worker. The decoder keeps its own reference.
    """
    records = {cls: dict(wires) for cls, wires in native.items() if wires is not None}
    bases = dict.fromkeys(base for cls in records for base in cls.__mro__)
    saved = {base: inspect.get_annotations(base) for base in bases}
    changed = [base for base in saved if base in records or saved[base]]
    try:
        for base in changed:
            base.__annotations__ = records.get(base, {})
        yield
    finally:
        for base in changed:
            if saved[base]:
                base.__annotations__ = saved[base]
            else:
                del base.__annotations__
        for cls in native:
            if _CACHE in cls.__dict__:
                delattr(cls, _CACHE)

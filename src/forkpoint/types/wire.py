"""The msgpack codec that all types share: one encoder, and one way to make a decoder.

A type is described to msgspec by its *wire* annotation. If that is the user's own class, msgspec encodes and decodes in one
C call; if not, a type adds ``lower`` (value → wire value) and ``lift`` (wire value → value).
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

from forkpoint.decoding import BUILDING, msgpack_decoder
from forkpoint.errors import TypeNotSupported

NativeClasses = Mapping[type, Mapping[str, Any] | None]
"""Classes that msgspec decodes by itself, each with the wire annotations of its fields (None: an Enum)."""


def shown(value: object, limit: int = 80) -> str:
    """Return ``repr(value)`` cut to `limit` characters; never raises."""
    try:
        text = repr(value)
    except Exception:
        text = object.__repr__(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def type_name(cls: type) -> str:
    """Return the class's name as a user would import it."""
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def from_numpy(value: Any) -> Any:
    """Return the bool, int or float that is exactly this scalar of numpy; TypeNotSupported if there is none."""
    made = float(value) if isinstance(value, np.floating) else value.item()
    if isinstance(value, np.timedelta64):
        exact = not isinstance(made, int)  # numpy gives nanoseconds as an int
    else:
        exact = isinstance(made, bool | int | float) and (made == value or value != value)
    if not exact:
        raise TypeNotSupported(f"{value!r} is not exact as a value of Python; convert it to a type that it is exact in")
    return made


def _foreign(value: Any) -> Any:
    """Convert numpy's scalars, and subclasses of primitives, which msgspec does not know, to primitives."""
    if isinstance(value, np.bool_ | np.number):
        return from_numpy(value)
    for base in (float, int, str, bytes):
        if isinstance(value, base):
            return base(value)  # type: ignore[arg-type]
    raise TypeNotSupported(
        f"a value of type {type_name(type(value))} does not belong to the declared type: {shown(value)}; "
        "declare the type that is really stored (NamedTuple, dataclass, msgspec.Struct, Enum), or Types.ANY()"
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


# msgspec gives Meta no pickle support, and a class whose annotations mention one could not be sent to a worker.
copyreg.pickle(Meta, lambda meta: (partial(Meta, **{name: getattr(meta, name) for name in _META}), ()))

_CACHE = "__msgspec_cache__"


def unpacker(wire: Any, native: NativeClasses) -> Callable[[bytes], Any]:
    """Return the C function that decodes msgpack bytes to `wire`. Raises TypeError if msgspec does not support it."""
    with BUILDING, _resolved(native):
        return msgpack_decoder(wire)


@contextmanager
def _resolved(native: NativeClasses) -> Iterator[None]:
    """Give msgspec resolved annotations, and leave the classes as they were.

    A class that came out of cloudpickle may carry annotations as text whose names exist only in the process that
    defined it. msgspec also caches what it finds in the class's ``__dict__``, and that entry cannot be pickled: a class
    with it could not be sent to a worker any more. The decoder keeps its own reference.
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

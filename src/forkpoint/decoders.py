"""Decoders of msgspec, built one at a time.

While msgspec looks at a class, what it knows so far is on the class already: a thread that builds a decoder for the same class,
or decodes into it, takes that for the whole, and the process ends with a segmentation fault (msgspec 0.22). So everything in
forkpoint that makes msgspec look at a class does so here, under one lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

BUILDING = threading.RLock()
_built: set[type] = set()


def json_decoder(kind: type[T], **options: Any) -> Callable[[bytes | str], T]:
    """Decodes JSON into a class; ``options`` are those of ``msgspec.json.Decoder``."""
    with BUILDING:
        return msgspec.json.Decoder(kind, **options).decode


def json_lines_decoder(kind: type[T]) -> Callable[[bytes | str], list[T]]:
    """Decodes lines of JSON, each into a class."""
    with BUILDING:
        return msgspec.json.Decoder(kind).decode_lines


def msgpack_decoder(kind: type[T], **options: Any) -> Callable[[bytes], T]:
    """Decodes msgpack into a class; ``options`` are those of ``msgspec.msgpack.Decoder``."""
    with BUILDING:
        return msgspec.msgpack.Decoder(kind, **options).decode


def convert(value: Any, kind: type[T]) -> T:
    """The value as an object of a class that lives as long as the process. Raises ValidationError."""
    if kind not in _built:
        json_decoder(kind)
        _built.add(kind)
    return msgspec.convert(value, kind)

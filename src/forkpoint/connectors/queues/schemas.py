"""Deserializing messages with all that a broker says about them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import pyarrow as pa

from forkpoint.connectors.formats.base import BadMessage, Deserialized

M = TypeVar("M")
E = TypeVar("E")


def deserialize_each(
    messages: pa.RecordBatch, make: Callable[[bytes, str, dict[str, Any]], M], deserialize: Callable[[M], E]
) -> Deserialized[E]:
    """Elements one by one. ``make``: a message from its value, key and attributes."""
    columns = (messages.column(name).to_pylist() for name in ("value", "key", "attributes"))
    elements: list[E] = []
    bad: list[BadMessage] = []
    for index, (value, key, attributes) in enumerate(zip(*columns, strict=True)):
        try:
            elements.append(deserialize(make(value, key, json.loads(attributes or "{}"))))
        except Exception as error:
            bad.append(BadMessage(index, f"{type(error).__name__}: {error}"))
    return Deserialized(elements, bad=bad)

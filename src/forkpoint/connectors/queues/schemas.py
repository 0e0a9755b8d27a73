"""Deserializes messages with all their attributes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import pyarrow as pa

from forkpoint.contract.format import Deserialized, deserialize_each

M = TypeVar("M")
E = TypeVar("E")


def deserialize_whole(
    messages: pa.RecordBatch, make: Callable[[bytes, str, dict[str, Any]], M], deserialize: Callable[[M], E]
) -> Deserialized[E]:
    """Deserialize messages one by one. ``make`` creates a message from its value, key and attributes."""
    columns = (messages.column(name).to_pylist() for name in ("value", "key", "attributes"))

    def deserialize_row(row: tuple[bytes, str, str | None]) -> E:
        value, key, attributes = row
        return deserialize(make(value, key, json.loads(attributes or "{}")))

    return deserialize_each(zip(*columns, strict=True), deserialize_row)

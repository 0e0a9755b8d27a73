"""Values formatted as text and as JSON. Pure."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from forkpoint.types import Row
from forkpoint.wording import duration, moment, number, size, type_name, visible, visible_cell, visible_json, watermark

__all__ = [
    "attributes", "duration", "moment", "number", "plain", "shown", "size", "type_name", "visible", "visible_cell",
    "visible_json", "watermark",
]  # fmt: skip

_SHOWN = 120


def attributes(thing: Any, names: str) -> dict[str, Any]:
    """The attributes with these names, separated by spaces; of None, None for each."""
    return {name: None if thing is None else getattr(thing, name) for name in names.split()}


def plain(value: Any) -> Any:
    """A value as JSON: records by field, bytes as base64, times as ISO 8601, anything else as text."""
    if isinstance(value, Row):
        return plain(value.as_dict() if value.field_names else list(value))
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: plain(each) for key, each in value.items()}
        return [[plain(key), plain(each)] for key, each in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    return msgspec.to_builtins(value, enc_hook=str)


def shown(value: Any) -> str:
    """A value in a table: text as it is, nothing for None, anything else as JSON."""
    if value is None:
        return ""
    found = plain(value)
    text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"

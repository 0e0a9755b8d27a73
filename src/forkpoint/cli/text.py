"""Formats values as text. Pure."""

from __future__ import annotations

import json
from typing import Any

from forkpoint.types.readable import plain
from forkpoint.wording import duration, moment, number, size, type_name, visible, visible_cell, visible_json, watermark

__all__ = ["duration", "moment", "number", "shown", "size", "type_name", "visible", "visible_cell", "visible_json", "watermark"]

_SHOWN = 120


def shown(value: Any) -> str:
    """A value in a table: text unchanged, None as an empty string, anything else as JSON."""
    if value is None:
        return ""
    found = plain(value)
    text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"

"""Converts values to JSON for people."""

from __future__ import annotations

import math
import sys
from collections import deque
from typing import Any

import msgspec

from forkpoint.types.kinds.row import Row


def plain(value: Any) -> Any:
    """A value as JSON: records by field, bytes as base64, times as ISO 8601, other objects as text; numbers that JSON lacks are
    "NaN", "Infinity" and "-Infinity"."""
    if isinstance(value, Row):
        return plain(value.as_dict() if value.field_names else list(value))
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    np = sys.modules.get("numpy")  # if it is not loaded, there are no values of numpy
    if np is not None and isinstance(value, np.ndarray | np.generic):
        return str(value) if isinstance(value, np.longdouble | np.clongdouble) else plain(value.tolist())
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: plain(each) for key, each in value.items()}
        return [[plain(key), plain(each)] for key, each in value.items()]
    if isinstance(value, list | tuple | set | frozenset | deque):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    built = msgspec.to_builtins(value, enc_hook=str)
    return plain(built) if isinstance(built, dict | list) else built

"""What the drivers of databases have for values of SQL, in scans and in lookups."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from forkpoint.types import TypeInformation
from forkpoint.types.kinds.containers import present


def readings(type: TypeInformation[Any]) -> dict[str, Callable[[Any], Any]]:
    """For columns of a type of rows, by name: what a driver's value becomes. The others are as they are."""
    kinds = {each.name: present(each.type).kind for each in type.fields or ()}
    return {name: _READ[kind] for name, kind in kinds.items() if kind in _READ}


def _truth(value: Any) -> Any:
    """SQLite and MySQL have 0 and 1."""
    return bool(value) if isinstance(value, int) and value in (0, 1) else value


def _digits(value: Any) -> Any:
    """SQLite's numbers are binary."""
    return Decimal(repr(value)) if isinstance(value, int | float) else value


def _in_utc(value: Any) -> Any:
    """A column without a time zone, to which sinks write UTC; SQLite has texts."""
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        return value
    return at.replace(tzinfo=UTC) if isinstance(at, datetime) and at.tzinfo is None else at


def _text(value: Any) -> Any:
    """PostgreSQL's driver has objects for uuid and json."""
    return str(value) if isinstance(value, UUID) else json.dumps(value) if isinstance(value, dict | list) else value


def _parts(value: Any) -> Any:
    """SQLite and MariaDB have JSON in texts. What is none is refused with the row."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


_READ: dict[str, Callable[[Any], Any]] = {
    "boolean": _truth,
    "decimal": _digits,
    "instant": _in_utc,
    "string": _text,
    **dict.fromkeys(("list", "map", "record"), _parts),
}
"""What becomes of a driver's value for a column of SQL with a type of this kind."""

"""Reading and replacing a field of an element of any record type."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec

from forkpoint.types import Row


def field_access(field: int | str, names: tuple[str, ...]) -> tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]:
    """Functions that get a field of an element, and that copy an element with the field replaced.

    ``names``: the type's field names; empty for untyped elements, whose class determines them. Field 0 of an element without
    fields is the element itself.
    """

    def fields_of(value: Any) -> tuple[str, ...]:
        if names:
            return names
        if dataclasses.is_dataclass(value):
            return tuple(f.name for f in dataclasses.fields(value))
        return tuple(getattr(value, "__struct_fields__", getattr(value, "_fields", ())))

    def get(value: Any) -> Any:
        if isinstance(value, dict) or (isinstance(field, int) and hasattr(value, "__getitem__")):
            return value[field]
        if isinstance(field, str):
            return getattr(value, field)
        known = fields_of(value)
        return getattr(value, known[field]) if known or field else value

    def put(value: Any, new: Any) -> Any:
        if isinstance(value, dict):
            return {**value, field: new}
        known = fields_of(value)
        if isinstance(value, tuple) and not hasattr(value, "_replace"):
            index = known.index(field) if isinstance(field, str) else field % len(value)
            return (*value[:index], new, *value[index + 1 :])
        if isinstance(value, Row):
            changed = Row.of(value.field_names, list(value))
            changed[field] = new
            return changed
        if not known:
            return new
        name = field if isinstance(field, str) else known[field]
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return dataclasses.replace(value, **{name: new})
        if hasattr(value, "__struct_fields__"):
            return msgspec.structs.replace(value, **{name: new})
        return value._replace(**{name: new})

    return get, put

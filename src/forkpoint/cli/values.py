"""Values of states as people and programs read them, and keys as people write them. Pure."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from forkpoint.errors import ConfigError
from forkpoint.types import Row, TypeInformation

_SHOWN = 120


def plain(value: Any) -> Any:
    """A value as JSON has it: records by field, bytes in base64, times in ISO 8601, what has no JSON as text."""
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
    """A value in a table: JSON but for text, which stands as it is, and nothing for None."""
    if value is None:
        return ""
    found = plain(value)
    text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def key_of(text: str, type: TypeInformation) -> Any:
    """The key that somebody wrote: text for text, else JSON: ``5``, ``["a", 1]``. Raises ConfigError if it is none."""
    if type.kind in ("string", "char"):
        return text
    try:
        written = json.loads(text)
    except ValueError:
        written = text
    try:
        native = msgspec.convert(written, type.wire, strict=False)
        return native if type.lift is None else type.lift(native)
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        raise ConfigError(f"{text!r} is no key of type {type!r}: {error}; write it as JSON") from error

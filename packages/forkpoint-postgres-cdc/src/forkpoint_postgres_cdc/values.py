"""Parses PostgreSQL's text by the types of a record's fields. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

from forkpoint.errors import ConfigError, TypeNotSupported
from forkpoint.types import TypeInformation
from forkpoint.types.kinds.containers import present
from forkpoint.types.kinds.decimals import DecimalType

Read = Callable[[str], Any]


def _bool(text: str) -> bool:
    return {"t": True, "f": False}[text]


def _bytes(text: str) -> bytes:
    if not text.startswith("\\x"):
        raise ValueError("not a bytea")
    return bytes.fromhex(text[2:])


def _instant(text: str) -> datetime:
    value = datetime.fromisoformat(text)
    if value.tzinfo is None:
        raise ValueError("a time without a time zone; declare Types.SQL_TIMESTAMP()")
    return value


def _timestamp(text: str) -> datetime:
    value = datetime.fromisoformat(text)
    if value.tzinfo is not None:
        raise ValueError("a time with a time zone; declare Types.INSTANT()")
    return value


_SCALARS: Mapping[str, Read] = {
    "string": str,
    "char": str,
    "boolean": _bool,
    "float": float,
    "double": float,
    "big_dec": Decimal,
    "bytes": _bytes,
    "instant": _instant,
    "timestamp": _timestamp,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "uuid": UUID,
    "byte": int,
    "short": int,
    "int": int,
    "long": int,
    "big_int": int,
}


def reader(type: TypeInformation[Any], field: str) -> Read:
    """The parser of a field's text. Raises ConfigError for a type that has no text form in PostgreSQL."""
    type = present(type)
    if (scalar := _SCALARS.get(type.kind)) is not None:
        return scalar
    if type.kind == "enum":
        return _enum(type)
    if isinstance(type, DecimalType):
        return partial(_digits, type)
    if type.kind == "list":
        element = reader(type.children[0], field)
        return lambda text: _read_array(text, element)
    raise ConfigError(f"field {field!r} is declared as {type!r}, which is not read from PostgreSQL; declare str and parse it")


def _digits(type: DecimalType, text: str) -> Decimal:
    """A numeric with the digits of a column of SQL. Raises ValueError if it does not fit."""
    try:
        return type.rounded(Decimal(text))
    except TypeNotSupported as error:
        raise ValueError(str(error)) from None


def _enum(type: TypeInformation[Any]) -> Read:
    members: Any = type.python_class
    values = {str(member.value): member for member in members}
    names = {member.name: member for member in members}
    return lambda text: values[text] if text in values else names[text]


def _read_array(text: str, element: Read) -> list[Any]:
    value = parse_array(text)
    return [_read_element(each, element) for each in value]


def _read_element(value: Any, element: Read) -> Any:
    if value is None:
        return None
    if isinstance(value, list):
        raise ValueError("a multidimensional array; declare str and parse it")
    return element(value)


def parse_array(text: str, delimiter: str = ",") -> list[Any]:
    """An array's elements as text or None; nested lists for several dimensions."""
    if text.startswith("["):  # bounds other than 1
        text = text[text.index("=") + 1 :]
    stack: list[list[Any]] = []
    at = 0
    while at < len(text):
        char = text[at]
        if char == "{":
            new: list[Any] = []
            if stack:
                stack[-1].append(new)
            stack.append(new)
            at += 1
        elif char == "}":
            done = stack.pop()
            at += 1
            if not stack:
                if at != len(text):
                    break
                return done
        elif char == delimiter:
            at += 1
        else:
            if not stack:
                break
            value, at = _element(text, at, delimiter)
            stack[-1].append(value)
    raise ValueError("not an array")


def _element(text: str, at: int, delimiter: str) -> tuple[str | None, int]:
    if text[at] != '"':
        end = at
        while text[end] not in (delimiter, "}"):
            end += 1
        word = text[at:end]
        return None if word == "NULL" else word, end
    out, at = [], at + 1
    while text[at] != '"':
        at += text[at] == "\\"
        out.append(text[at])
        at += 1
    return "".join(out), at + 1

"""Java's patterns of times, such as ``yyyy-MM-dd HH:mm:ss``: they format, and they parse."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any

_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_PIECES = re.compile(r"'(?:[^']|'')*'|([A-Za-z])\1*|[^A-Za-z']|'")
_FIELDS: dict[str, tuple[int, Callable[[datetime], int]]] = {
    "M": (2, lambda t: t.month),
    "d": (2, lambda t: t.day),
    "H": (2, lambda t: t.hour),
    "h": (2, lambda t: t.hour % 12 or 12),
    "m": (2, lambda t: t.minute),
    "s": (2, lambda t: t.second),
    "D": (3, lambda t: t.timetuple().tm_yday),
}
"""The letters of numbers: the most digits that they may have, and their values."""


@lru_cache(256)
def _pieces(pattern: str) -> tuple[tuple[str, int, str], ...]:
    """Letters with their count, and texts (the letter is empty). Raises ValueError."""
    found = []
    for match in _PIECES.finditer(pattern):
        piece, letter = match[0], match[1]
        if piece == "'":
            raise ValueError(f"pattern {pattern!r}: a quote is not closed")
        if letter is None:
            if piece in "[]{}#":
                raise ValueError(f"pattern {pattern!r}: {piece!r} is not supported")
            found.append(("", 0, "'" if piece == "''" else piece[1:-1].replace("''", "'") if piece[0] == "'" else piece))
            continue
        count = len(piece)
        most = {"y": 4, "M": 4, "E": 4, "a": 1, "S": 9}.get(letter) or _FIELDS.get(letter, (0, None))[0]
        if not most:
            raise ValueError(f"pattern {pattern!r}: the letter {letter!r} is not supported; there are y M d D E H h m s S a")
        if count > most or (letter == "y" and count == 3):
            raise ValueError(f"pattern {pattern!r}: {piece!r} is not supported")
        found.append((letter, count, piece))
    return tuple(found)


def bad_format(pattern: Any) -> str | None:
    """Why a pattern cannot format."""
    try:
        _pieces(pattern)
    except ValueError as error:
        return str(error)
    return None


def bad_parser(pattern: Any) -> str | None:
    """Why a pattern cannot parse."""
    try:
        _parser(pattern)
    except ValueError as error:
        return str(error)
    return None


def formatted(moment: datetime, pattern: str) -> str:
    return "".join(_formatted(moment, letter, count, text) for letter, count, text in _pieces(pattern))


def _formatted(moment: datetime, letter: str, count: int, text: str) -> str:
    match letter:
        case "":
            return text
        case "y":
            return f"{moment.year % 100:02}" if count == 2 else f"{moment.year:0{count}}"
        case "M" if count > 2:
            name = _MONTHS[moment.month - 1]
            return name if count == 4 else name[:3]
        case "E":
            name = _DAYS[moment.weekday()]
            return name if count == 4 else name[:3]
        case "a":
            return "AM" if moment.hour < 12 else "PM"
        case "S":
            return f"{moment.microsecond:06}000"[:count]
    return f"{_FIELDS[letter][1](moment):0{count}}"


@lru_cache(256)
def _parser(pattern: str) -> tuple[re.Pattern[str], tuple[tuple[str, int], ...]]:
    """A regular expression with a group for each letter."""
    parts, letters = [], []
    for letter, count, text in _pieces(pattern):
        if not letter:
            parts.append(re.escape(text))
            continue
        letters.append((letter, count))
        if letter in "ED":
            raise ValueError(f"pattern {pattern!r}: the letter {letter!r} cannot be parsed")
        if letter == "M" and count > 2:
            names = _MONTHS if count == 4 else [name[:3] for name in _MONTHS]
            parts.append(f"({'|'.join(names)})")
        elif letter == "a":
            parts.append("(AM|PM)")
        else:
            most = 4 if letter == "y" else 2
            parts.append(rf"(\d{{{count}}})" if count > 1 or letter == "S" else rf"(\d{{1,{most}}})")
    return re.compile("".join(parts), re.ASCII), tuple(letters)


def parsed(text: str, pattern: str) -> datetime | None:
    """The time; None if the text does not have the pattern. What the pattern lacks is that of 1970-01-01 00:00:00."""
    expression, letters = _parser(pattern)
    found = expression.fullmatch(text)
    if found is None:
        return None
    parts = {"y": 1970, "M": 1, "d": 1, "H": 0, "m": 0, "s": 0, "S": 0}
    half: str | None = None
    twelve: int | None = None
    for (letter, count), value in zip(letters, found.groups(), strict=True):
        if letter == "y":
            parts["y"] = int(value) + (2000 if count == 2 else 0)
        elif letter == "M" and count > 2:
            parts["M"] = next(number for number, name in enumerate(_MONTHS, 1) if name.startswith(value))
        elif letter == "S":
            parts["S"] = int(value.ljust(6, "0")[:6])
        elif letter == "a":
            half = value
        elif letter == "h":
            twelve = int(value)
        else:
            parts[letter] = int(value)
    if twelve is not None:
        if not 1 <= twelve <= 12:
            return None
        parts["H"] = twelve % 12 + (12 if half == "PM" else 0)
    try:
        return datetime(*parts.values())  # type: ignore[arg-type] # noqa: DTZ001
    except ValueError:
        return None

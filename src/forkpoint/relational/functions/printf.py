"""PRINTF: texts and numbers in a text, by Java's patterns ``%[argument$][flags][width][.precision]conversion``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from forkpoint.relational.functions.casts import java_real
from forkpoint.relational.functions.nested import by_columns
from forkpoint.relational.functions.registry import Function, Types
from forkpoint.relational.types import STRING, SqlType

_PATTERN = re.compile(r"%(?:(\d+)\$)?([-+ 0,(#]*)(\d+)?(?:\.(\d+))?([a-zA-Z%])", re.ASCII)
_KINDS = {"INTEGER": "dxXo", "REAL": "feE", "ANY": "sSbB", "NONE": "n%"}


@dataclass(frozen=True)
class _Part:
    """``at``: the argument; None for the next one."""

    kind: str
    at: int | None
    flags: str
    width: int
    precision: int | None


@lru_cache(256)
def _parts(pattern: str) -> tuple[str | _Part, ...]:
    """Texts, and what is between them. Raises ValueError."""
    found: list[str | _Part] = []
    end = 0
    for match in _PATTERN.finditer(pattern):
        found.append(pattern[end : match.start()])
        at, flags, width, precision, kind = match.groups()
        if not any(kind in kinds for kinds in _KINDS.values()):
            raise ValueError(f"{match[0]!r} is not supported; there are {' '.join(f'%{each}' for each in 'sbdxofen%')}")
        number = None if precision is None else int(precision)
        found.append(_Part(kind, None if at is None else int(at) - 1, flags, int(width or 0), number))
        end = match.end()
    found.append(pattern[end:])
    if any("%" in each for each in found if isinstance(each, str)):
        raise ValueError(f"{pattern!r} has a % that no conversion follows; write %%")
    return tuple(found)


def _bad_pattern(pattern: Any) -> str | None:
    try:
        _parts(pattern)
    except ValueError as error:
        return str(error)
    return None


def _type(types: Types) -> SqlType | str:
    for given in types[1:]:
        if not (given.is_number or given.name in ("STRING", "BOOLEAN", "NULL")):
            return f"takes texts, numbers and BOOLEAN, not {given.label}; CAST it AS STRING"
    return STRING.with_null(types[0].nullable) if types[0].name in ("STRING", "NULL") else "takes a pattern first"


@by_columns
def _printf(patterns: pa.Array, *values: pa.Array) -> pa.Array:
    bits = [each.type.bit_width if pa.types.is_integer(each.type) else 64 for each in values]
    reals: list[Callable[[float], Any]] = [np.float32 if pa.types.is_float32(each.type) else float for each in values]
    rows = zip(patterns.to_pylist(), *(each.to_pylist() for each in values), strict=True)
    return pa.array([None if pattern is None else _formatted(pattern, row, bits, reals) for pattern, *row in rows], pa.string())


def _formatted(pattern: str, values: list[Any], bits: list[int], reals: list[Callable[[float], Any]]) -> str:
    found = []
    following = 0
    for part in _parts(pattern):
        if isinstance(part, str):
            found.append(part)
            continue
        if part.kind in _KINDS["NONE"]:
            found.append("\n" if part.kind == "n" else _filled("%", part))
            continue
        at = following if part.at is None else part.at
        following += part.at is None
        if not 0 <= at < len(values):
            raise ValueError(f"{pattern!r} has an argument {at + 1}, which is not given")
        found.append(_one(part, values[at], bits[at], reals[at]))
    return "".join(found)


def _one(part: _Part, value: Any, bits: int, real: Callable[[float], Any]) -> str:
    kind = part.kind.lower()
    if kind == "b":
        text = str(value if isinstance(value, bool) else value is not None).lower()
    elif kind == "s" or value is None:
        text = _text(value, real)
    elif kind == "d" and type(value) is int:
        return _number(part, f"{abs(value):{',' if ',' in part.flags else ''}}", negative=value < 0)
    elif kind in "xo" and type(value) is int:
        digits = f"{value % 2**bits:{'#' if '#' in part.flags else ''}{kind}}"
        digits = digits.replace("0o", "0", 1) if kind == "o" else digits
        return _filled(digits.upper() if part.kind.isupper() else digits, part, zeros="0" in part.flags)
    elif kind in "fe" and isinstance(value, float | Decimal):
        return _real(part, value, real)
    else:
        raise ValueError(f"%{part.kind} takes no {type(value).__name__}, such as {value!r}")
    text = text if part.precision is None else text[: part.precision]
    return _filled(text.upper() if part.kind.isupper() else text, part)


def _text(value: Any, real: Callable[[float], Any]) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return java_real(value, str(real(value))) if isinstance(value, float) else str(value)


def _real(part: _Part, value: float | Decimal, real: Callable[[float], Any]) -> str:
    if isinstance(value, float) and not np.isfinite(value):
        text = "NaN" if value != value else "Infinity"
        return _filled(f"{'-' if value < 0 else '+' * ('+' in part.flags)}{text}", part)
    digits = 6 if part.precision is None else part.precision
    exact = Decimal(str(real(value))) if isinstance(value, float) else value
    if part.kind == "f":
        rounded = abs(exact).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
        return _number(part, f"{rounded:{',' if ',' in part.flags else ''}f}", negative=exact.is_signed())
    power = abs(exact).adjusted() if exact else 0
    figure = abs(exact).scaleb(-power).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    if figure >= 10:  # rounded up
        figure, power = (figure / 10).quantize(Decimal(1).scaleb(-digits)), power + 1
    text = f"{figure:f}e{'-' if power < 0 else '+'}{abs(power):02}"
    return _number(part, text.upper() if part.kind == "E" else text, negative=exact.is_signed())


def _number(part: _Part, digits: str, *, negative: bool) -> str:
    before = ("(" if "(" in part.flags else "-") if negative else "+" if "+" in part.flags else " " if " " in part.flags else ""
    after = ")" if before == "(" else ""
    if "0" in part.flags:
        digits = digits.rjust(part.width - len(before) - len(after), "0")
    return _filled(f"{before}{digits}{after}", part)


def _filled(text: str, part: _Part, *, zeros: bool = False) -> str:
    if "-" in part.flags:
        return text.ljust(part.width)
    return text.rjust(part.width, "0" if zeros else " ")


PRINTF: dict[str, Function] = {"PRINTF": Function((1, None), _type, _printf, checks=((0, _bad_pattern),))}

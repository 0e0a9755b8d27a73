"""CAST and TRY_CAST, as Flink converts: texts are trimmed, numbers print as in Java, what does not fit is an error."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.relational.functions.decimals import decimal_from, decimal_to, whole_of
from forkpoint.relational.functions.nested import with_parts
from forkpoint.relational.functions.registry import Datum, per_distinct
from forkpoint.relational.functions.seconds import cut
from forkpoint.relational.types import INTERVALS, TIMES, SqlType

_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")
_WHOLE = re.compile(r"([+-]?\d+)(?:\.\d*)?|[+-]?\.\d+", re.ASCII)
REAL = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?|NaN|Infinity)", re.ASCII)
"""A number as Java reads it."""
_DATE = r"(\d{1,4})-(\d{1,2})-(\d{1,2})"
_CLOCK = r"(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{0,9}))?)?"
_DATE_TEXT = re.compile(r"(\d{1,4})(?:-(\d{1,2}))?(?:-(\d{1,2}))?(?:[ T].*)?", re.ASCII | re.DOTALL)
_TIME_TEXT = re.compile(rf"{_CLOCK}|(\d{{1,2}})", re.ASCII)
_TIMESTAMP_TEXT = re.compile(rf"{_DATE}(?:[ T]{_CLOCK})?", re.ASCII)


def castable(source: SqlType, target: SqlType) -> bool:
    """Whether CAST converts between two types."""
    if source.is_nested or target.is_nested:
        pairs = zip(source.fields, target.fields, strict=False)
        same = source.name == target.name and len(source.fields) == len(target.fields)
        return source.name == "NULL" or (same and all(castable(one.type, other.type) for one, other in pairs))
    if source.name in ("NULL", target.name):
        return True
    if source.name in INTERVALS or target.name in INTERVALS:
        return source.name in INTERVALS and target.name == "STRING"
    if "STRING" in (source.name, target.name):
        return True
    numeric = (source.is_number or source.name == "BOOLEAN") and (target.is_number or target.name == "BOOLEAN")
    times = source.name in TIMES and target.name in TIMES
    return numeric or (times and source.name != "TIME" and (target.name != "TIME" or source.name != "DATE"))


def cast(value: Datum, target: SqlType, *, failing_null: bool) -> Datum:
    """CAST; with ``failing_null``, TRY_CAST, which makes NULL of what cannot be converted."""
    if target.is_nested and not (value.type == target.arrow_type and target.plain is target):
        of_part = [each.type for each in target.fields]
        return with_parts(value, target.arrow_type, lambda part, at: cast(part, of_part[at], failing_null=failing_null))
    found = value if value.type == target.arrow_type else _converted(value, target, failing_null)
    return found if isinstance(target.precision, msgspec.UnsetType) else cut(found, target.precision)


def _converted(value: Datum, target: SqlType, failing_null: bool) -> Datum:
    arrow, source = target.arrow_type, value.type
    if pa.types.is_decimal(arrow):
        return decimal_from(value, arrow, failing_null=failing_null)
    if target.name in INTERVALS and pa.types.is_string(source):
        return only_null(value, arrow)
    if pa.types.is_string(source):
        return _from_text(value, target, failing_null)
    if pa.types.is_decimal(source) and not pa.types.is_integer(arrow):
        return decimal_to(value, arrow)
    if pa.types.is_string(arrow):
        return to_text(value)
    if pa.types.is_integer(arrow) and not pa.types.is_boolean(source):
        value = _within(value, target, failing_null)
    return pc.cast(value, options=pc.CastOptions(arrow, allow_float_truncate=True, allow_time_truncate=True))


def only_null(value: Datum, to: pa.DataType) -> Datum:
    """NULL, whose type is that of texts, as an interval: there is no other conversion of texts to them."""
    return pa.scalar(None, to) if isinstance(value, pa.Scalar) else pa.nulls(len(value), to)


def _within(value: Datum, target: SqlType, failing_null: bool) -> Datum:
    """The numbers if the type has room for them, without their fractions."""
    bits = target.arrow_type.bit_width
    if pa.types.is_floating(value.type):
        whole = pc.trunc(pc.cast(value, pa.float64()))
        fits = pc.and_(pc.greater_equal(whole, -(2.0 ** (bits - 1))), pc.less(whole, 2.0 ** (bits - 1)))
    elif not pa.types.is_decimal(value.type) and value.type.bit_width <= bits:
        return value
    else:
        whole = whole_of(value) if pa.types.is_decimal(value.type) else value
        low, high = (pa.scalar(bound, pa.int64()) for bound in (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
        fits = pc.and_(pc.greater_equal(whole, low), pc.less_equal(whole, high))
    if pc.all(fits, min_count=0).as_py() if isinstance(fits, pa.Array) else fits.as_py() is not False:
        return whole
    if failing_null:
        return pc.if_else(fits, whole, pa.scalar(None, whole.type))
    wrong = value if isinstance(value, pa.Scalar) else value.filter(pc.invert(fits))[0]
    raise ValueError(f"{wrong} exceeds {target.name}")


# -- from texts --------------------------------------------------------------------------------------------------------


def _from_text(value: Datum, target: SqlType, failing_null: bool) -> Datum:
    arrow = target.arrow_type
    if target.name == "BYTES":
        return pc.cast(value, arrow)
    parse = _parser(target)

    def converted(text: str) -> Any:
        found = parse(text.strip())
        if found is None and not failing_null:
            raise ValueError(f"{text!r} is no {target.name}")
        return found

    return per_distinct(converted, arrow, value)


def _parser(target: SqlType) -> Callable[[str], Any]:
    if target.is_integer:
        limit = 2 ** (target.arrow_type.bit_width - 1)
        return lambda text: found if (found := _whole(text)) is not None and -limit <= found < limit else None
    return _PARSERS[target.name]


def _boolean(text: str) -> bool | None:
    word = text.lower()
    return True if word in _TRUE else False if word in _FALSE else None


def _whole(text: str) -> int | None:
    """The integer part, if the text is a number without exponent."""
    found = _WHOLE.fullmatch(text)
    return None if found is None else int(found[1] or 0)


def _real(text: str) -> float | None:
    return float(text.rstrip("fFdD") if text[-1:] in "fFdD" else text) if REAL.fullmatch(text) else None


def date_of(text: str) -> date | None:
    """``2020-01-31``, also with single digits, without day or month, and with a time, which is left out."""
    found = _DATE_TEXT.fullmatch(text)
    try:
        return None if found is None else date(*map(int, found.groups("1")))
    except ValueError:
        return None


def _time(text: str) -> time | None:
    found = _TIME_TEXT.fullmatch(text)
    try:
        return None if found is None else time(*_clock((found[1] or found[5], *found.groups()[1:4])))
    except ValueError:
        return None


def timestamp_of(text: str) -> datetime | None:
    """``2020-01-31 10:00:00``, also without time, with a fraction, or a T. Digits after microseconds are dropped."""
    found = _TIMESTAMP_TEXT.fullmatch(text)
    if found is None:
        return None
    parts = found.groups()
    try:
        return datetime(*map(int, parts[:3]), *_clock(parts[3:]))  # type: ignore[arg-type, call-arg] # noqa: DTZ001
    except ValueError:
        return None


def _clock(parts: tuple[str | None, ...]) -> tuple[int, int, int, int]:
    hour, minute, second, fraction = parts
    return int(hour or 0), int(minute or 0), int(second or 0), int((fraction or "").ljust(6, "0")[:6])


_PARSERS: dict[str, Callable[[str], Any]] = {
    "BOOLEAN": _boolean,
    "FLOAT": _real,
    "DOUBLE": _real,
    "DATE": date_of,
    "TIME": _time,
    "TIMESTAMP": timestamp_of,
    "TIMESTAMP_LTZ": timestamp_of,
}


# -- to texts ----------------------------------------------------------------------------------------------------------


def to_text(value: Datum) -> Datum:
    """A value that has no parts as CAST writes it."""
    of = value.type
    if pa.types.is_boolean(of):
        return pc.if_else(value, "TRUE", "FALSE")
    if pa.types.is_float32(of):
        return per_distinct(lambda number: java_real(number, str(np.float32(number))), pa.string(), value)
    if pa.types.is_floating(of):
        return per_distinct(lambda number: java_real(number, repr(number)), pa.string(), value)
    if pa.types.is_timestamp(of):
        return _without_zeros(pc.cast(pc.cast(value, pa.timestamp("us")), pa.string()))
    if pa.types.is_time(of):
        return _without_zeros(pc.cast(value, pa.string()))
    return pc.cast(value, pa.string())


def _without_zeros(text: Datum) -> Datum:
    """Fractions of seconds have 0, 3 or 6 digits."""
    return pc.replace_substring_regex(pc.replace_substring_regex(text, r"\.000000$", ""), r"(\.\d{3})000$", r"\1")


def java_real(number: float, digits: str) -> str:
    """As Java prints it: ``1.0``, ``1.0E10``. ``digits``: the shortest text that is this number."""
    if number != number:
        return "NaN"
    if number in (float("inf"), float("-inf")):
        return "Infinity" if number > 0 else "-Infinity"
    sign, figures, exponent = Decimal(digits).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, figures)).lstrip("0")
    minus = "-" if sign else ""
    if not text:
        return f"{minus}0.0"
    magnitude = len(text) + exponent - 1
    text = text.rstrip("0")
    if not -3 <= magnitude < 7:
        return f"{minus}{text[0]}.{text[1:] or '0'}E{magnitude}"
    if magnitude < 0:
        return f"{minus}0.{'0' * (-magnitude - 1)}{text}"
    return f"{minus}{text[: magnitude + 1].ljust(magnitude + 1, '0')}.{text[magnitude + 1 :] or '0'}"

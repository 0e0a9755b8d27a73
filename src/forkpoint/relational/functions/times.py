"""Functions of dates and times. A TIMESTAMP_LTZ is read in UTC."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.relational.functions.casts import date_of, timestamp_of
from forkpoint.relational.functions.registry import (
    Datum,
    Function,
    Literals,
    Types,
    any_null,
    fixed,
    per_distinct,
    signature,
    typed,
)
from forkpoint.relational.functions.time_formats import bad_format, bad_parser, formatted, parsed
from forkpoint.relational.types import BIGINT, INTEGERS, STORED, STRING, SqlType

UNITS = {"SECOND": 10**6, "MINUTE": 60 * 10**6, "HOUR": 3600 * 10**6, "DAY": 86400 * 10**6, "WEEK": 7 * 86400 * 10**6}
"""In microseconds."""
MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_DAY = UNITS["DAY"]
_NAIVE = pa.timestamp("us")
_DATED, _CLOCKED = ("DATE", "TIMESTAMP", "TIMESTAMP_LTZ"), ("TIME", "TIMESTAMP", "TIMESTAMP_LTZ")
_DEFAULT = "yyyy-MM-dd HH:mm:ss"
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001
_FIRST, _LAST = (-719162 * _DAY, 2932897 * _DAY - 1)  # from year 1 to 9999

_PARTS: dict[str, tuple[tuple[str, ...], Callable[[Datum], Datum]]] = {
    "YEAR": (_DATED, pc.year),
    "QUARTER": (_DATED, pc.quarter),
    "MONTH": (_DATED, pc.month),
    "WEEK": (_DATED, pc.iso_week),
    "DAY": (_DATED, pc.day),
    "DOY": (_DATED, pc.day_of_year),
    "DOW": (_DATED, lambda t: pc.day_of_week(t, count_from_zero=False, week_start=7)),
    "ISODOW": (_DATED, lambda t: pc.day_of_week(t, count_from_zero=False, week_start=1)),
    "ISOYEAR": (_DATED, pc.iso_year),
    "HOUR": (_CLOCKED, pc.hour),
    "MINUTE": (_CLOCKED, pc.minute),
    "SECOND": (_CLOCKED, pc.second),
}
_PART_NAMES = {"YEAR", "QUARTER", "MONTH", "WEEK", "HOUR", "MINUTE", "SECOND"}
_OTHER_PARTS = {"DAYOFYEAR": "DOY", "DAYOFMONTH": "DAY", "DAYOFWEEK": "DOW"}


def _naive(moment: Datum) -> Datum:
    return pc.cast(moment, _NAIVE) if pa.types.is_timestamp(moment.type) and moment.type.tz else moment


def _part(name: str) -> Function:
    accepted, kernel = _PARTS[name]
    return Function((1, 1), typed(fixed(BIGINT, *accepted)), lambda moment: pc.cast(kernel(_naive(moment)), pa.int64()))


# -- arithmetic --------------------------------------------------------------------------------------------------------


def _same(types: Types) -> SqlType:
    return types[0].with_null(any_null(types))


def _with_digits(of: SqlType, literals: Literals) -> SqlType:
    """The type of a time to which microseconds are added: with no fewer digits of seconds than they have."""
    count, digits = literals[1], STORED if isinstance(of.precision, msgspec.UnsetType) else of.precision
    return of if isinstance(count, int) and count % 10 ** max(0, STORED - digits) == 0 else of.plain


def _plus_microseconds(moment: Datum, count: Datum) -> Datum:
    of, step = moment.type, pc.cast(count, pa.int64())
    if pa.types.is_date(of):
        days = pc.add_checked(pc.cast(pc.cast(moment, pa.int32()), pa.int64()), pc.divide(step, _DAY))
        return pc.cast(pc.cast(_in_years(days, _DAY), pa.int32()), of)
    total = pc.add_checked(pc.cast(moment, pa.int64()), step)
    if pa.types.is_time(of):  # a time of day goes round
        rest = pc.subtract(total, pc.multiply(pc.divide(total, _DAY), _DAY))
        total = pc.if_else(pc.less(rest, 0), pc.add(rest, _DAY), rest)
    else:
        _in_years(total, 1)
    return pc.cast(total, of)


def _in_years(count: Datum, unit: int) -> Datum:
    """The counts, of ``unit`` microseconds from 1970 on, if they are in the years from 1 to 9999."""
    fits = pc.and_(pc.greater_equal(count, _FIRST // unit), pc.less_equal(count, _LAST // unit))
    if pc.any(pc.invert(fits), min_count=0).as_py() if isinstance(fits, pa.Array) else fits.as_py() is False:
        raise ValueError("the result exceeds the years from 1 to 9999")
    return count


def _plus_months(moment: Datum, count: Datum) -> Datum:
    return per_distinct(_months_later, moment.type, moment, count)


def _months_later(moment: Any, count: int) -> Any:
    """The same day of the month, or the last one if the month is shorter."""
    year, month = divmod(moment.year * 12 + moment.month - 1 + count, 12)
    if not 1 <= year <= 9999:
        raise ValueError(f"{moment} and {count} months exceed the years from 1 to 9999")
    return moment.replace(year=year, month=month + 1, day=min(moment.day, monthrange(year, month + 1)[1]))


def _difference(unit: str) -> Function:
    """TIMESTAMPDIFF: whole units, towards zero."""

    def kernel(start: Datum, end: Datum) -> Datum:
        first, last = (pc.cast(_naive(moment), _NAIVE) for moment in (start, end))
        if unit in MONTHS:
            return per_distinct(lambda a, b: _whole_months(a, b, MONTHS[unit]), pa.int32(), first, last)
        gap = pc.subtract_checked(pc.cast(last, pa.int64()), pc.cast(first, pa.int64()))
        return pc.cast(pc.divide(gap, UNITS[unit]), pa.int32())

    return Function((2, 2), fixed(SqlType("INT"), *_DATED), kernel)


def _whole_months(start: datetime, end: datetime, size: int) -> int:
    if end < start:
        return -_whole_months(end, start, size)
    months = (end.year - start.year) * 12 + end.month - start.month
    if _months_later(start, months) > end:
        months -= 1
    return months // size


def _rounded(unit: str, up: bool) -> Function:
    """FLOOR and CEIL to a unit. Weeks begin on Sunday."""
    accepted = _DATED if unit in (*MONTHS, "WEEK", "DAY") else _CLOCKED

    def kernel(moment: Datum) -> Datum:
        if pa.types.is_time(moment.type):
            step = UNITS[unit]
            count = pc.add(pc.cast(moment, pa.int64()), step - 1 if up else 0)
            return pc.cast(pc.multiply(pc.divide(count, step), step), moment.type)
        exact = _naive(moment)
        found = pc.floor_temporal(exact, unit=unit.lower(), week_starts_monday=False)
        if up:  # Arrow takes the first of a month to the next month
            above = pc.ceil_temporal(exact, unit=unit.lower(), week_starts_monday=False)
            found = pc.if_else(pc.equal(found, exact), exact, above)
        return pc.cast(found, moment.type)

    def result(types: Types) -> SqlType | str:
        found = fixed(types[0], *accepted)(types)
        return f"to {unit} {found}" if isinstance(found, str) else found

    return Function((1, 1), typed(result), kernel)


# -- texts -------------------------------------------------------------------------------------------------------------


def _date_format(moment: Datum, pattern: Datum) -> Datum:
    if pa.types.is_string(moment.type):
        moment = per_distinct(timestamp_of, _NAIVE, moment)
    elif pa.types.is_date(moment.type):
        moment = pc.cast(moment, _NAIVE)
    return per_distinct(formatted, pa.string(), _naive(moment), pattern)


def _to_date(text: str, pattern: str | None = None) -> date | None:
    if pattern is None:
        return date_of(text.strip())
    found = parsed(text, pattern)
    return None if found is None else found.date()


def _to_timestamp(text: str, pattern: str | None = None) -> datetime | None:
    return timestamp_of(text.strip()) if pattern is None else parsed(text, pattern)


def _unix_timestamp(text: str, pattern: str = _DEFAULT) -> int:
    found = parsed(text, pattern)
    return -(2**63) if found is None else (found - _EPOCH) // timedelta(seconds=1)


def _from_unixtime(seconds: int, pattern: str = _DEFAULT) -> str:
    try:
        return formatted(_EPOCH + timedelta(seconds=seconds), pattern)
    except OverflowError:
        raise ValueError(f"{seconds} seconds exceed the years from 1 to 9999") from None


def _to_timestamp_ltz(count: Datum, precision: Datum | None = None) -> Datum:
    factor = 1000 if precision is None else per_distinct(_microseconds_per, pa.int64(), precision)
    total = pc.multiply_checked(pc.cast(count, pa.int64()), factor)
    return pc.cast(_in_years(total, 1), _LTZ.arrow_type)


def _microseconds_per(precision: int) -> int:
    if precision not in (0, 3):
        raise ValueError(f"the precision of TO_TIMESTAMP_LTZ is 0 or 3, not {precision}")
    return 10**6 if precision == 0 else 1000


def _made(function: Callable[..., Any], result: pa.DataType) -> Callable[..., Datum]:
    return lambda *arguments: per_distinct(function, result, *arguments)


_TEXT = ("STRING",)
_MOMENT = (*_DATED, *_TEXT)
_LTZ = SqlType("TIMESTAMP_LTZ", precision=3)

_OLD_ZONES = {
    "PST": "America/Los_Angeles",
    "CST": "America/Chicago",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "CTT": "Asia/Shanghai",
}
_OFFSET = re.compile(r"(?:GMT|UTC)([+-])(\d{1,2})(?::?(\d{2}))?", re.ASCII)


@lru_cache(256)
def _zone(name: str) -> tzinfo:
    """A time zone by one of Java's names. Raises ValueError."""
    found = _OFFSET.fullmatch(name)
    if found is not None and int(found[2]) < 24:
        offset = timedelta(hours=int(found[2]), minutes=int(found[3] or 0))
        return timezone(-offset if found[1] == "-" else offset)
    try:
        return ZoneInfo(_OLD_ZONES.get(name, name))
    except (ZoneInfoNotFoundError, ValueError):
        raise ValueError(f"there is no time zone {name!r}") from None


def _bad_zone(name: Any) -> str | None:
    try:
        _zone(name)
    except ValueError as error:
        return str(error)
    return None


def _in_zone(text: str, one: str, other: str) -> str | None:
    """NULL for a text that is no time."""
    found = parsed(text, "yyyy-MM-dd HH:mm:ss")
    return None if found is None else f"{found.replace(tzinfo=_zone(one)).astimezone(_zone(other)):%Y-%m-%d %H:%M:%S}"


TIMES: dict[str, Function] = {
    **{f"EXTRACT {name}": _part(name) for name in _PARTS},
    **{f"TIMESTAMPDIFF {unit}": _difference(unit) for unit in (*UNITS, *MONTHS)},
    **{f"FLOOR TO {unit}": _rounded(unit, False) for unit in (*UNITS, *MONTHS)},
    **{f"CEIL TO {unit}": _rounded(unit, True) for unit in (*UNITS, *MONTHS)},
    "PLUS MICROSECONDS": Function((2, 2), _same, _plus_microseconds, refined=_with_digits),
    "PLUS MONTHS": Function((2, 2), _same, _plus_months),
    "DATE_FORMAT": Function((2, 2), signature(STRING, _MOMENT, _TEXT), _date_format, checks=((1, bad_format),)),
    "TO_DATE": Function(
        (1, 2), signature(SqlType("DATE"), _TEXT, _TEXT, nullable=True), _made(_to_date, pa.date32()), checks=((1, bad_parser),)
    ),
    "TO_TIMESTAMP": Function(
        (1, 2),
        signature(SqlType("TIMESTAMP"), _TEXT, _TEXT, nullable=True),
        _made(_to_timestamp, _NAIVE),
        checks=((1, bad_parser),),
    ),
    "TO_TIMESTAMP_LTZ": Function((1, 2), signature(_LTZ, INTEGERS, INTEGERS), _to_timestamp_ltz),
    "UNIX_TIMESTAMP": Function(
        (1, 2), signature(BIGINT, _TEXT, _TEXT), _made(_unix_timestamp, pa.int64()), checks=((1, bad_parser),)
    ),
    "FROM_UNIXTIME": Function(
        (1, 2), signature(STRING, INTEGERS, _TEXT), _made(_from_unixtime, pa.string()), checks=((1, bad_format),)
    ),
    "CONVERT_TZ": Function(
        (3, 3),
        signature(STRING, _TEXT, _TEXT, _TEXT, nullable=True),
        lambda *of: per_distinct(_in_zone, pa.string(), *of),
        checks=((1, _bad_zone), (2, _bad_zone)),
    ),
    "UNIX_MILLIS": Function(
        (1, 1),
        fixed(BIGINT, "TIMESTAMP_LTZ"),
        lambda moment: moment.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64()),
    ),
}
"""Units are part of the names: SQL writes them as keywords, not as values."""

PART_FUNCTIONS = {**{name: f"EXTRACT {name}" for name in _PART_NAMES}, **{k: f"EXTRACT {v}" for k, v in _OTHER_PARTS.items()}}
"""``YEAR(t)`` is ``EXTRACT(YEAR FROM t)``."""

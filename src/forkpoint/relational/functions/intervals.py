"""Intervals as values: differences of times, their sums and multiples, and their texts. Those of days are microseconds, those of
years months."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.relational.functions.registry import Datum, Function, Types, any_null, per_distinct
from forkpoint.relational.functions.times import TIMES
from forkpoint.relational.types import INTERVAL_OF_DAYS, INTERVAL_OF_MONTHS, INTERVALS, STRING, SqlType

_DATED = ("DATE", "TIMESTAMP", "TIMESTAMP_LTZ")
_US = pa.duration("us")


def _difference(later: Datum, earlier: Datum) -> Datum:
    if pa.types.is_time(later.type):
        return pc.cast(pc.subtract(pc.cast(later, pa.int64()), pc.cast(earlier, pa.int64())), _US)
    first, last = (pc.cast(pc.cast(each, pa.timestamp("us")), pa.int64()) for each in (earlier, later))
    return pc.cast(pc.subtract_checked(last, first), _US)


def _plus(moment: Datum, interval: Datum) -> Datum:
    if pa.types.is_duration(interval.type):
        return TIMES["PLUS MICROSECONDS"].kernel(moment, pc.cast(interval, pa.int64()))
    return TIMES["PLUS MONTHS"].kernel(moment, interval)


def _counted(kernel: Callable[..., Datum]) -> Callable[..., Datum]:
    """A kernel of numbers over intervals. The result has the type of the first one."""

    def computed(*values: Datum) -> Datum:
        of = values[0].type
        numbers = [pc.cast(each, pa.int64()) if pa.types.is_duration(each.type) else each for each in values]
        return pc.cast(kernel(*numbers), pa.int64()).cast(of)

    return computed


def _divided(interval: Datum, by: Datum) -> Datum:
    return pc.divide_checked(interval, by)


def _same(types: Types) -> SqlType | str:
    if any(each.name != types[0].name for each in types):
        return f"takes intervals of one kind, not {' and '.join(each.name for each in types)}"
    return types[0].with_null(any_null(types))


def _multiple(types: Types) -> SqlType | str:
    if not types[1].is_integer:
        return f"takes an integer beside an interval, not {types[1].name}"
    return types[0].with_null(any_null(types))


def _days_text(of: Any) -> str:
    us = (of.days * 86_400 + of.seconds) * 10**6 + of.microseconds
    seconds, rest = divmod(abs(us), 10**6)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f"{rest:06}" if rest % 1000 else f"{rest // 1000:03}"
    return f"{'-' if us < 0 else '+'}{hours // 24} {hours % 24:02}:{minutes:02}:{seconds:02}.{fraction}"


def _months_text(months: int) -> str:
    return f"{'-' if months < 0 else '+'}{abs(months) // 12}-{abs(months) % 12:02}"


def _as_text(function: Callable[[Any], str]) -> Function:
    return Function(
        (1, 1), lambda types: STRING.with_null(any_null(types)), lambda value: per_distinct(function, pa.string(), value)
    )


def _later(types: Types) -> SqlType | str:
    """The type of a time to which an interval is added."""
    time, interval = types
    if time.name not in (*_DATED, "TIME") or (time.name == "TIME" and interval.name == INTERVAL_OF_MONTHS):
        return f"takes a time beside an interval, not {time.name} and {interval.name}"
    return (time if interval.name == INTERVAL_OF_MONTHS else time.plain).with_null(any_null(types))


def _between(types: Types) -> SqlType:
    return SqlType(INTERVAL_OF_DAYS, any_null(types))


OF_INTERVALS: dict[str, Function] = {
    "TIMES -": Function((2, 2), _between, _difference),
    "TIME + INTERVAL": Function((2, 2), _later, _plus),
    "INTERVAL +": Function((2, 2), _same, _counted(pc.add_checked)),
    "INTERVAL -": Function((2, 2), _same, _counted(pc.subtract_checked)),
    "INTERVAL *": Function((2, 2), _multiple, _counted(pc.multiply_checked)),
    "INTERVAL /": Function((2, 2), _multiple, _counted(_divided)),
    "INTERVAL NEGATE": Function((1, 1), _same, _counted(pc.negate_checked)),
    f"{INTERVAL_OF_DAYS} TEXT": _as_text(_days_text),
    f"{INTERVAL_OF_MONTHS} TEXT": _as_text(_months_text),
}


def operator_of(name: str, types: Types) -> tuple[str, bool] | None:
    """The function that an arithmetic operator is for these types, and whether its arguments are swapped; None if it is one of
    numbers."""
    are_intervals = [each.name in INTERVALS for each in types]
    match name, are_intervals:
        case "NEGATE", [True]:
            return "INTERVAL NEGATE", False
        case ("+" | "-", [True, True]) | ("*" | "/", [True, False]):
            return f"INTERVAL {name}", False
        case "*", [False, True]:
            return "INTERVAL *", True
        case "+", [True, False]:
            return "TIME + INTERVAL", True
        case "+" | "-", [False, True]:
            return f"TIME {name} INTERVAL", False
    both = {each.name for each in types}
    if name == "-" and (both == {"TIME"} or both <= {*_DATED}) and ("TIMESTAMP_LTZ" not in both or len(both) == 1):
        return "TIMES -", False
    return None

"""Binds what SQL writes with units of time: EXTRACT, FLOOR and CEIL to a unit, intervals, TIMESTAMPADD and TIMESTAMPDIFF."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from sqlglot import exp

from forkpoint.relational.expressions import Expression, Literal
from forkpoint.relational.functions import FUNCTIONS
from forkpoint.relational.functions.intervals import operator_of
from forkpoint.relational.functions.times import MONTHS, UNITS
from forkpoint.relational.types import INTERVAL_OF_DAYS, INTERVAL_OF_MONTHS, INTERVALS, SqlType
from forkpoint.sql.tokens import CALL

if TYPE_CHECKING:
    from forkpoint.sql.binding.expressions import Binder

    Node = Any

TIME_CALLS = ("TIMESTAMPADD", "TIMESTAMPDIFF")
_YEAR_TO_MONTH = re.compile(r"([+-]?)(\d+)-(\d+)", re.ASCII)
_FIELDS = ("DAY", "HOUR", "MINUTE", "SECOND")


def bind_time(binder: Binder, node: Node) -> Expression | None:
    """The expression, if it is one of those; None otherwise."""
    match node:
        case exp.Extract():
            return _unit_call(binder, node, "EXTRACT", _unit(node.this), [node.expression])
        case exp.Floor() | exp.Ceil() if node.args.get("to") is not None:
            return _unit_call(binder, node, f"{node.sql_name()} TO", _unit(node.args["to"]), [node.this])
        case exp.Add(this=moment, expression=exp.Interval() as interval):
            return _plus(binder, node, binder.bind(moment), *interval_of(binder, interval))
        case exp.Add(this=exp.Interval() as interval, expression=moment):
            return _plus(binder, node, binder.bind(moment), *interval_of(binder, interval))
        case exp.Sub(this=moment, expression=exp.Interval() as interval):
            unit, count = interval_of(binder, interval)
            return _plus(binder, node, binder.bind(moment), unit, -count)
        case exp.Overlaps(this=exp.Tuple() as one, expression=exp.Tuple() as other):
            (from_one, to_one), (from_other, to_other) = (_period(binder, each) for each in (one, other))
            meets = binder.call(">=", node, [to_one, from_other])
            return binder.call("AND", node, [meets, binder.call(">=", node, [to_other, from_one])])
        case exp.Anonymous() if str(node.this).removeprefix(CALL) in TIME_CALLS:
            return _call(binder, node, str(node.this).removeprefix(CALL))
    return None


def _period(binder: Binder, node: Node) -> tuple[Expression, Expression]:
    """The first and the last moment of two times, or of a time and an interval, of a period of OVERLAPS."""
    if len(node.expressions) != 2:
        raise binder.error(node, "a period is a time and another one, or an interval: (begin, end)")
    begin, end = node.expressions
    first, last = binder.bind(begin), binder.bind(end)
    if isinstance(end, exp.Interval):
        last = _plus(binder, node, first, *interval_of(binder, end))
    elif last.type.name in INTERVALS:
        last = operated(binder, "+", node, [first, last])
    return binder.call("LEAST", node, [first, last]), binder.call("GREATEST", node, [first, last])


def _unit(node: Node) -> str:
    """A unit's name: SQL's TIMESTAMPADD may have the prefix SQL_TSI_."""
    return str(node.name).upper().removeprefix("SQL_TSI_")


def _unit_call(binder: Binder, node: Node, function: str, unit: str, arguments: list[Node]) -> Expression:
    name = f"{function} {unit}"
    if name not in FUNCTIONS:
        units = ", ".join(each.removeprefix(f"{function} ") for each in FUNCTIONS if each.startswith(f"{function} "))
        raise binder.error(node, f"{function} has no unit {unit}; there are {units}")
    return binder.call(name, node, [binder.bind(argument) for argument in arguments], arguments)


def _call(binder: Binder, node: Node, name: str) -> Expression:
    arguments = node.expressions
    if len(arguments) != 3:
        raise binder.error(node, f"{name} takes a unit and 2 arguments")
    unit = _unit(arguments[0])
    if name == "TIMESTAMPDIFF":
        return _unit_call(binder, node, name, unit, arguments[1:])
    if unit not in UNITS and unit not in MONTHS:
        raise binder.error(node, f"{name} has no unit {unit}; there are {', '.join((*UNITS, *MONTHS))}")
    count, moment = map(binder.bind, arguments[1:])
    if not (count.type.is_integer or count.type.name == "NULL"):
        raise binder.error(arguments[1], f"{name} takes an integer as argument 2, not {count.type.name}")
    factor = Literal(UNITS.get(unit) or MONTHS[unit], SqlType("BIGINT", nullable=False))
    return _add(binder, node, moment, unit, binder.call("*", node, [count, factor]))


def _plus(binder: Binder, node: Node, moment: Expression, unit: str, count: int) -> Expression:
    return _add(binder, node, moment, unit, Literal(count, SqlType("BIGINT", nullable=False)))


def _add(binder: Binder, node: Node, moment: Expression, unit: str, count: Expression) -> Expression:
    """A time later by ``count`` months or microseconds, of which ``unit`` is made."""
    of = moment.type.name
    if of in INTERVALS:
        kind = INTERVAL_OF_MONTHS if unit in MONTHS else INTERVAL_OF_DAYS
        span = replace(count, type=SqlType(kind, nullable=False)) if isinstance(count, Literal) else count
        return binder.call("INTERVAL +", node, [moment, span])
    if of not in ("DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ"):
        raise binder.error(node, f"an interval can be added to a time, not to {of}")
    if of == "DATE" and unit in ("HOUR", "MINUTE", "SECOND"):
        raise binder.error(node, f"a DATE has no {unit}; CAST it AS TIMESTAMP")
    if of == "TIME" and unit not in ("HOUR", "MINUTE", "SECOND"):
        raise binder.error(node, f"a TIME has no {unit}")
    return binder.call("PLUS MONTHS" if unit in MONTHS else "PLUS MICROSECONDS", node, [moment, count])


def interval_literal(binder: Binder, node: Node) -> Literal:
    """An interval as a value: of months, or of microseconds."""
    unit, count = interval_of(binder, node)
    return Literal(count, SqlType(INTERVAL_OF_MONTHS if unit in MONTHS else INTERVAL_OF_DAYS, nullable=False))


def operated(binder: Binder, name: str, node: Node, arguments: list[Expression]) -> Expression:
    """An operator of numbers, intervals or times."""
    found = operator_of(name, [each.type for each in arguments])
    if found is None:
        return binder.call(name, node, arguments)
    function, swapped = found
    first, *others = reversed(arguments) if swapped else arguments
    if function == "TIME - INTERVAL":
        function, others = "TIME + INTERVAL", [binder.call("INTERVAL NEGATE", node, others)]
    return binder.call(function, node, [first, *others])


def interval_of(binder: Binder, node: Node) -> tuple[str, int]:
    """The smallest unit of an interval, and its months or microseconds."""
    value, unit = node.this, node.args.get("unit")
    if not isinstance(value, exp.Literal) or not value.is_string or unit is None:
        raise binder.error(node, "an interval is a text and a unit, such as INTERVAL '1' DAY; for other counts, use TIMESTAMPADD")
    text = str(value.this).strip()
    first, last = (unit.this.name, unit.expression.name) if isinstance(unit, exp.IntervalSpan) else (_single(unit),) * 2
    first, last = first.upper(), last.upper()
    found = _months(text, first, last) if first in MONTHS else _microseconds(text, first, last)
    if found is None:
        span = first if first == last else f"{first} TO {last}"
        raise binder.error(
            node, f"INTERVAL '{text}' {span} is not supported; write INTERVAL '1' DAY, or '1 02:03:04' DAY TO SECOND"
        )
    return last, found


def _single(unit: Node) -> str:
    """``DAY(3)``, with a precision, is read as a function. ``DAYS`` is DAY."""
    return str(unit.sql_name() if isinstance(unit, exp.Func) else unit.name).upper().removesuffix("S")


def _months(text: str, first: str, last: str) -> int | None:
    if first == last:
        return int(text) * MONTHS[first] if re.fullmatch(r"[+-]?\d+", text, re.ASCII) else None
    found = _YEAR_TO_MONTH.fullmatch(text) if (first, last) == ("YEAR", "MONTH") else None
    if found is None or int(found[3]) > 11:
        return None
    return (int(found[2]) * 12 + int(found[3])) * (-1 if found[1] == "-" else 1)


def _microseconds(text: str, first: str, last: str) -> int | None:
    if first == last == "WEEK":
        return int(text) * UNITS["WEEK"] if re.fullmatch(r"[+-]?\d+", text, re.ASCII) else None
    if first not in _FIELDS or last not in _FIELDS:
        return None
    fields = _FIELDS[_FIELDS.index(first) : _FIELDS.index(last) + 1]
    parts = [rf"(?P<{field}>\d+)" for field in fields]
    expression = "".join(part if i == 0 else (" " if fields[i - 1] == "DAY" else ":") + part for i, part in enumerate(parts))
    fraction = r"(?:\.(?P<fraction>\d{1,9}))?" if last == "SECOND" else ""
    found = re.fullmatch(f"(?P<sign>[+-]?){expression}{fraction}", text, re.ASCII) if fields else None
    if found is None or any(int(found[field]) >= (24 if field == "HOUR" else 60) for field in fields[1:]):
        return None
    total = sum(int(found[field]) * UNITS[field] for field in fields)
    if fraction:
        total += int((found["fraction"] or "").ljust(6, "0")[:6])
    return -total if found["sign"] == "-" else total

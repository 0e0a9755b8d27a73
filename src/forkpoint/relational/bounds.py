"""Recognises what event time bounds: joins whose condition bounds both times by each other, or demands one window, and OVER with
the partitions of windows."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from forkpoint.relational.canonical import last_moment
from forkpoint.relational.event_time import rowtimes
from forkpoint.relational.expressions import Call, Column, Expression, Literal, all_of, columns_of, conjuncts_of, replace_columns
from forkpoint.relational.plan import (
    LEFT,
    RIGHT,
    Join,
    Over,
    Plan,
    Select,
    Within,
    is_updating,
    keys_of,
    unwrapped,
    window_columns,
)
from forkpoint.relational.types import SqlType
from forkpoint.relational.windows import Role, Windows

Conditions = tuple[Expression, ...]
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


def bounded(plan: Plan) -> Plan:
    """The plan of FROM and WHERE with the joins that event time bounds marked as such, also those whose bounds are in WHERE."""
    if isinstance(plan, Join):
        return _marked(plan, ()).join
    if isinstance(plan, Select) and isinstance(plan.input, Select):
        return replace(plan, input=bounded(plan.input))
    if isinstance(plan, Select) and isinstance(plan.input, Join):
        found = _marked(plan.input, conjuncts_of(plan.condition))
        return replace(plan, input=found.join, condition=all_of(found.above)) if found.join != plan.input else plan
    return plan


class _Marked(NamedTuple):
    """A join, unchanged if no time bounds it or joins below, and the conditions on its result that it has not taken."""

    join: Join
    above: Conditions


def _marked(join: Join, above: Conditions) -> _Marked:
    own, inner = conjuncts_of(join.condition), join.kind == "inner"
    if inner:
        own, above = (*own, *above), ()
    changed = join
    if isinstance(join.left, Join):
        given = own if inner else above if join.kind in ("left", "semi", "anti") else ()
        passed = tuple(each for each in given if _reads_left_only(each))
        below = _marked(join.left, tuple(_renamed(each, LEFT, "") for each in passed))
        if below.join != join.left:
            left_over = tuple(_renamed(each, "", LEFT) for each in below.above)
            own, above = (_replaced(each, passed, left_over) for each in (own, above))
            changed = replace(join, left=below.join, condition=all_of(own))
    found = _bounds(changed, own)
    if found is not None:
        within, bounds = found
        changed = replace(changed, condition=all_of(tuple(each for each in own if each not in bounds)), within=within)
    elif inner and changed is join:
        return _Marked(join, tuple(each for each in own if each not in conjuncts_of(join.condition)))
    return _Marked(changed, above)


def _reads_left_only(condition: Expression) -> bool:
    return all(column.name.startswith(LEFT) for column in columns_of(condition))


def _renamed(condition: Expression, old: str, new: str) -> Expression:
    return replace_columns(condition, lambda column: Column(new + column.name.removeprefix(old), column.type))


def _replaced(conditions: Conditions, old: Conditions, new: Conditions) -> Conditions:
    return (*(each for each in conditions if each not in old), *(new if any(each in old for each in conditions) else ()))


def _bounds(join: Join, conditions: Conditions) -> tuple[Within, Conditions] | None:
    """Lower and upper bounds of the difference of two columns that are event time, and the conditions that they are."""
    if join.as_of or join.lookup or is_updating(join.left) or is_updating(join.right):
        return None
    in_windows = _one_window(join, conditions)
    if in_windows is not None:
        return in_windows, ()
    times = {LEFT + name: name for name in rowtimes(join.left)} | {RIGHT + name: name for name in rowtimes(join.right)}
    compared: dict[tuple[Column, Column], list[tuple[Expression, str, int]]] = {}
    for condition in conditions:
        found = _difference(condition)
        if found is not None and found[0].name in times and found[1].name in times:
            compared.setdefault(found[:2], []).append((condition, *found[2:]))
    for (left, right), parts in compared.items():
        lower = [us + (function == ">") for _, function, us in parts if function in (">", ">=", "=")]
        upper = [us - (function == "<") for _, function, us in parts if function in ("<", "<=", "=")]
        if lower and upper:
            one, other = (Column(times[each.name], each.type) for each in (left, right))
            return Within(one, other, max(lower), min(upper)), tuple(condition for condition, *_ in parts)
    return None


def _one_window(join: Join, conditions: Conditions) -> Within | None:
    """The last moments of both rows' windows, if the windows must be the same."""
    left = {LEFT + name: column for name, column in window_columns(join.left).items()}
    right = {RIGHT + name: column for name, column in window_columns(join.right).items()}
    ends: dict[Windows, dict[Role, tuple[Column, Column]]] = {}
    for condition in conditions:
        found = _difference(condition)
        if found is not None and found[2:] == ("=", 0) and found[0].name in left:
            column = left[found[0].name]
            if right.get(found[1].name) == column and not column.of.processing:
                ends.setdefault(column.of, {})[column.role] = found[:2]
    for windows, roles in ends.items():
        if roles.keys() >= {"start", "end"}:
            one, other = (Column(each.name.partition(".")[2], each.type) for each in roles["end"])
            return Within(last_moment(one, one.type), last_moment(other, other.type), 0, 0, windows)
    return None


def in_windows(over: Over) -> Over:
    """OVER with the end of its rows, if a partition has those of one window."""
    if is_updating(over.input):
        return over
    below = window_columns(over.input)
    found = [(below[each.name], each) for each in over.partition if isinstance(each, Column) and each.name in below]
    keys = {column.role: each for column, each in found if not column.of.processing}
    return replace(over, until=last_moment(keys["end"], keys["end"].type)) if keys.keys() >= {"start", "end"} else over


def until_end(plan: Plan) -> Over:
    """The rows that remain of a result that changes, once all input has ended."""
    plain = {field.name for field in plan.schema if not field.type.is_nested}
    keys = [sorted(key) for key in keys_of(plan) if key and key <= plain]
    names = min(keys, key=len, default=sorted(plain))
    partition = tuple(Column(field.name, field.type) for field in plan.schema if field.name in names)
    return Over(plan, partition, (), (), Literal("9999-12-31T00:00:00", SqlType("TIMESTAMP", nullable=False)))


def _difference(condition: Expression) -> tuple[Column, Column, str, int] | None:
    """How a condition compares a left column less a right one, and with how many microseconds."""
    if not (isinstance(condition, Call) and condition.function in _FLIPPED):
        return None
    one, other = (_moment(each) for each in condition.arguments)
    if one is None or other is None or one[0].type.name != other[0].type.name:
        return None
    function = condition.function
    if one[0].name.startswith(RIGHT):
        one, other, function = other, one, _FLIPPED[function]
    if not (one[0].name.startswith(LEFT) and other[0].name.startswith(RIGHT)):
        return None
    return one[0], other[0], function, other[1] - one[1]


def _moment(expression: Expression) -> tuple[Column, int] | None:
    """A column, and how many microseconds later."""
    expression = unwrapped(expression)
    if isinstance(expression, Column):
        return expression, 0
    if isinstance(expression, Call) and expression.function == "PLUS MICROSECONDS":
        moment, us = expression.arguments
        below, later = _moment(moment), _constant(us)
        if below is not None and later is not None:
            return below[0], below[1] + later
    return None


def _constant(number: Expression) -> int | None:
    """An integer, or the product of two, which TIMESTAMPADD is."""
    if isinstance(number, Literal) and isinstance(number.value, int):
        return number.value
    if isinstance(number, Call) and number.function == "*":
        one, other = map(_constant, number.arguments)
        return None if one is None or other is None else one * other
    return None

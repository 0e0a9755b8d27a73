"""What a user's functions must be able to do where they are called.

Calls of functions that are not deterministic are each in a node of its own, which sees each row once; so are those of the clock.

Elsewhere a call may be computed again: for a row that is removed, by a condition and a column, or on both sides of a join. Then
what is removed would not be what was added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NoReturn

from msgspec.structs import replace

from forkpoint.relational.expressions import Call, Column, Expression, Item, items_of
from forkpoint.relational.functions.changing import PROCTIME, reads_clock
from forkpoint.relational.functions.user import is_user
from forkpoint.relational.plan import (
    Aggregate,
    Apply,
    Join,
    Match,
    Over,
    Plan,
    Process,
    Scan,
    Select,
    Union,
    Unnest,
    Window,
    is_updating,
    nodes_of,
    window_columns,
)

Unsure = Callable[[Call], bool]
Refuse = Callable[[str, str], NoReturn]
"""Raises the error for a function, by its identity, and what is wrong with its calls."""


def check_aggregates(plan: Plan, can: Callable[[str], frozenset[str]], refuse: Refuse) -> None:
    """Refuse aggregate functions that lack a method which their place needs. ``can``: the optional methods that one has."""
    for node in nodes_of(plan):
        if not isinstance(node, Aggregate):
            continue
        of_sessions = any(column.of.kind == "SESSION" for column in window_columns(node.input).values())
        for function in (call.function for call in node.calls if is_user(call.function)):
            if is_updating(node.input) and "retract" not in can(function):
                refuse(function, "needs retract(): rows of its input also change")
            if of_sessions and "merge" not in can(function):
                refuse(function, "needs merge(): sessions become one")


def isolated(plan: Plan, unsure: Unsure, refuse: Refuse) -> Plan:
    """The plan with nodes for the calls of functions that are ``unsure``: not deterministic."""
    match plan:
        case Scan():
            return plan
        case Union(inputs):
            return Union(tuple(isolated(each, unsure, refuse) for each in inputs))
        case Join(left, right):
            for call in _found([plan.condition], unsure):
                refuse(call.function, "is not deterministic, so a join cannot compare its results; call it in a subquery")
            return replace(plan, left=isolated(left, unsure, refuse), right=isolated(right, unsure, refuse))
        case Process(below) | Match(below):
            return replace(plan, input=isolated(below, unsure, refuse))
        case Apply():  # made by this function, for a view
            return plan
    below = isolated(plan.input, unsure, refuse)

    def applied(to: Plan, expressions: Iterable[Expression | None]) -> Plan:
        known = {field.name for field in to.schema}
        found = {str(call): call for call in _found(expressions, unsure) if str(call) not in known}
        for call in found.values() if is_updating(to) else ():
            refuse(
                call.function,
                "is not deterministic, so it cannot be called for rows that change later: a row that is removed would have "
                "another result than when it was added; call it in a subquery, before rows are grouped or joined",
            )
        return Apply(to, tuple(Item(text, found[text]) for text in sorted(found))) if found else to

    def change(expression: Expression) -> Expression:
        return _replaced(expression, unsure)

    match plan:
        case Select(_, condition, items):
            if condition is not None:
                below, condition = applied(below, [condition]), change(condition)
            found = applied(below, [item.of for item in items])
            if found is not below and condition is not None:  # only for the rows that pass
                below, condition = Select(below, condition, items_of(below.schema)), None
                found = applied(below, [item.of for item in items])
            return Select(found, condition, tuple(Item(item.name, change(item.of)) for item in items))
        case Aggregate(_, keys, calls):
            read = [key.of for key in keys] + [part for call in calls for part in (call.argument, call.condition)]
            return replace(
                plan,
                input=applied(below, read),
                keys=tuple(Item(key.name, change(key.of)) for key in keys),
                calls=tuple(
                    replace(
                        call,
                        argument=call.argument and change(call.argument),
                        condition=call.condition and change(call.condition),
                    )
                    for call in calls
                ),
            )
        case Over(_, partition, order, over_calls):
            if any(reads_clock(each.of) for each in order):  # rows are stored with the time that orders them
                unsure = partial(_or_processing_time, unsure)
            read = [*partition, *(each.of for each in order), *(part for call in over_calls for part in call.arguments)]
            return replace(
                plan,
                input=applied(below, read),
                partition=tuple(map(change, partition)),
                order=tuple(replace(each, of=change(each.of)) for each in order),
                calls=tuple(replace(call, arguments=tuple(map(change, call.arguments))) for call in over_calls),
            )
        case Unnest(_, of):
            return replace(plan, input=applied(below, [of]), of=change(of))
        case Window(partition=partition):
            return replace(plan, input=applied(below, partition), partition=tuple(map(change, partition)))


def _or_processing_time(unsure: Unsure, call: Call) -> bool:
    return call.function == PROCTIME or unsure(call)


def _found(expressions: Iterable[Expression | None], unsure: Unsure) -> Iterator[Call]:
    """The outermost calls of these functions."""
    for each in expressions:
        if isinstance(each, Call):
            if unsure(each):
                yield each
            else:
                yield from _found(each.arguments, unsure)


def _replaced(expression: Expression, unsure: Unsure) -> Expression:
    """The expression over the columns of such calls, which have their texts as names."""
    if not isinstance(expression, Call):
        return expression
    if unsure(expression):
        return Column(str(expression), expression.type)
    return replace(expression, arguments=tuple(_replaced(each, unsure) for each in expression.arguments))

"""DISTINCT, INTERSECT and EXCEPT: how often rows are in one plan and in another."""

from __future__ import annotations

from collections.abc import Callable

from forkpoint.relational.calls import AggregateCall, OverCall
from forkpoint.relational.expressions import Call, Column, Expression, Item, Literal, all_of, items_of
from forkpoint.relational.plan import Aggregate, Over, Plan, Select, Union
from forkpoint.relational.types import BIGINT, BOOLEAN


def distinct(plan: Plan) -> Plan:
    """The rows of a plan, once each."""
    return Aggregate(plan, items_of(plan.schema), ())


_FIRST = Column("$first", BOOLEAN.with_null(False))
_OF_FIRST = AggregateCall("COUNT", None, _FIRST, BIGINT.with_null(False))
_OF_SECOND = AggregateCall("COUNT", None, Call("NOT", (_FIRST,), _FIRST.type), BIGINT.with_null(False))


def in_both(one: Plan, other: Plan) -> Plan:
    """INTERSECT."""
    return _counted(one, other, [_compared(">", _OF_FIRST), _compared(">", _OF_SECOND)])


def in_first_only(one: Plan, other: Plan) -> Plan:
    """EXCEPT."""
    return _counted(one, other, [_compared(">", _OF_FIRST), _compared("=", _OF_SECOND)])


def _compared(function: str, call: AggregateCall) -> Expression:
    return Call(function, (Column(str(call), call.type), Literal(0, call.type)), BOOLEAN.with_null(False))


def _counted(one: Plan, other: Plan, conditions: list[Expression]) -> Plan:
    """The distinct rows of two plans whose numbers in each of them fulfil conditions."""
    columns = [Column(field.name, field.type) for field in one.schema]
    inputs = []
    for plan, first in ((one, True), (other, False)):
        items = [Item(c.name, Column(f.name, f.type)) for c, f in zip(columns, plan.schema, strict=True)]
        inputs.append(Select(plan, None, (*items, Item(_FIRST.name, Literal(first, _FIRST.type)))))
    union = Union(tuple(inputs))
    keys = items_of(union.schema[:-1])
    counts = Aggregate(union, keys, (_OF_FIRST, _OF_SECOND))
    return Select(counts, all_of(tuple(conditions)), keys)


_NUMBER = OverCall("ROW_NUMBER", (), BIGINT.with_null(False))


def of_numbered(combined: Callable[[Plan, Plan], Plan], one: Plan, other: Plan) -> Plan:
    """INTERSECT ALL and EXCEPT ALL: equal rows have numbers, which tell them apart."""
    found = combined(*map(_numbered, (one, other)))
    return Select(found, None, items_of(found.schema[:-1]))


def _numbered(plan: Plan) -> Plan:
    columns = tuple(Column(field.name, field.type) for field in plan.schema)
    return Over(plan, columns, (), (_NUMBER,))

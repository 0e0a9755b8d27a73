"""Plans: what a query means, as a tree of tables. Frozen, and JSON when stored."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from forkpoint.relational.expressions import Call, Column, Expression, Item
from forkpoint.relational.types import Field, Schema, SqlType


class Scan(msgspec.Struct, frozen=True, tag_field="node", tag="scan"):
    """The rows of a table of the catalogue. Rows are only ever added to it."""

    table: str
    fields: Schema

    @property
    def schema(self) -> Schema:
        return self.fields


class Select(msgspec.Struct, frozen=True, tag_field="node", tag="select"):
    """Projection and filter: the rows of the input for which ``condition`` is true (None: all), as ``items``."""

    input: Plan
    condition: Expression | None
    items: tuple[Item, ...]

    @property
    def schema(self) -> Schema:
        return tuple(Field(item.name, item.of.type) for item in self.items)


class AggregateCall(msgspec.Struct, frozen=True):
    """An aggregate function over the rows of a group. ``argument`` is None for ``COUNT(*)``. ``condition``: FILTER."""

    function: str
    argument: Expression | None
    condition: Expression | None
    type: SqlType
    distinct: bool = False

    def __str__(self) -> str:
        text = f"{self.function}({'DISTINCT ' if self.distinct else ''}{'*' if self.argument is None else self.argument})"
        return text if self.condition is None else f"{text} FILTER (WHERE {self.condition})"


def key_name(key: Expression) -> str:
    """The name of a key's column in the result of an aggregate. No call has such a text."""
    return f"by {key}"


class Aggregate(msgspec.Struct, frozen=True, tag_field="node", tag="aggregate"):
    """One row for each group of rows with equal ``keys``. The columns are the keys, then the calls, each named by its text."""

    input: Plan
    keys: tuple[Item, ...]
    calls: tuple[AggregateCall, ...]

    @property
    def schema(self) -> Schema:
        return (*(Field(key.name, key.of.type) for key in self.keys), *(Field(str(call), call.type) for call in self.calls))


class Union(msgspec.Struct, frozen=True, tag_field="node", tag="union"):
    """The rows of all inputs (UNION ALL), whose columns have the same types. The names are those of the first input."""

    inputs: tuple[Plan, ...]

    @property
    def schema(self) -> Schema:
        columns = zip(*(plan.schema for plan in self.inputs), strict=True)
        return tuple(Field(same[0].name, same[0].type.with_null(any(each.type.nullable for each in same))) for same in columns)


Plan = Scan | Select | Aggregate | Union


def inputs_of(plan: Plan) -> tuple[Plan, ...]:
    if isinstance(plan, Scan):
        return ()
    return plan.inputs if isinstance(plan, Union) else (plan.input,)


def nodes_of(plan: Plan) -> Iterator[Plan]:
    """The plan's nodes, inputs first."""
    for each in inputs_of(plan):
        yield from nodes_of(each)
    yield plan


def is_updating(plan: Plan) -> bool:
    """Whether rows of the result are also changed or deleted, not only added."""
    return any(isinstance(node, Aggregate) for node in nodes_of(plan))


def key_of(plan: Plan) -> tuple[str, ...] | None:
    """Columns of which no two rows have the same values at a time; None if no such columns are known."""
    if isinstance(plan, Scan | Union):
        return None
    if isinstance(plan, Aggregate):
        return tuple(key.name for key in plan.keys)
    below = key_of(plan.input)
    kept = ((item.name, unwrapped(item.of)) for item in reversed(plan.items))
    names = {of.name: name for name, of in kept if isinstance(of, Column)}
    return None if below is None or not names.keys() >= set(below) else tuple(names[name] for name in below)


def unwrapped(expression: Expression) -> Expression:
    """The expression without the check that it is not NULL."""
    if isinstance(expression, Call) and expression.function == "NOT NULL":
        return expression.arguments[0]
    return expression

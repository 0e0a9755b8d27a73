"""Plans: what a query means, as a tree of tables. Frozen, and JSON when stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from forkpoint.relational.expressions import Call, Column, Expression, Item
from forkpoint.relational.types import Field, Schema, SqlType
from forkpoint.relational.windows import ROLES, WINDOW_NAMES, WindowColumn, Windows


class Scan(msgspec.Struct, frozen=True, tag_field="node", tag="scan", omit_defaults=True):
    """The rows of a table of the catalogue. Rows are only ever added to it. ``rowtime``: the event time of its rows, if it has a
    watermark."""

    table: str
    fields: Schema
    rowtime: Expression | None = None

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


class Window(msgspec.Struct, frozen=True, tag_field="node", tag="window"):
    """The rows of the input, once for each window that ``time``, their event time, is in, with the window as columns ``names``:
    its start, its end, and its last millisecond, which is the event time of the result."""

    input: Plan
    time: Expression
    windows: Windows
    names: tuple[str, str, str] = WINDOW_NAMES

    @property
    def added(self) -> Schema:
        """The window's columns."""
        bound = SqlType("TIMESTAMP", nullable=False)
        return tuple(map(Field, self.names, (bound, bound, self.time.type.with_null(False))))

    @property
    def schema(self) -> Schema:
        return (*self.input.schema, *self.added)


Plan = Scan | Select | Aggregate | Union | Window


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
    return any(isinstance(node, Aggregate) and not is_windowed(node) for node in nodes_of(plan))


def key_of(plan: Plan) -> tuple[str, ...] | None:
    """Columns of which no two rows have the same values at a time; None if no such columns are known."""
    if isinstance(plan, Scan | Union | Window):
        return None
    if isinstance(plan, Aggregate):
        return tuple(key.name for key in plan.keys)
    below = key_of(plan.input)
    kept = ((item.name, unwrapped(item.of)) for item in reversed(plan.items))
    names = {of.name: name for name, of in kept if isinstance(of, Column)}
    return None if below is None or not names.keys() >= set(below) else tuple(names[name] for name in below)


def window_columns(plan: Plan) -> dict[str, WindowColumn]:
    """The columns that are the start, end or event time of a row's window."""
    match plan:
        case Window(windows=windows, names=names):
            return {name: WindowColumn(role, windows) for name, role in zip(names, ROLES, strict=True)}
        case Select(input=input, items=()):  # a condition on all columns
            return window_columns(input)
        case Select(input=input, items=items):
            return _kept(items, window_columns(input))
        case Aggregate(input=input, keys=keys) if is_windowed(plan):
            return _kept(keys, window_columns(input))
        case Union(inputs=(first, *_) as inputs):
            found = [list(map(window_columns(each).get, (field.name for field in each.schema))) for each in inputs]
            same = zip(first.schema, found[0], *found[1:], strict=True)
            return {field.name: one for field, one, *others in same if one is not None and all(o == one for o in others)}
    return {}


def _kept(items: tuple[Item, ...], below: Mapping[str, WindowColumn]) -> dict[str, WindowColumn]:
    return {item.name: below[item.of.name] for item in items if isinstance(item.of, Column) and item.of.name in below}


def is_windowed(aggregate: Aggregate) -> bool:
    """Whether the groups are those of windows: each is complete, and final, once event time has passed the window's end."""
    below = window_columns(aggregate.input)
    keys = [below.get(key.of.name) for key in aggregate.keys if isinstance(key.of, Column)]
    return {"start", "end"} <= {key.role for key in keys if key is not None}


def unwrapped(expression: Expression) -> Expression:
    """The expression without the check that it is not NULL."""
    if isinstance(expression, Call) and expression.function == "NOT NULL":
        return expression.arguments[0]
    return expression

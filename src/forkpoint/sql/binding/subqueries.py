"""Binds subqueries in expressions: they become joins.

``IN`` and ``EXISTS`` in WHERE are semi joins, with NOT anti joins. A subquery that is a value is a left join with its one row.
What compares rows of the subquery with the outer query's, in its WHERE, is the join's condition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from forkpoint.relational.changes import rows_only
from forkpoint.relational.evaluation import evaluate
from forkpoint.relational.expressions import (
    Call,
    Column,
    Expression,
    Item,
    Literal,
    all_of,
    columns_of,
    conjuncts_of,
    replace_columns,
)
from forkpoint.relational.functions.user import calls_in
from forkpoint.relational.plan import LEFT, PRESENT, RIGHT, AggregateCall, Join, Plan, Select
from forkpoint.relational.types import BOOLEAN
from forkpoint.sql.binding.expressions import Binder
from forkpoint.sql.binding.scopes import OUTER, Scope
from forkpoint.sql.errors import SqlError

Error = Callable[[Any, str], SqlError]
VALUE = "$value"
HIDDEN = "$ "
"""Begins the names of a subquery's columns that only its comparison with the outer query reads."""


@dataclass(frozen=True)
class Subquery:
    """A query inside another one. ``outer``: the conditions on its rows and the outer query's, over hidden columns and those of
    the outer scope. ``calls``: its aggregates, if it has no GROUP BY: one row for each set of hidden columns. ``item``: what is
    selected first."""

    plan: Plan
    outer: tuple[Expression, ...] = ()
    calls: tuple[AggregateCall, ...] = ()
    item: Expression | None = None

    @property
    def columns(self) -> list[Column]:
        """The columns of its SELECT."""
        return [Column(f.name, f.type) for f in self.plan.schema if not f.name.startswith(HIDDEN)]

    def or_of_no_rows(self, value: Column) -> Expression:
        """Its value; where it has no row, what its item is over no rows: 0 for a count, else usually NULL."""
        counts = {str(call) for call in self.calls if call.function == "COUNT"}
        none = {str(call): Literal(0 if str(call) in counts else None, call.type.with_null()) for call in self.calls}
        assert self.item is not None
        default = replace_columns(self.item, lambda column: none.get(column.name, column))
        if not any(calls_in(default)) and evaluate(default, rows_only(1))[0].as_py() is None:
            return value
        return Call("IF", (Column(RIGHT + PRESENT, BOOLEAN), value, default), value.type)


BindSubquery = Callable[[Any, Scope], Subquery]


def conditions_of(where: Any) -> tuple[list[Any], list[Any]]:
    """The conditions that AND connects: those that ask for rows of a subquery, and the others."""
    found: tuple[list[Any], list[Any]] = ([], [])
    for node in _connected(where):
        found[0 if _asks(node) else 1].append(node)
    return found


def _connected(node: Any) -> Iterator[Any]:
    if isinstance(node, exp.Paren):
        yield from _connected(node.this)
    elif isinstance(node, exp.And):
        yield from _connected(node.this)
        yield from _connected(node.expression)
    else:
        yield node


def _asks(node: Any) -> bool:
    inner = node.this if isinstance(node, exp.Not) else node
    inner = inner.unnest() if isinstance(inner, exp.Paren) else inner
    return isinstance(inner, exp.Exists) or (isinstance(inner, exp.In) and inner.args.get("query") is not None)


def asked(node: Any, plan: Plan, scope: Scope, bind: BindSubquery, offset: int, error: Error) -> Plan:
    """The rows for which a subquery has rows (IN, EXISTS), or none (NOT)."""
    negated = isinstance(node, exp.Not)
    condition = node.this.unnest() if negated else node
    query = condition.this if isinstance(condition, exp.Exists) else condition.args["query"]
    found = bind(query, scope)
    if found.calls:
        raise error(condition, "this subquery always has one row; compare its value, such as x = (SELECT MAX(…) …)")
    parts = [_between(each) for each in found.outer]
    if isinstance(condition, exp.In):
        binder = Binder(scope.on_side(LEFT), offset, None, "in IN")
        values = condition.this.expressions if isinstance(condition.this, exp.Tuple) else [condition.this]
        if len(values) != len(found.columns):
            raise error(condition, f"IN compares {len(values)} values with {len(found.columns)} columns of the subquery")
        for value, column in zip(values, found.columns, strict=True):
            equal = binder.call("=", condition, [binder.bind(value), _on_right(column)])
            if negated and equal.type.nullable:  # NOT IN is true if no value may be equal
                equal = Call("NOT", (Call("IS FALSE", (equal,), BOOLEAN.with_null(False)),), BOOLEAN.with_null(False))
            parts.append(equal)
    join = Join(plan, found.plan, "anti" if negated else "semi", all_of(tuple(parts)))
    return Select(join, None, tuple(Item(each.name, Column(LEFT + each.name, each.type)) for each in plan.schema))


@dataclass
class Values:
    """The subqueries of one query that are values. Each is a column with a name of its own until its join is made."""

    bind: BindSubquery
    found: dict[str, Subquery]

    def column(self, node: Any, scope: Scope, error: Error) -> Column:
        """The column that stands for a subquery."""
        value = self.bind(node, scope)
        if len(value.columns) != 1:
            raise error(node, f"a subquery that is a value has one column, not {len(value.columns)}")
        if not value.calls:
            raise error(node, "a subquery that is a value must have one row: an aggregate without GROUP BY, such as MAX(…)")
        name = f"{VALUE}{len(self.found)}"
        self.found[name] = value
        (column,) = value.columns
        return Column(name, column.type.with_null())

    def compares(self, expressions: Sequence[Expression | None]) -> bool:
        """Whether a value that these expressions read is one for each row."""
        return any(value.outer for value in self._read(expressions).values())

    def _read(self, expressions: Sequence[Expression | None]) -> dict[str, Subquery]:
        names = {column.name for each in expressions if each is not None for column in columns_of(each)}
        return {name: value for name, value in self.found.items() if name in names}

    def joined(self, plan: Plan, expressions: Sequence[Expression | None]) -> tuple[Plan, list[Expression | None]]:
        """The plan with the values that these expressions read, and the expressions over it."""
        found, sides = list(expressions), ""
        for name, value in self._read(expressions).items():
            condition = all_of(tuple(_between(each, sides) for each in value.outer))
            plan, sides = Join(plan, value.plan, "left", condition), sides + LEFT
            (column,) = value.columns
            columns = {name: value.or_of_no_rows(Column(RIGHT + column.name, column.type.with_null()))}
            found = [each and _moved(each, columns) for each in found]
        return plan, found


def _moved(expression: Expression, columns: dict[str, Expression]) -> Expression:
    def moved(column: Column) -> Expression:
        if column.name.startswith(VALUE):
            return columns.get(column.name, column)
        return Column(LEFT + column.name, column.type)

    return replace_columns(expression, moved)


def _between(condition: Expression, sides: str = "") -> Expression:
    """A condition on hidden columns and the outer query's, as one of the join. ``sides``: of joins made in between."""

    def moved(column: Column) -> Expression:
        outer = column.name.startswith(OUTER)
        return Column(LEFT + sides + column.name.removeprefix(OUTER), column.type) if outer else _on_right(column)

    return replace_columns(condition, moved)


def _on_right(column: Column) -> Column:
    return Column(RIGHT + column.name, column.type)


def split_outer(condition: Expression | None) -> tuple[Expression | None, tuple[Expression, ...]]:
    """A condition without the parts that read the outer query, and those parts."""
    parts = conjuncts_of(condition)
    outer = tuple(part for part in parts if reads_outer(part))
    return all_of(tuple(part for part in parts if part not in outer)), outer


def reads_outer(expression: Expression) -> bool:
    return any(column.name.startswith(OUTER) for column in columns_of(expression))


def hidden(expression: Expression) -> Expression:
    """A condition over a subquery's own columns, over its hidden ones."""
    return replace_columns(expression, lambda c: c if c.name.startswith(OUTER) else Column(HIDDEN + c.name, c.type))


def hidden_columns(conditions: Sequence[Expression]) -> dict[str, Column]:
    """The subquery's own columns that conditions with the outer query read."""
    found = {column.name: column for each in conditions for column in columns_of(each)}
    return {name: column for name, column in found.items() if not name.startswith(OUTER)}

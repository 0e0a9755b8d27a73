"""Binds subqueries in expressions: they become joins.

``IN``, ``EXISTS``, ``ANY`` and ``ALL`` in WHERE are semi joins, with NOT anti joins. In other places, they are the union of both,
with TRUE or FALSE as a column. A subquery that is a value is a left join with its one row. What compares
rows of the subquery with the outer query's, in its WHERE, is the join's condition.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Any

from msgspec.structs import replace
from sqlglot import exp

from forkpoint.relational.aggregation.accumulators import AGGREGATES
from forkpoint.relational.calls import AggregateCall
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
from forkpoint.relational.plan import LEFT, PRESENT, RIGHT, Aggregate, Join, JoinKind, Plan, Select, Union
from forkpoint.relational.types import BIGINT, BOOLEAN, SqlType
from forkpoint.sql.binding.expressions import Binder
from forkpoint.sql.binding.over import OVER
from forkpoint.sql.binding.scopes import OUTER, Scope
from forkpoint.sql.errors import SqlError

Error = Callable[[Any, str], SqlError]
VALUE = "$value"
MARK = "$mark"
HIDDEN = "$ "
"""Begins the names of a subquery's columns that only its comparison with the outer query reads."""


@dataclass(frozen=True)
class Subquery:
    """A query inside another one. ``outer``: the conditions on its rows and the outer query's, over hidden columns and those of
    the outer scope. ``calls``: its aggregates, if it has no GROUP BY: one row for each set of hidden columns. ``item``: what is
    selected first. ``single``: whether its rows are counted, as ``_COUNT``: a row of the outer query finds at most one."""

    plan: Plan
    outer: tuple[Expression, ...] = ()
    calls: tuple[AggregateCall, ...] = ()
    item: Expression | None = None
    single: bool = False

    @property
    def columns(self) -> list[Column]:
        """The columns of its SELECT."""
        return [Column(f.name, f.type) for f in self.plan.schema if not f.name.startswith(HIDDEN)]

    def or_of_no_rows(self, value: Column) -> Expression:
        """Its value; where it has no row, what its item is over no rows: 0 for a count, else usually NULL."""
        if self.single:
            counted = Call("SINGLE VALUE", (value, _on_right(Column(_COUNT, BIGINT))), value.type)
            return counted if self.item is None else Call("CAST", (counted,), self.item.type.with_null())
        counts = {str(call) for call in self.calls if call.function == "COUNT"}
        none = {str(call): Literal(0 if str(call) in counts else None, call.type.with_null()) for call in self.calls}
        assert self.item is not None
        default = replace_columns(self.item, lambda column: none.get(column.name, column))
        if not any(calls_in(default)) and evaluate(default, rows_only(1))[0].as_py() is None:
            return value
        return Call("IF", (Column(RIGHT + PRESENT, BOOLEAN), value, default), value.type)


BindSubquery = Callable[[Any, Scope], Subquery]


@dataclass(frozen=True)
class Question:
    """Whether a subquery has a row that ``function`` relates to values (none: any row). ``negated``: or whether it has none."""

    query: Any
    values: tuple[Any, ...] = ()
    function: str = "="
    negated: bool = False

    @staticmethod
    def of(node: Any) -> Question | None:
        """The question that an expression is; None if it is none."""
        inner = node.this if isinstance(node, exp.Not) else node
        inner = inner.unnest() if isinstance(inner, exp.Paren) else inner
        negated = isinstance(node, exp.Not)
        if isinstance(inner, exp.Exists):
            return Question(inner.this, negated=negated)
        if isinstance(inner, exp.In) and inner.args.get("query") is not None:
            values = inner.this.expressions if isinstance(inner.this, exp.Tuple) else [inner.this]
            return Question(inner.args["query"], tuple(values), negated=negated)
        quantified = inner.args.get("expression")
        if type(inner) in _NEGATIONS and isinstance(quantified, exp.Any | exp.All):
            query = quantified.this.unnest() if isinstance(quantified.this, exp.Paren) else quantified.this
            if isinstance(query, exp.Query):
                function, opposite = _NEGATIONS[type(inner)]
                every = isinstance(quantified, exp.All)
                return Question(query, (inner.this,), opposite if every else function, negated != every)
        return None


_NEGATIONS: dict[type, tuple[str, str]] = {
    exp.EQ: ("=", "<>"),
    exp.NEQ: ("<>", "="),
    exp.LT: ("<", ">="),
    exp.LTE: ("<=", ">"),
    exp.GT: (">", "<="),
    exp.GTE: (">=", "<"),
}
"""The function of a comparison, and that of its opposite: ALL is what ANY of the opposite is not."""


def conditions_of(where: Any) -> tuple[list[Any], list[Any]]:
    """The conditions that AND connects: those that ask for rows of a subquery, and the others."""
    found: tuple[list[Any], list[Any]] = ([], [])
    for node in _connected(where):
        found[0 if Question.of(node) else 1].append(node)
    return found


def _connected(node: Any) -> Iterator[Any]:
    if isinstance(node, exp.Paren):
        yield from _connected(node.this)
    elif isinstance(node, exp.And):
        yield from _connected(node.this)
        yield from _connected(node.expression)
    else:
        yield node


def asked(node: Any, plan: Plan, scope: Scope, bind: BindSubquery, offset: int, error: Error) -> Plan:
    """The rows for which a subquery has rows (IN, EXISTS, ANY), or none (NOT, ALL)."""
    question = Question.of(node)
    assert question is not None
    found = bind(question.query, scope)
    binder = Binder(scope.on_side(LEFT), offset, None, "in a comparison with a subquery")
    equal = _compared(question, tuple(map(binder.bind, question.values)), found, binder, lambda problem: error(node, problem))
    if question.negated:  # true if no value may be equal
        equal = tuple(_not_false(each) if each.type.nullable else each for each in equal)
    condition = all_of((*(_between(each) for each in found.outer), *equal))
    return _rows_of(Join(plan, found.plan, "anti" if question.negated else "semi", condition))


def _compared(
    question: Question, values: tuple[Expression, ...], found: Subquery, binder: Binder, error: Callable[[str], SqlError]
) -> tuple[Expression, ...]:
    """The comparisons of values with the columns of a subquery."""
    _refuse_far_columns(found.outer, values, error)
    if found.calls:
        raise error("this subquery always has one row; compare its value, such as x = (SELECT MAX(…) …)")
    if values and len(values) != len(found.columns):
        raise error(f"IN compares {len(values)} values with {len(found.columns)} columns of the subquery")
    pairs = zip(values, found.columns, strict=False)
    return tuple(binder.call(question.function, question.query, [value, _on_right(column)]) for value, column in pairs)


def _not_false(condition: Expression) -> Expression:
    return Call("NOT", (Call("IS FALSE", (condition,), BOOLEAN.with_null(False)),), BOOLEAN.with_null(False))


def _rows_of(join: Join, *marks: Item) -> Plan:
    """The left rows of a semi or anti join, with further columns."""
    columns = tuple(Item(each.name, Column(LEFT + each.name, each.type)) for each in join.left.schema)
    return Select(join, None, (*columns, *marks))


@dataclass(frozen=True)
class Mark:
    """A question in an expression, whose answer is a column. ``values``: over the columns of the query that asks. ``compared``:
    with those of the subquery, as columns ``$0``, ``$1``, … of the join's left side."""

    found: Subquery
    values: tuple[Expression, ...]
    compared: tuple[Expression, ...]

    @property
    def outer(self) -> tuple[Expression, ...]:
        return self.found.outer

    def answered(self, plan: Plan, name: str, values: Sequence[Expression], sides: str) -> Plan:
        """The rows of a plan with the answer as a column. A row that no comparison is true for, and one is unknown, has NULL."""

        def compared(column: Column) -> Expression:
            if column.name.startswith(LEFT):
                value = values[int(column.name.removeprefix(LEFT + "$"))]
                return replace_columns(value, lambda each: Column(LEFT + each.name, each.type))
            return column

        equal = all_of(tuple(replace_columns(each, compared) for each in self.compared))
        outer = tuple(_between(each, sides) for each in self.found.outer)

        def joined(below: Plan, kind: JoinKind, condition: Expression | None) -> Join:
            return Join(below, self.found.plan, kind, all_of((*outer, *(() if condition is None else (condition,)))))

        def answer(value: bool | None) -> Item:
            return Item(name, Literal(value, BOOLEAN))

        found, others = _rows_of(joined(plan, "semi", equal), answer(True)), joined(plan, "anti", equal)
        if equal is None or not equal.type.nullable:
            return Union((found, _rows_of(others, answer(False))))
        unknown, rest = Call("IS NULL", (equal,), BOOLEAN.with_null(False)), _rows_of(others)
        answers = _rows_of(joined(rest, "semi", unknown), answer(None)), _rows_of(joined(rest, "anti", unknown), answer(False))
        return Union((found, *answers))


@dataclass
class Values:
    """The subqueries of one query that are values or answers. Each is a column with a name of its own until its join is made."""

    bind: BindSubquery
    found: dict[str, Subquery | Mark]

    def column(self, node: Any, scope: Scope, error: Error) -> Column:
        """The column that stands for a subquery."""
        value = self.bind(node, scope)
        if len(value.columns) != 1:
            raise error(node, f"a subquery that is a value has one column, not {len(value.columns)}")
        _refuse_far_columns(value.outer, (), lambda problem: error(node, problem))
        if not value.calls:
            value = _single(value, lambda problem: error(node, problem))
        name = f"{VALUE}{len(self.found)}"
        self.found[name] = value
        (column,) = value.columns
        return Column(name, (column.type if value.item is None else value.item.type).with_null())

    def answer(self, question: Question, node: Any, binder: Binder) -> Expression:
        """The column that stands for the answer to a question."""
        found = self.bind(question.query, binder.scope)
        values = tuple(map(binder.bind, question.values))
        if any(column.name.startswith(OVER) for value in values for column in columns_of(value)):
            raise binder.error(node, "a result of OVER cannot be compared with a subquery here; select it from a subquery")
        given = tuple(Column(f"{LEFT}${at}", value.type) for at, value in enumerate(values))
        name = f"{MARK}{len(self.found)}"
        self.found[name] = Mark(
            found, values, _compared(question, given, found, binder, lambda problem: binder.error(node, problem))
        )
        column = Column(name, BOOLEAN)
        return binder.call("NOT", node, [column]) if question.negated else column

    def compares(self, expressions: Sequence[Expression | None]) -> bool:
        """Whether a subquery that these expressions read is one for each row."""
        return any(value.outer for value in self._read(expressions).values())

    def _read(self, expressions: Sequence[Expression | None]) -> dict[str, Subquery | Mark]:
        """Also what the values of questions read, before them."""
        names = {column.name for each in expressions if each is not None for column in columns_of(each)}
        for name, value in reversed(self.found.items()):
            if name in names and isinstance(value, Mark):
                names |= {column.name for each in value.values for column in columns_of(each)}
        return {name: value for name, value in self.found.items() if name in names}

    def joined(
        self, plan: Plan, expressions: Sequence[Expression | None], change: Callable[[Expression], Expression]
    ) -> tuple[Plan, list[Expression | None]]:
        """The plan with what these expressions read of subqueries, and the expressions over it. ``change``: from the query's
        columns to those of the plan."""
        found, sides = list(expressions), ""
        missing = self._read(expressions)
        of_marks = {name: list(map(change, value.values)) for name, value in missing.items() if isinstance(value, Mark)}
        for name, value in list(missing.items()):
            del missing[name]
            if isinstance(value, Mark):
                plan = value.answered(plan, name, of_marks[name], sides)
                continue
            condition = all_of(tuple(_between(each, sides) for each in value.outer))
            plan, sides = Join(plan, value.plan, "left", condition), sides + LEFT
            (column,) = value.columns
            columns = {name: value.or_of_no_rows(Column(RIGHT + column.name, column.type.with_null()))}
            found = [each and _moved(each, columns, missing) for each in found]
            of_marks = {mark: [_moved(each, columns, missing) for each in values] for mark, values in of_marks.items()}
        return plan, found


_COUNT = HIDDEN + "count"


def _single(value: Subquery, error: Callable[[str], SqlError]) -> Subquery:
    """A subquery whose rows are counted for each set of the outer query's values that they are compared with."""
    (column,) = value.columns
    keys, outer = equations(value.outer, lambda: error(f"a subquery that is a value {BY_EQUATIONS}"))
    of: Expression = Call("CAST", (column,), SqlType("INT")) if column.type.name == "BOOLEAN" else column  # which has no MIN
    least = AGGREGATES["MIN"](of.type)
    if isinstance(least, str):
        raise error(
            f"a subquery that is a value must have one row: an aggregate without GROUP BY; its {column.type.name} has no MIN"
        )
    calls = AggregateCall("MIN", of, None, least), AggregateCall("COUNT", None, None, BIGINT.with_null(False))
    names = column.name, _COUNT
    counted = Aggregate(value.plan, tuple(starmap(Item, keys.items())), calls)
    items = (*(Item(name, Column(name, of.type)) for name, of in keys.items()), *map(_item_of, names, calls))
    cast = column if of is not column else None
    return Subquery(Select(counted, None, items), outer, item=cast, single=True)


BY_EQUATIONS = "can be compared with the outer query by = only"


def equations(
    outer: Sequence[Expression], refused: Callable[[], SqlError]
) -> tuple[dict[str, Expression], tuple[Expression, ...]]:
    """What the rows of groups have in common with a row of the outer query, by hidden names, and the equations. ``refused``: the
    error for other conditions."""
    keys: dict[str, Expression] = {}
    found = []
    for each in outer:
        own = [a for a in each.arguments if not reads_outer(a)] if isinstance(each, Call) and each.function == "=" else []
        if not isinstance(each, Call) or len(own) != 1:
            raise refused()
        name = HIDDEN + str(own[0])
        keys[name] = own[0]
        found.append(replace(each, arguments=tuple(Column(name, a.type) if a is own[0] else a for a in each.arguments)))
    return keys, tuple(found)


def _item_of(name: str, call: AggregateCall) -> Item:
    return Item(name, Column(str(call), call.type))


def _moved(expression: Expression, columns: Mapping[str, Expression], missing: Container[str]) -> Expression:
    """An expression over a join with other ones in place of some columns. ``missing``: columns that later joins add."""

    def moved(column: Column) -> Expression:
        if column.name in missing:
            return column
        return columns.get(column.name, Column(LEFT + column.name, column.type))

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


def before_marks(condition: Expression | None) -> tuple[Expression | None, Expression | None]:
    """The parts of a condition that leave fewer rows, or the pairs of a join, for the questions of the others, and those."""
    parts = conjuncts_of(condition)
    late = tuple(part for part in parts if any(column.name.startswith((VALUE, MARK)) for column in columns_of(part)))
    if not any(column.name.startswith(MARK) for part in late for column in columns_of(part)):
        return None, condition
    return all_of(tuple(part for part in parts if part not in late)), all_of(late)


def _refuse_far_columns(outer: Sequence[Expression], values: Sequence[Expression], error: Callable[[str], SqlError]) -> None:
    """Raise the error for columns of a query that is not the next one around a subquery. ``values``: compared with it."""
    far = any(column.name.startswith(OUTER + OUTER) for each in outer for column in columns_of(each))
    if far or any(map(reads_outer, values)):
        raise error("a subquery compares its rows with those of the next query around it only")


def reads_outer(expression: Expression) -> bool:
    return any(column.name.startswith(OUTER) for column in columns_of(expression))


def hidden(expression: Expression) -> Expression:
    """A condition over a subquery's own columns, over its hidden ones."""
    return replace_columns(expression, lambda c: c if c.name.startswith(OUTER) else Column(HIDDEN + c.name, c.type))


def hidden_columns(conditions: Sequence[Expression]) -> dict[str, Column]:
    """The subquery's own columns that conditions with the outer query read."""
    found = {column.name: column for each in conditions for column in columns_of(each)}
    return {name: column for name, column in found.items() if not name.startswith(OUTER)}

"""Binds queries: text becomes a plan over the tables of a catalogue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace as with_fields
from typing import Any, NoReturn

from sqlglot import exp

from forkpoint.errors import ConfigError
from forkpoint.relational.bounds import bounded
from forkpoint.relational.calls import AggregateCall, Order
from forkpoint.relational.expressions import Call, Column, Expression, Item, all_of, columns_of, items_of
from forkpoint.relational.functions.changing import changes
from forkpoint.relational.functions.user import NO_FUNCTIONS, Functions, is_user
from forkpoint.relational.plan import ONE_ROW, Aggregate, Plan, Select, Union, Window, key_name, nodes_of, plain_name
from forkpoint.relational.precision import converted, in_ms
from forkpoint.relational.types import SqlType, common_type
from forkpoint.relational.user_calls import check_aggregates, isolated
from forkpoint.sql import hints
from forkpoint.sql.binding.constants import rows_of_values
from forkpoint.sql.binding.expressions import Binder
from forkpoint.sql.binding.grouping import GROUPING, Keys
from forkpoint.sql.binding.hints import check_tables, joined, named, with_ttl
from forkpoint.sql.binding.joins import join, join_order
from forkpoint.sql.binding.match import MatchCall, bind_match
from forkpoint.sql.binding.over import OVER, Overs, limited, order_of
from forkpoint.sql.binding.processes import ProcessCall, bind_process
from forkpoint.sql.binding.scopes import Relation, Scope
from forkpoint.sql.binding.set_operations import distinct, in_both, in_first_only, of_numbered
from forkpoint.sql.binding.subqueries import (
    BY_EQUATIONS,
    HIDDEN,
    MARK,
    VALUE,
    Subquery,
    Values,
    asked,
    before_marks,
    conditions_of,
    equations,
    hidden,
    hidden_columns,
    reads_outer,
    split_outer,
)
from forkpoint.sql.binding.table_calls import TableCall, table_calls
from forkpoint.sql.binding.temporal import is_version
from forkpoint.sql.binding.unnest import lateral_tables, unnest
from forkpoint.sql.binding.windows import bind_window, check_sessions, grouped_window
from forkpoint.sql.errors import SqlError, Text, did_you_mean
from forkpoint.sql.grammar import refuse_unread_parts
from forkpoint.sql.statements import Query
from forkpoint.sql.syntax import syntax_tree, tokens_of
from forkpoint.sql.tokens import named_calls

Lookup = Callable[..., Plan | None]
"""The plan of a table or view by its name, and by the options of a hint if it has one; None if there is none."""


def bind_query(query: Query, lookup: Lookup, tables: Callable[[], list[str]], functions: Functions = NO_FUNCTIONS) -> Plan:
    """The plan of a query. Raises SqlError. ``tables``: the names that may be meant. ``functions``: the user's."""
    tokens, given = hints.taken_out(tokens_of(query), query)
    tokens, table_functions = table_calls(named_calls(lateral_tables(tokens), functions.names), query, functions)
    tree = syntax_tree(tokens, query)
    binder = _QueryBinder(query.source, query.start, lookup, tables, table_functions, {}, functions, given)
    for each in (tree, *(call.data for call in table_functions.values())):
        refuse_unread_parts(each, binder.error)
    plan = binder.bind_last(tree)
    at = next((call.at for call in table_functions.values() if call.function == "SESSION"), query.start)
    check_sessions(plan, lambda problem: query.source.error(at, problem))

    def refuse(function: str, problem: str) -> NoReturn:
        user = functions.called.get(function)
        if user is None:
            raise query.source.error(
                max(query.source.text.upper().find(function, query.start), query.start), f"{function} {problem}"
            )
        raise query.source.error(functions.places[function], f"{user.name} {problem}")

    check_aggregates(plan, lambda function: functions.called[function].can, refuse)

    def unsure(call: Call) -> bool:
        return changes(call) or (is_user(call.function) and not functions.called[call.function].deterministic)

    return isolated(plan, unsure, refuse)


class _QueryBinder:
    def __init__(
        self,
        source: Text,
        offset: int,
        lookup: Lookup,
        tables: Callable[[], list[str]],
        table_functions: Mapping[str, TableCall],
        local: Mapping[str, Plan],
        functions: Functions,
        given: hints.Hints,
        outer: Scope | None = None,
    ) -> None:
        self._source, self._offset, self._lookup, self._tables, self._local = source, offset, lookup, tables, dict(local)
        self._table_functions, self._functions, self._hints, self._outer = table_functions, functions, given, outer
        self._last: Any = None

    def bind_last(self, tree: Any) -> Plan:
        """The plan of the query whose rows are the result."""
        self._last = tree
        return self.bind(tree)

    def bind(self, tree: Any) -> Plan:
        return self.subquery(tree, None).plan

    def subquery(self, tree: Any, outer: Scope | None) -> Subquery:
        """A query, which may compare its rows with those of the outer scope."""
        if isinstance(tree, exp.Subquery):
            return self.subquery(tree.this, outer)
        if isinstance(tree, exp.Values):
            return Subquery(rows_of_values(tree, Binder(Scope(self._source, (), functions=self._functions), self._offset)))
        if not isinstance(tree, exp.Select | exp.SetOperation):
            raise self.error(tree, "expected a query: SELECT")
        inner = _QueryBinder(
            self._source,
            self._offset,
            self._lookup,
            self._tables,
            self._table_functions,
            self._local,
            self._functions,
            self._hints,
            outer,
        )
        inner._last = self._last
        for cte in tree.ctes:
            if cte.alias in [other.alias for other in tree.ctes[: tree.ctes.index(cte)]]:
                raise self.error(cte, f"WITH has two tables {cte.alias!r}")
            inner._local[cte.alias] = self._named(inner.bind(cte.this), cte)
        if isinstance(tree, exp.Select):
            return inner._select(tree)
        plan = inner._set_operation(tree)
        scope = Scope(self._source, (Relation.of("", plan),), functions=self._functions)
        _, order = _ordered(tree.args.get("order"), items_of(plan.schema), Binder(scope, self._offset, None, "in ORDER BY"))
        return Subquery(inner._limited(plan, tree, order))

    def _set_operation(self, tree: Any) -> Plan:
        name = type(tree).__name__.upper()
        inputs = [self.bind(tree.this), self.bind(tree.expression)]
        first, second = (plan.schema for plan in inputs)
        if len(first) != len(second):
            raise self.error(tree.expression, f"{name} of {len(first)} and {len(second)} columns")
        types = [common_type([one.type, other.type]) for one, other in zip(first, second, strict=True)]
        for one, other, of in zip(first, second, types, strict=True):
            if of is None:
                problem = f"{name} of column {one.name!r}, {one.type.label}, and {other.name!r}, {other.type.label}; CAST one"
                raise self.error(tree.expression, problem)
        left, right = (_as_types(each, types) for each in inputs)
        if not isinstance(tree, exp.Union) or tree.args.get("distinct"):
            self._without_nested(tree, left)
        if not isinstance(tree, exp.Union):
            combined = in_both if isinstance(tree, exp.Intersect) else in_first_only
            return combined(left, right) if tree.args.get("distinct") else of_numbered(combined, left, right)
        union = Union((left, right))
        return distinct(union) if tree.args.get("distinct") else union

    def _select(self, tree: Any) -> Subquery:
        given = self._hints.of(tree)
        below, scope = self._from(tree)
        check_tables(given, [each.alias for each in scope.relations])
        below, window = grouped_window(tree, below, Binder(scope, self._offset))
        values = Values(self.subquery, {})
        below, outer = self._where(tree, below, scope, values)
        below = bounded(below)
        group = tree.args.get("group")
        own = Keys.bound(group, lambda node: self._key(node, scope, window), self.error)
        if not own.plain:  # keys are NULL in other sets
            scope = scope.on_side("", nullable=True)
        aggregates: dict[str, AggregateCall] = {}
        change: Callable[[Expression], Expression] = _itself
        overs = Overs({node.this.name: node for node in tree.args.get("windows") or ()})
        binder = Binder(scope, self._offset, aggregates, values=values, calls=window, overs=overs)
        items = self._items(tree, binder, scope)
        items, order = _ordered(tree.args.get("order"), items, binder)
        having = tree.args.get("having")
        shown = None if having is None else binder.condition(having.this, "HAVING")
        calls: tuple[AggregateCall, ...] = ()
        if group is not None or aggregates or having is not None:
            if not own.plain and any(isinstance(node, Window) for node in nodes_of(below)):
                raise self.error(group, "grouping sets of windows are not supported yet")
            keys, below = own.items(), own.expanded(below)
            compared, outer = equations(outer, lambda: self.error(tree, f"a subquery with aggregates {BY_EQUATIONS}"))
            keys = tuple({item.name: item for item in (*keys, *(Item(key_name(of), of) for of in compared.values()))}.values())
            grouped = _Grouped(self._source, own, keys, set(aggregates), binder.offsets)
            change = grouped.over_groups
            items = tuple(Item(item.name, grouped.over_groups(item.of)) for item in items)
            items += tuple(Item(name, Column(key_name(of), of.type)) for name, of in compared.items())
            shown = None if shown is None else grouped.over_groups(shown)
            if values.compares((shown, *(item.of for item in items))):
                raise self.error(tree, "in a query with GROUP BY, a subquery that is a value cannot read the query's columns")
            below = Aggregate(below, keys, tuple(aggregates.values()))
            calls = () if own.of else below.calls
            if len(scope.relations) == 1:
                below = with_ttl(below, (scope.relations[0].alias,), given)
        else:
            items += tuple(Item(HIDDEN + name, column) for name, column in hidden_columns(outer).items())
            outer = tuple(map(hidden, outer))
        if overs.found and outer:
            raise self.error(tree, "OVER in a subquery that reads the outer query is not supported yet")
        parts = [part for call in aggregates.values() for part in (call.argument, call.condition) if part is not None]
        if any(
            reads_outer(of)
            for of in (*parts, *own.of.values(), *overs.read(), *(item.of for item in items), *([] if shown is None else [shown]))
        ):
            raise self.error(tree, "the outer query's columns can be compared in WHERE of the subquery only")
        if overs.found and shown is not None:  # HAVING comes before OVER
            below, shown = Select(below, shown, items_of(below.schema)), None
        below, of = overs.added(below, [item.of for item in items], change)
        plan, (shown, *of) = values.joined(below, [shown, *of], change)
        plan = Select(plan, shown, tuple(Item(item.name, each) for item, each in zip(items, of, strict=True) if each is not None))
        if tree.args.get("distinct") is not None:
            if any(item.name.startswith(ORDER) for item in items):
                raise self.error(tree.args["order"], "with DISTINCT, ORDER BY takes columns of SELECT")
            plan = distinct(self._without_nested(tree, plan))
        return Subquery(named(self._limited(plan, tree, order), given), outer, calls, items[0].of)

    def _without_nested(self, tree: Any, plan: Plan) -> Plan:
        """The plan whose rows are compared."""
        for field in plan.schema:
            if field.type.is_nested:
                raise self.error(tree, f"rows with {field.name!r}, {field.type.name}, cannot be compared yet; select its parts")
        return plan

    def _limited(self, plan: Plan, tree: Any, order: tuple[Order, ...]) -> Plan:
        """The rows within LIMIT and OFFSET, without the columns that only ORDER BY reads."""
        if not any(tree.args.get(name) for name in ("order", "limit", "offset")):
            return plan
        if any(field.name.startswith(HIDDEN) for field in plan.schema):
            raise self.error(tree, "ORDER BY and LIMIT in a subquery that reads the outer query are not supported yet")
        plan = limited(plan, tree, order, self.error, is_last=tree is self._last)
        return Select(plan, None, items_of(field for field in plan.schema if not field.name.startswith(ORDER)))

    def _where(self, tree: Any, below: Plan, scope: Scope, values: Values) -> tuple[Plan, tuple[Expression, ...]]:
        """The rows that pass WHERE, and its conditions that also read the outer query."""
        where = tree.args.get("where")
        if where is None:
            return below, ()
        binder = Binder(scope, self._offset, None, "in WHERE", values=values)
        asking, plain = conditions_of(where.this)
        condition = all_of(tuple(binder.condition(node, "WHERE") for node in plain))
        for node in asking:
            below = asked(node, below, scope, self.subquery, self._offset, self.error)
        condition, outer = split_outer(condition)
        if any(column.name.startswith((VALUE, MARK)) for each in outer for column in columns_of(each)):
            raise self.error(where, "a condition with the outer query's columns and a subquery is not supported yet; use AND")
        early, condition = before_marks(condition)
        if early is not None:
            below = Select(below, early, items_of(below.schema))
        schema: list[Expression | None] = [Column(field.name, field.type) for field in below.schema]
        plan, (condition, *columns) = values.joined(below, [condition, *schema], _itself)
        pairs = zip(below.schema, columns, strict=True)
        return Select(plan, condition, tuple(Item(field.name, of) for field, of in pairs if of is not None)), outer

    # -- FROM

    def _from(self, tree: Any) -> tuple[Plan, Scope]:
        source = tree.args.get("from_") or tree.args.get("from")
        if source is None:
            return ONE_ROW, Scope(self._source, (), outer=self._outer, functions=self._functions)
        if is_version(source.this):
            raise self.error(
                source.this, "FOR SYSTEM_TIME is for a table that is joined: FROM o JOIN t FOR SYSTEM_TIME AS OF o.ts"
            )
        plan, relation = self._relation(source.this)
        scope = Scope(self._source, (relation,), outer=self._outer, functions=self._functions)
        joins = [
            (node, None if isinstance(node.this, exp.Unnest) else self._relation(node.this))
            for node in tree.args.get("joins") or ()
        ]
        order = join_order(tree, [relation, *(right[1] for _, right in joins if right is not None)])
        for at in order[1:]:
            node, right = joins[at - 1]
            if right is None:
                plan, scope = unnest(node, plan, scope, self._offset)
                continue
            left = scope.relations[0].alias if len(scope.relations) == 1 else ""
            plan, scope = join(node, (plan, scope), right, self._offset, self.error)
            plan = joined(plan, left, right[1].alias, self._hints.of(tree))
        if order != sorted(order):  # columns keep the order of FROM
            by_place = sorted(zip(order, scope.relations, strict=True), key=lambda each: each[0])
            scope = with_fields(scope, relations=tuple(each for _, each in by_place))
        return plan, scope

    def _relation(self, table: Any) -> tuple[Plan, Relation]:
        """A table or subquery in FROM."""
        if isinstance(table, exp.Subquery):
            plan, alias = self.bind(table.this), table.alias
        elif isinstance(table, exp.Values):
            plan, alias = self.bind(table), table.alias
        elif isinstance(table, exp.Table) and isinstance(table.this, exp.Identifier):
            name, hint = self._hints.table(".".join(part.name for part in table.parts))
            plan, alias = self._table(name, table, hint), table.alias or name.rpartition(".")[2]
        else:
            raise self.error(table, f"{table.sql()} in FROM is not supported yet")
        plan = self._named(plan, table)
        return plan, Relation.of(alias, plan)

    def _named(self, plan: Plan, node: Any) -> Plan:
        """The plan with the names of columns that follow an alias, if there are any."""
        names = node.alias_column_names
        if names and len(names) != len(plan.schema):
            raise self.error(node, f"{node.alias!r} names {len(names)} columns, the table has {len(plan.schema)}")
        columns = zip(names, plan.schema, strict=True) if names else ()
        return Select(plan, None, tuple(Item(name, Column(f.name, f.type)) for name, f in columns)) if names else plan

    def _table(self, name: str, node: Any, hint: hints.Hint | None) -> Plan:
        call = self._table_functions.get(name)
        if call is not None:
            data, binder = self.bind(call.data), Binder(Scope(self._source, (), functions=self._functions), self._offset)
            if isinstance(call, MatchCall):
                return bind_match(call, data, binder)
            return bind_process(call, data, binder) if isinstance(call, ProcessCall) else in_ms(bind_window(call, data, binder))
        if hint is not None and name in self._local:
            raise hint.error(f"{name!r} is a query, which has no options")
        try:
            found = self._local.get(name) or self._lookup(name, *([] if hint is None else [hint.options]))
        except ConfigError as error:
            raise error if hint is None or isinstance(error, SqlError) else hint.error(str(error)) from error
        if found is None:
            raise self.error(node, f"there is no table {name!r}; {did_you_mean(name, [*self._local, *self._tables()])}")
        return found

    # -- SELECT

    def _items(self, tree: Any, binder: Binder, scope: Scope) -> tuple[Item, ...]:
        items: list[Item] = []
        if not tree.expressions:
            raise self.error(tree, "SELECT has no columns; name one, or write *")
        for position, node in enumerate(tree.expressions):
            inner = node.this if isinstance(node, exp.Alias) else node
            if isinstance(inner, exp.Star) or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)):
                qualifier = inner.table if isinstance(inner, exp.Column) else ""
                items += [Item(*each) for each in scope.all_columns(qualifier, self._offset)]
                continue
            found = binder.bind(inner)
            items.append(Item(node.alias or (inner.name if isinstance(inner, exp.Column) else f"EXPR${position}"), found))
        return _distinct_names(items)

    def _key(self, node: Any, scope: Scope, calls: Mapping[str, Expression]) -> Expression:
        found = Binder(scope, self._offset, None, "in GROUP BY", calls=calls).bind(node)
        if not any(columns_of(found)):
            raise self.error(node, f"GROUP BY {found} is a constant; name a column")
        if found.type.is_nested:
            raise self.error(node, f"GROUP BY takes no {found.type.name} yet; group by its parts")
        return found

    def error(self, node: Any, problem: str) -> SqlError:
        starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
        return self._source.error(self._offset + (min(starts) if starts else 0), problem)


def _as_types(plan: Plan, types: list[SqlType | None]) -> Plan:
    """The plan with its columns converted to these types."""
    items = []
    for field, of in zip(plan.schema, types, strict=True):
        column = Column(field.name, field.type)
        items.append(Item(field.name, column if of is None else converted(column, of)))
    return Select(plan, None, tuple(items))


ORDER = "$order"
"""Begins the names of columns that only ORDER BY reads."""


def _itself(expression: Expression) -> Expression:
    return expression


def _ordered(node: Any, items: tuple[Item, ...], binder: Binder) -> tuple[tuple[Item, ...], tuple[Order, ...]]:
    """ORDER BY over the columns of a query, which may be named, numbered, or computed from what the query reads."""
    found: list[Order] = []
    columns = {item.name: Column(item.name, item.of.type) for item in items}
    names = list(columns)
    for each in () if node is None else node.expressions:
        of = each.this
        if isinstance(of, exp.Literal) and str(of.this).isdigit() and 0 < int(of.this) <= len(names):
            column = columns[names[int(of.this) - 1]]
        elif isinstance(of, exp.Column) and not of.table and of.name in columns:
            column = columns[of.name]
        else:
            expression = binder.bind(of)
            column = Column(f"{ORDER}{len(found)}", expression.type)
            items = (*items, Item(column.name, expression))
        found.append(order_of(each, column, binder))
    return items, tuple(found)


class _Grouped:
    """Expressions of a query with GROUP BY, over the columns of its groups: keys, and aggregates by their text."""

    def __init__(self, source: Text, own: Keys, keys: tuple[Item, ...], aggregates: set[str], offsets: Mapping[str, int]) -> None:
        self._source, self._own, self._aggregates, self._offsets = source, own, aggregates, offsets
        self._keys = {key.name: Column(key.name, key.of.type) for key in keys}

    def over_groups(self, expression: Expression) -> Expression:
        key = self._keys.get(key_name(expression))
        if key is not None:
            return key
        if isinstance(expression, Call) and expression.function == GROUPING:
            grouping = self._own.grouping(expression)
            if grouping is None:
                raise self._source.error(self._offsets[str(expression)], "GROUPING takes the keys of GROUP BY")
            return grouping
        if isinstance(expression, Column) and not (
            expression.name in self._aggregates or expression.name.startswith((VALUE, MARK, OVER))
        ):
            name = plain_name(expression.name)
            raise self._source.error(
                self._offsets.get(expression.name, 0),
                f"column {name!r} must be in GROUP BY, or inside an aggregate such as MAX({name})",
            )
        if isinstance(expression, Call):
            arguments = tuple(map(self.over_groups, expression.arguments))
            return Call(expression.function, arguments, expression.type)
        return expression


def _distinct_names(items: list[Item]) -> tuple[Item, ...]:
    """As in Flink, a second column of the same name gets a number."""
    taken: set[str] = set()
    found = []
    for item in items:
        name, number = item.name, 0
        while name in taken:
            name, number = f"{item.name}{number}", number + 1
        taken.add(name)
        found.append(Item(name, item.of))
    return tuple(found)

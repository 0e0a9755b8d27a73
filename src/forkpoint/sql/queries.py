"""Binds queries: text becomes a plan over the tables of a catalogue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlglot import exp

from forkpoint.relational.expressions import Call, Column, Expression, Item, columns_of
from forkpoint.relational.plan import Aggregate, AggregateCall, Plan, Select, Union, key_name, plain_name
from forkpoint.relational.types import SqlType, common_type
from forkpoint.sql.errors import SqlError, Text, did_you_mean
from forkpoint.sql.expressions import Binder
from forkpoint.sql.grammar import refuse_unread_parts
from forkpoint.sql.joins import join
from forkpoint.sql.scopes import Relation, Scope
from forkpoint.sql.statements import Query
from forkpoint.sql.syntax import syntax_tree, tokens_of
from forkpoint.sql.windows import WindowCall, bind_window, grouped_window, window_calls

Lookup = Callable[[str], Plan | None]
"""The plan of a table or view by its name; None if there is none."""


def bind_query(query: Query, lookup: Lookup, tables: Callable[[], list[str]]) -> Plan:
    """The plan of a query. Raises SqlError. ``tables``: the names that may be meant."""
    tokens, windows = window_calls(tokens_of(query), query)
    tree = syntax_tree(tokens, query)
    binder = _QueryBinder(query.source, query.start, lookup, tables, windows, {})
    for each in (tree, *(call.data for call in windows.values())):
        refuse_unread_parts(each, binder.error)
    return binder.bind(tree)


class _QueryBinder:
    def __init__(
        self,
        source: Text,
        offset: int,
        lookup: Lookup,
        tables: Callable[[], list[str]],
        windows: Mapping[str, WindowCall],
        local: Mapping[str, Plan],
    ) -> None:
        self._source, self._offset, self._lookup, self._tables, self._local = source, offset, lookup, tables, dict(local)
        self._windows = windows

    def bind(self, tree: Any) -> Plan:
        if isinstance(tree, exp.Subquery):
            return self.bind(tree.this)
        if isinstance(tree, exp.SetOperation) and not isinstance(tree, exp.Union):
            raise self.error(tree, f"{type(tree).__name__.upper()} is not supported yet")
        if not isinstance(tree, exp.Select | exp.Union):
            raise self.error(tree, "expected a query: SELECT")
        inner = _QueryBinder(self._source, self._offset, self._lookup, self._tables, self._windows, self._local)
        for cte in tree.ctes:
            inner._local[cte.alias] = inner.bind(cte.this)
        return inner._union(tree) if isinstance(tree, exp.Union) else inner._select(tree)

    def _union(self, tree: Any) -> Plan:
        inputs = [self.bind(tree.this), self.bind(tree.expression)]
        first, second = (plan.schema for plan in inputs)
        if len(first) != len(second):
            raise self.error(tree.expression, f"UNION of {len(first)} and {len(second)} columns")
        types = [common_type([one.type, other.type]) for one, other in zip(first, second, strict=True)]
        for one, other, of in zip(first, second, types, strict=True):
            if of is None:
                problem = f"UNION of column {one.name!r}, {one.type.name}, and {other.name!r}, {other.type.name}; CAST one"
                raise self.error(tree.expression, problem)
        plan: Plan = Union(tuple(_as_types(each, types) for each in inputs))
        if tree.args.get("distinct"):
            plan = Aggregate(plan, tuple(Item(field.name, Column(field.name, field.type)) for field in plan.schema), ())
        return plan

    def _select(self, tree: Any) -> Plan:
        below, scope = self._from(tree)
        below, calls = grouped_window(tree, below, Binder(scope, self._offset))
        where = tree.args.get("where")
        plain = Binder(scope, self._offset, None, "in WHERE")
        condition = None if where is None else plain.condition(where.this, "WHERE")
        if condition is not None:
            below = Select(below, condition, tuple(Item(field.name, Column(field.name, field.type)) for field in below.schema))
        aggregates: dict[str, AggregateCall] = {}
        binder = Binder(scope, self._offset, aggregates, calls=calls)
        items = self._items(tree, binder, scope)
        having = tree.args.get("having")
        shown = None if having is None else binder.condition(having.this, "HAVING")
        group = tree.args.get("group")
        if group is not None or aggregates or having is not None:
            keys = self._keys(group, scope, calls)
            grouped = _Grouped(self._source, keys, set(aggregates), binder.offsets)
            items = tuple(Item(item.name, grouped.over_groups(item.of)) for item in items)
            shown = None if shown is None else grouped.over_groups(shown)
            plan: Plan = Select(Aggregate(below, keys, tuple(aggregates.values())), shown, items)
        else:
            plan = Select(below, None, items)
        if tree.args.get("distinct") is not None:
            keys = tuple(Item(field.name, Column(field.name, field.type)) for field in plan.schema)
            plan = Aggregate(plan, keys, ())
        return plan

    # -- FROM

    def _from(self, tree: Any) -> tuple[Plan, Scope]:
        source = tree.args.get("from_") or tree.args.get("from")
        if source is None:
            raise self.error(tree, "a query without FROM is not supported yet")
        plan, relation = self._relation(source.this)
        scope = Scope(self._source, (relation,))
        for node in tree.args.get("joins") or ():
            plan, scope = join(node, (plan, scope), self._relation(node.this), self._offset, self.error)
        return plan, scope

    def _relation(self, table: Any) -> tuple[Plan, Relation]:
        """A table or subquery in FROM."""
        if isinstance(table, exp.Subquery):
            plan, alias = self.bind(table.this), table.alias
        elif isinstance(table, exp.Table) and isinstance(table.this, exp.Identifier):
            name = ".".join(part.name for part in table.parts)
            plan, alias = self._table(name, table), table.alias or table.name
        else:
            raise self.error(table, f"{table.sql()} in FROM is not supported yet")
        return plan, Relation.of(alias, plan)

    def _table(self, name: str, node: Any) -> Plan:
        window = self._windows.get(name)
        if window is not None:
            return bind_window(window, self.bind(window.data), Binder(Scope(self._source, ()), self._offset))
        found = self._local.get(name) or self._lookup(name)
        if found is None:
            raise self.error(node, f"there is no table {name!r}; {did_you_mean(name, [*self._local, *self._tables()])}")
        return found

    # -- SELECT

    def _items(self, tree: Any, binder: Binder, scope: Scope) -> tuple[Item, ...]:
        items: list[Item] = []
        for position, node in enumerate(tree.expressions):
            inner = node.this if isinstance(node, exp.Alias) else node
            if isinstance(inner, exp.Star) or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)):
                qualifier = inner.table if isinstance(inner, exp.Column) else ""
                items += [Item(*each) for each in scope.all_columns(qualifier, self._offset)]
                continue
            found = binder.bind(inner)
            items.append(Item(node.alias or (inner.name if isinstance(inner, exp.Column) else f"EXPR${position}"), found))
        return _distinct_names(items)

    def _keys(self, group: Any, scope: Scope, calls: Mapping[str, Expression]) -> tuple[Item, ...]:
        if group is None:
            return ()
        keys: dict[str, Item] = {}
        for node in group.expressions:
            binder = Binder(scope, self._offset, None, "in GROUP BY", calls=calls)
            found = binder.bind(node)
            if not any(columns_of(found)):
                raise self.error(node, f"GROUP BY {found} is a constant; name a column")
            keys.setdefault(str(found), Item(key_name(found), found))
        return tuple(keys.values())

    def error(self, node: Any, problem: str) -> SqlError:
        starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
        return self._source.error(self._offset + (min(starts) if starts else 0), problem)


def _as_types(plan: Plan, types: list[SqlType | None]) -> Plan:
    """The plan with its columns converted to these types."""
    items = []
    for field, of in zip(plan.schema, types, strict=True):
        column: Expression = Column(field.name, field.type)
        if of is not None and of.name != field.type.name:
            column = Call("CAST", (column,), of.with_null(field.type.nullable))
        items.append(Item(field.name, column))
    return Select(plan, None, tuple(items))


class _Grouped:
    """Expressions of a query with GROUP BY, over the columns of its groups: keys, and aggregates by their text."""

    def __init__(self, source: Text, keys: tuple[Item, ...], aggregates: set[str], offsets: Mapping[str, int]) -> None:
        self._source, self._keys, self._aggregates, self._offsets = (
            source,
            {str(key.of): key for key in keys},
            aggregates,
            offsets,
        )

    def over_groups(self, expression: Expression) -> Expression:
        key = self._keys.get(str(expression))
        if key is not None:
            return Column(key.name, expression.type)
        if isinstance(expression, Column) and expression.name not in self._aggregates:
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

"""Translates plans to the operators of a job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from forkpoint.graph.transformations import Edge, Transformation
from forkpoint.relational.canonical import both, canonical_with_columns, merged, replaced, through
from forkpoint.relational.changes import row_type
from forkpoint.relational.definition import GroupDefinition, View
from forkpoint.relational.expressions import Column, Expression, Item, Literal
from forkpoint.relational.operators.group_aggregate import GroupAggregateSpec
from forkpoint.relational.operators.keyed import key_by
from forkpoint.relational.operators.keyed_rows import KeyedRowsSpec
from forkpoint.relational.operators.select import SelectSpec, UpsertSpec
from forkpoint.relational.plan import Aggregate, Join, Over, Plan, Scan, Select, Union, is_updating, nodes_of
from forkpoint.relational.row_definition import RowsDefinition
from forkpoint.relational.types import Field, Schema, SqlType

_ROW = Item("row", Literal(True, SqlType("BOOLEAN", nullable=False)))
"""What COUNT(*) reads: rows have at least one column."""


@dataclass
class Translator:
    """``source``: the edges that read a table. ``name``: of the result, from which operators with state get their uids."""

    source: Callable[[str], tuple[Edge, ...]]
    name: str
    _taken: set[str] = field(default_factory=set)

    def translate(self, plan: Plan) -> tuple[Edge, ...]:
        """The edges with the result of a plan: its columns, and weights if the result is updating."""
        plan = merged(plan)
        if not isinstance(plan, Select):
            items = tuple(Item(each.name, Column(each.name, each.type)) for each in plan.schema)
            plan = Select(plan, None, items)
        below, columns = canonical_with_columns(plan.input)
        items = tuple(Item(item.name, through(item.of, columns)) for item in plan.items)
        return self._select(below, replaced(plan.condition, columns), items)

    def _select(
        self, below: Plan, condition: Expression | None, items: tuple[Item, ...], schema: Schema = (), *, weighted: bool = False
    ) -> tuple[Edge, ...]:
        """Projection and filter of a canonical plan. ``schema``: of the result, by default that of the items. ``weighted``: the
        result has weights, although its rows are only added."""
        schema = schema or tuple(Field(item.name, item.of.type) for item in items)
        if isinstance(below, Union):
            return self._union(below, condition, items, schema)
        if isinstance(below, Select):  # without items: a condition on what an aggregate reads
            return self._select(below.input, both(below.condition, condition), items, schema, weighted=weighted)
        if isinstance(below, Aggregate):
            return (Edge(self._aggregate(below, View(condition, items), schema)),)
        if isinstance(below, Join | Over):
            return (Edge(self._keyed_rows(below, View(condition, items), schema, weighted=weighted)),)
        spec = SelectSpec(condition, items, weighted)
        return (Edge(Transformation(spec, "select", self.source(below.table), row_type(schema, updating=weighted))),)

    def _union(self, union: Union, condition: Expression | None, items: tuple[Item, ...], schema: Schema) -> tuple[Edge, ...]:
        """Projection and filter of each input."""
        updating = is_updating(union)
        edges: list[Edge] = []
        for each in union.inputs:
            assert isinstance(each, Select)
            columns = {item.name: item.of for item in each.items}
            of_input = tuple(Item(item.name, through(item.of, columns)) for item in items)
            where = both(each.condition, replaced(condition, columns))
            edges += self._select(each.input, where, of_input, schema, weighted=updating)
        return tuple(edges)

    def _aggregate(self, aggregate: Aggregate, view: View, schema: Schema) -> Transformation:
        definition = GroupDefinition(aggregate, view)
        names = definition.key_names
        keys = tuple(Item(name, key.of) for name, key in zip(names, aggregate.keys, strict=True))
        inputs = {each.column: each.input for each in definition.accumulators if each.input is not None}
        items = (*keys, *(Item(name, of) for name, of in inputs.items())) or (_ROW,)
        upstream = self._select(aggregate.input, None, items)
        key = key_by(names, names, [each.of.type for each in keys])
        return Transformation(
            GroupAggregateSpec(definition),
            f"group by {', '.join(names)}" if names else "aggregate",
            tuple(replace(edge, partitioning=key) for edge in upstream),
            row_type(schema, updating=True),
            uid=self._uid("-".join(("group-by", *names)) if names else "aggregate"),
        )

    def _keyed_rows(self, node: Join | Over, view: View, schema: Schema, *, weighted: bool) -> Transformation:
        definition = RowsDefinition(node, view)
        names, edges = definition.key_names, []
        for ordinal, side in enumerate(definition.sides):
            keys = tuple(Item(f"key {name}", of) for name, of in zip(names, definition.keys(side), strict=True))
            kept = tuple(Item(field.name, Column(field.name, field.type)) for field in definition.kept(side))
            items = (*keys, *kept) or (_ROW,)
            fields = tuple(Field(item.name, item.of.type.with_null()) for item in items)
            key = key_by([item.name for item in keys], names, definition.key_types)
            upstream = self._select(definition.input(side), None, items, fields)
            edges += [replace(edge, partitioning=key, ordinal=ordinal) for edge in upstream]
        updating = weighted or is_updating(node)
        if isinstance(node, Join):
            tables = dict.fromkeys(each.table for each in nodes_of(node) if isinstance(each, Scan))
            name, role = f"{node.kind} join", "-".join(("join", *tables))
        else:
            name, role = f"over {', '.join(names)}", "-".join(("over", *names))
        spec = KeyedRowsSpec(definition, updating)
        return Transformation(spec, name, tuple(edges), row_type(schema, updating=updating), uid=self._uid(role))

    def _uid(self, role: str) -> str:
        return free_name(f"{self.name}-{role}", self._taken)


def free_name(name: str, taken: set[str]) -> str:
    """The name, with a number if it is taken; it is taken then."""
    found, number = name, 2
    while found in taken:
        found, number = f"{name}-{number}", number + 1
    taken.add(found)
    return found


def upserts(changes: tuple[Edge, ...], key: tuple[str, ...]) -> tuple[Edge, ...]:
    """The changes of a stream as one row for each primary key and epoch."""
    return (Edge(Transformation(UpsertSpec(key), "upsert", changes, changes[0].upstream.output_type)),)

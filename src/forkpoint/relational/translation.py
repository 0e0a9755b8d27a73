"""Translates plans to the operators of a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from forkpoint.errors import ConfigError
from forkpoint.functions import OutputTag
from forkpoint.graph.transformations import Edge, Transformation
from forkpoint.relational.aggregation.accumulators import Accumulator, adds_parts, part_of
from forkpoint.relational.canonical import both, canonical_with_columns, merged, pushed, replaced, through
from forkpoint.relational.changes import row_type
from forkpoint.relational.definitions.groups import GroupDefinition, OtherView, View
from forkpoint.relational.definitions.rows import RowsDefinition, is_final, limit_of
from forkpoint.relational.expressions import Call, Column, Expression, Item, Literal, columns_of, items_of, read_by
from forkpoint.relational.functions.changing import reads_clock
from forkpoint.relational.functions.user import UserFunction
from forkpoint.relational.lookups import LookupTable
from forkpoint.relational.operators.calling import with_functions
from forkpoint.relational.operators.group_aggregate import GroupAggregateSpec
from forkpoint.relational.operators.joins.interval_join import IntervalJoinSpec
from forkpoint.relational.operators.joins.keyed_rows import KeyedRowsSpec
from forkpoint.relational.operators.joins.temporal_join import TemporalJoinSpec
from forkpoint.relational.operators.keyed import key_by
from forkpoint.relational.operators.match import match_spec
from forkpoint.relational.operators.match import partition_key as partition_of_match
from forkpoint.relational.operators.parts import PartsSpec
from forkpoint.relational.operators.process import partition_key, process_spec
from forkpoint.relational.operators.retention import Retention
from forkpoint.relational.operators.select import OrderedSpec, UpsertSpec, select_spec
from forkpoint.relational.operators.session_aggregate import SessionAggregateSpec
from forkpoint.relational.operators.slices import SlicesSpec
from forkpoint.relational.operators.unnest import ARRAY, UnnestSpec
from forkpoint.relational.operators.window_aggregate import WindowAggregateSpec
from forkpoint.relational.operators.window_over import WindowOverSpec
from forkpoint.relational.operators.windows import LAST, TIME, WindowsSpec
from forkpoint.relational.placement import together
from forkpoint.relational.plan import (
    LEFT,
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
    inputs_of,
    is_sort,
    is_updating,
    is_windowed,
    nodes_of,
)
from forkpoint.relational.sharing import repeated
from forkpoint.relational.types import Field, Schema, SqlType
from forkpoint.runtime.operators.instances import KeyedSpec

_ROW = Item("row", Literal(True, SqlType("BOOLEAN", nullable=False)))
"""What COUNT(*) reads: rows have at least one column."""


@dataclass
class Translator:
    """``source``: the edges that read a table. ``name``: of the result, from which operators with state get their uids.
    ``lookup``: how rows of a table are found by the values of columns. ``functions``: the user's, by identity. ``processes``: the
    process functions of the job so far, by uid. ``ttl_ms``: how long state is kept that hints say nothing about."""

    source: Callable[[Scan], tuple[Edge, ...]]
    name: str
    lookup: Callable[[Scan, tuple[str, ...]], LookupTable]
    functions: Mapping[str, UserFunction] = field(default_factory=dict)
    processes: dict[str, tuple[Process, tuple[Edge, ...]]] = field(default_factory=dict)
    ttl_ms: int | None = None
    _taken: set[str] = field(default_factory=set)
    _repeated: frozenset[str] = frozenset()
    _computed: dict[str, Transformation] = field(default_factory=dict)

    def translate(self, plan: Plan) -> tuple[Edge, ...]:
        """The edges with the result of a plan: its columns, and weights if the result is updating."""
        plan = merged(plan)
        if not isinstance(plan, Select):
            plan = Select(plan, None, items_of(plan.schema))
        if any(map(is_sort, nodes_of(plan))):
            raise ConfigError(
                "ORDER BY without LIMIT is for a query of its own whose input ends; elsewhere, changes have no order, unless "
                "event time comes first in ORDER BY, ascending"
            )
        below, columns = canonical_with_columns(plan.input)
        items = tuple(Item(item.name, through(item.of, columns)) for item in plan.items)
        condition = replaced(plan.condition, columns)
        if isinstance(below, Join):
            below, condition = pushed(below, condition)
        self._repeated = repeated(below)
        return with_functions(self._select(below, condition, items), self.functions)

    def _select(
        self, below: Plan, condition: Expression | None, items: tuple[Item, ...], schema: Schema = (), *, weighted: bool = False
    ) -> tuple[Edge, ...]:
        """Projection and filter of a canonical plan. ``schema``: of the result, by default that of the items. ``weighted``: the
        result has weights, although its rows are only added."""
        schema = schema or tuple(Field(item.name, item.of.type) for item in items)
        if any(map(reads_clock, (condition, *(item.of for item in items)))):
            return self._at_processing_time(below, condition, items, schema, weighted=weighted)
        if isinstance(below, Union):
            return self._union(below, condition, items, schema)
        if isinstance(below, Select):  # without items: a condition on what an aggregate reads
            return self._select(below.input, both(below.condition, condition), items, schema, weighted=weighted)
        if isinstance(below, Window):
            return self._window(below, condition, items, schema, weighted=weighted)
        if isinstance(below, Unnest):
            return self._unnest(below, condition, items, schema, weighted=weighted)
        if isinstance(below, Apply):
            return self._apply(below, condition, items, schema, weighted=weighted)
        if isinstance(below, Match):
            return selected(self._match(below), (condition, items), schema, weighted=weighted)
        if isinstance(below, Process):
            return selected(self._process(below), (condition, items), schema, weighted=weighted)
        if isinstance(below, Aggregate):
            edges = (self._aggregate(below, View(condition, items), schema),)
            if not (weighted and is_windowed(below)):
                return edges
            return selected(edges, (None, items_of(schema)), schema, weighted=True)
        if isinstance(below, Join) and below.lookup:
            edges = (Edge(self._lookup(below, View(condition, items), schema)),)
            return selected(edges, (None, items_of(schema)), schema, weighted=True) if weighted else edges
        if isinstance(below, Join | Over) and is_final(below):
            edges = (Edge(self._final_rows(below, View(condition, items), schema)),)
            return selected(edges, (None, items_of(schema)), schema, weighted=True) if weighted else edges
        if isinstance(below, Join | Over):
            return (Edge(self._keyed_rows(below, View(condition, items), schema, weighted=weighted)),)
        upstream = self.source(below)
        return selected(upstream, computed_before(condition, items, upstream), schema, weighted=weighted or below.updating)

    def _at_processing_time(
        self, below: Plan, condition: Expression | None, items: tuple[Item, ...], schema: Schema, *, weighted: bool
    ) -> tuple[Edge, ...]:
        """Projection and filter with PROCTIME(), in a step of their own: operators with state do not know the time of a row."""
        if is_updating(below):
            name = next((item.name for item in items if reads_clock(item.of)), condition)
            raise ConfigError(
                f"{name}: PROCTIME() has another value each time, so it is not for rows that change later; select the other "
                "columns by their names, or use it before rows are grouped or joined"
            )
        read = [item.of for item in items] + ([] if condition is None else [condition])
        used = tuple(Item(name, of) for name, of in read_by(read).items())
        upstream = self._select(below, None, used or (_ROW,))
        return selected(upstream, (condition, items), schema, weighted=weighted)

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

    def _window(
        self, window: Window, condition: Expression | None, items: tuple[Item, ...], schema: Schema, *, weighted: bool
    ) -> tuple[Edge, ...]:
        """Projection and filter of the rows of windows. Only the columns that they need get there."""
        added = (*window.added, Field(LAST, SqlType("BOOLEAN", nullable=False)))
        read = [item.of for item in items] + ([] if condition is None else [condition])
        used = read_by(read)
        below = tuple(Item(name, of) for name, of in used.items() if name not in {field.name for field in added})
        fields = (*(Field(each.name, each.of.type) for each in below), *(field for field in added if field.name in used))
        upstream = self._select(window.input, None, (*below, Item(TIME, window.time)))
        rows = Edge(Transformation(WindowsSpec(window.windows, window.names), str(window.windows), upstream, row_type(fields)))
        return selected((rows,), (condition, items), schema, weighted=weighted)

    def _sessions(self, aggregate: Aggregate, window: Window, view: View, schema: Schema) -> Transformation:
        definition = GroupDefinition(aggregate, view)
        named = zip(definition.key_names, aggregate.keys, strict=True)
        keys = tuple(Item(name, key.of) for name, key in named if name not in definition.window_keys.values())
        inputs = {each.column: each.input for each in definition.accumulators if each.input is not None}
        items = (*keys, Item(TIME, window.time), *(Item(name, of) for name, of in inputs.items()))
        names = [item.name for item in keys]
        key = key_by(names, names, [item.of.type for item in keys])
        return Transformation(
            SessionAggregateSpec(definition, window.windows.size_ms),
            f"group by {', '.join(definition.key_names)}",
            tuple(replace(edge, partitioning=key) for edge in self._select(window.input, None, items)),
            row_type(schema),
            uid=self._uid(_role(definition), aggregate),
        )

    def _unnest(
        self, node: Unnest, condition: Expression | None, items: tuple[Item, ...], schema: Schema, *, weighted: bool
    ) -> tuple[Edge, ...]:
        """Projection and filter of the rows of elements. Only the columns that they need get there."""
        read = [item.of for item in items] + ([] if condition is None else [condition])
        columns = {column.name for each in read for column in columns_of(each)}
        below = tuple(Item(name, of) for name, of in read_by(read, but=node.names).items())
        added = tuple(field for field in node.added if field.name in columns)
        fields = (*(Field(each.name, each.of.type) for each in below), *added) or node.added[:1]
        upstream, updating = self._select(node.input, None, (*below, Item(ARRAY, node.of))), is_updating(node)
        spec = UnnestSpec(node.names, node.outer)
        rows = Edge(Transformation(spec, f"unnest {node.of}", upstream, row_type(fields, updating=updating)))
        return selected((rows,), (condition, items), schema, weighted=weighted or updating)

    def _apply(
        self, node: Apply, condition: Expression | None, items: tuple[Item, ...], schema: Schema, *, weighted: bool
    ) -> tuple[Edge, ...]:
        """Projection and filter of rows with the results of calls, in a step of their own: it sees each row once."""
        calls = {item.name for item in node.calls}
        read = [item.of for item in (*items, *node.calls)] + ([] if condition is None else [condition])
        below = tuple(Item(name, of) for name, of in read_by(read, but=calls).items()) or (_ROW,)
        fields = tuple(Field(item.name, item.of.type) for item in (*below, *node.calls))
        kept = items_of(fields[: len(below)])
        rows = selected(self._select(node.input, None, below), (None, (*kept, *node.calls)), fields, weighted=False)
        return selected(rows, (condition, items), schema, weighted=weighted)

    def _match(self, node: Match) -> tuple[Edge, ...]:
        """A row for each match of a pattern."""
        assert isinstance(node.input, Select)
        rows = self._select(node.input.input, node.input.condition, node.input.items)
        keyed = tuple(replace(edge, partitioning=partition_of_match(node)) for edge in rows)
        uid = free_name(f"{self.name}-match", self._taken)
        return (Edge(Transformation(match_spec(node), "match", keyed, row_type(node.schema), uid=uid)),)

    def _process(self, node: Process) -> tuple[Edge, ...]:
        """The results of a process function. It runs once, whatever reads them."""
        known = self.processes.get(node.uid)
        if known is not None and known[0] != node:
            raise ConfigError(f"two calls of process functions have the uid {node.uid!r}; give one another: uid => '…'")
        if known is not None:
            return known[1]
        assert isinstance(node.input, Select)
        rows = self._select(node.input.input, node.input.condition, node.input.items)
        if node.partition:
            rows = tuple(replace(edge, partitioning=partition_key(node)) for edge in rows)
        spec = process_spec(node, self.functions[node.function])
        found = Transformation(spec, f"process {node.function}", rows, row_type(node.fields), uid=node.uid)
        self.processes[node.uid] = node, (Edge(found),)
        return self.processes[node.uid][1]

    def _aggregate(self, aggregate: Aggregate, view: View, schema: Schema) -> Edge:
        """The rows of groups. Equal aggregates are computed once."""
        text = repr(aggregate) if self._repeated else ""
        if text in self._computed:
            return self._shared(self._computed[text], aggregate, view, schema)
        found = self._groups(aggregate, view, schema)
        if text in self._repeated:
            self._computed[text] = found
        return Edge(found)

    def _shared(self, known: Transformation, aggregate: Aggregate, view: View, schema: Schema) -> Edge:
        """Another view of an aggregate, as a side output. It has the uid that it would have by itself, so that other uids stay,
        and that what a savepoint has of it is known."""
        uid, spec = self._reserved(aggregate), known.spec
        assert isinstance(spec, GroupAggregateSpec | SessionAggregateSpec)
        tag: OutputTag[Any] = OutputTag(uid, row_type(schema, updating=not is_windowed(aggregate)))
        assert tag.type_info is not None
        definition = msgspec.structs.replace(spec.definition, others=(*(spec.definition.others or ()), OtherView(uid, view)))
        known.spec = replace(spec, definition=definition, sides=(*spec.sides, (uid, tag.type_info)))
        return Edge(known, tag)

    def _reserved(self, plan: Plan) -> str:
        """The uid of an operator, which is taken then, as are those of what it reads; "" if it has no state of its own."""
        for each in () if isinstance(plan, Process) else inputs_of(plan):
            self._reserved(each)
        match plan:
            case Match():
                role = "match"
            case Aggregate():
                role = (plan.hints and plan.hints.uid) or _role(GroupDefinition(plan, View(None, ())))
            case Join() | Over():
                role = (plan.hints and plan.hints.uid) or _role_of_rows(RowsDefinition(plan, View(None, ())))[1]
            case _:
                return ""
        return free_name(f"{self.name}-{role}", self._taken)

    def _groups(self, aggregate: Aggregate, view: View, schema: Schema) -> Transformation:
        if isinstance(aggregate.input, Window) and aggregate.input.windows.kind == "SESSION":
            return self._sessions(aggregate, aggregate.input, view, schema)
        definition = GroupDefinition(aggregate, view)
        names = definition.key_names
        keys = tuple(Item(name, key.of) for name, key in zip(names, aggregate.keys, strict=True))
        inputs = {each.column: each.input for each in definition.accumulators if each.input is not None}
        items = (*keys, *(Item(name, of) for name, of in inputs.items())) or (_ROW,)
        windowed = definition.window_keys
        parts: tuple[Edge, ...] = ()
        if all(map(adds_parts, definition.accumulators)) and not is_updating(aggregate.input):
            parts = self._slices(definition, keys) if windowed else self._parts(definition, keys)
        if windowed and in_several_windows(aggregate.input):
            items = (*items, Item(LAST, Column(LAST, SqlType("BOOLEAN", nullable=False))))
        upstream = parts or self._select(aggregate.input, None, items)
        key = key_by(names, names, [each.of.type for each in keys])
        windows = WindowAggregateSpec(definition, parts=bool(parts))
        return Transformation(
            windows if windowed else GroupAggregateSpec(definition, self._retention(aggregate), parts=bool(parts)),
            f"group by {', '.join(names)}" if names else "aggregate",
            tuple(replace(edge, partitioning=key) for edge in upstream),
            row_type(schema, updating=not windowed),
            uid=self._uid(_role(definition), aggregate),
        )

    def _parts(self, definition: GroupDefinition, keys: tuple[Item, ...]) -> tuple[Edge, ...]:
        """The accumulators of parts of the rows of groups."""
        parts, inputs = _parts_of(definition)
        upstream = self._select(definition.aggregate.input, None, (*keys, *inputs) or (_ROW,))
        fields = (*(Field(key.name, key.of.type) for key in keys), *(Field(each.name, each.type) for each in parts))
        return (Edge(Transformation(PartsSpec(definition.key_names, parts), "parts of groups", upstream, row_type(fields))),)

    def _slices(self, definition: GroupDefinition, keys: tuple[Item, ...]) -> tuple[Edge, ...]:
        """The accumulators of parts of the rows of windows; none if the windows' columns are needed before."""
        window, bounds = definition.aggregate.input, definition.window_keys
        if not isinstance(window, Window):
            return ()
        parts, inputs = _parts_of(definition)
        read = (*(key for key in keys if key.name not in bounds.values()), *inputs)
        if any(column.name in window.names for item in read for column in columns_of(item.of)):
            return ()
        upstream = self._select(window.input, None, (*read, Item(TIME, window.time)))
        types = {key.name: key.of.type for key in keys}
        types |= {each.name: each.type for each in parts} | {LAST: SqlType("BOOLEAN", nullable=False)}
        fields = tuple(Field(name, of) for name, of in types.items())
        spec = SlicesSpec(window.windows, bounds, parts)
        return (Edge(Transformation(spec, str(window.windows), upstream, row_type(fields))),)

    def _keyed_rows(self, node: Join | Over, view: View, schema: Schema, *, weighted: bool) -> Transformation:
        definition = RowsDefinition(node, view, limit_of(node, view))
        updating = weighted or is_updating(node)
        (name, role), of = _role_of_rows(definition), row_type(schema, updating=updating)
        spec = KeyedRowsSpec(definition, updating, self._retention(node))
        return Transformation(spec, name, self._sides(definition), of, uid=self._uid(role, node))

    def _final_rows(self, node: Join | Over, view: View, schema: Schema) -> Transformation:
        """A node whose rows are kept until event time has passed them."""
        definition = RowsDefinition(node, view)
        spec: KeyedSpec = WindowOverSpec(definition)
        if isinstance(node, Join):
            spec = TemporalJoinSpec(definition) if node.as_of else IntervalJoinSpec(definition)
        name, role = _role_of_rows(definition)
        return Transformation(spec, name, self._sides(definition), row_type(schema), uid=self._uid(role, node))

    def _lookup(self, node: Join, view: View, schema: Schema) -> Transformation:
        from forkpoint.relational.operators.joins.lookup_join import lookup_spec  # imports asyncio

        definition = RowsDefinition(node, view)
        assert isinstance(node.right, Scan)
        table = self.lookup(node.right, tuple(str(key) for _, key in node.keys))
        (_, role), of = _role_of_rows(definition), row_type(schema)
        inputs, name = self._sides(definition, (LEFT,)), f"{node.kind} lookup join"
        return Transformation(lookup_spec(definition, table), name, inputs, of, uid=self._uid(role, node))

    def _sides(self, definition: RowsDefinition, sides: tuple[str, ...] = ()) -> tuple[Edge, ...]:
        """The inputs of a node whose rows are kept by key: the columns of the key, and those that are kept."""
        names: tuple[str, ...] = definition.key_names
        edges: list[Edge] = []
        for ordinal, side in enumerate(sides or definition.sides):
            keys = tuple(Item(f"key {name}", of) for name, of in zip(names, definition.keys(side), strict=True))
            kept = definition.items(side)
            items = (*keys, *kept) or (_ROW,)
            fields = tuple(Field(item.name, item.of.type.with_null()) for item in items)
            key = key_by([item.name for item in keys], names, definition.key_types)
            upstream = self._select(definition.input(side), None, items, fields)
            edges += [replace(edge, partitioning=key, ordinal=ordinal) for edge in upstream]
        return tuple(edges)

    def _uid(self, role: str, node: Aggregate | Join | Over) -> str:
        if not (node.hints and node.hints.uid):
            return free_name(f"{self.name}-{role}", self._taken)
        uid = f"{self.name}-{node.hints.uid}"
        if uid in self._taken:
            raise ConfigError(f"two nodes of the query are named {node.hints.uid!r}; give one another name in the hint UID")
        self._taken.add(uid)
        return uid

    def _retention(self, node: Aggregate | Join | Over) -> Retention:
        below = (each.hints for each in nodes_of(node) if isinstance(each, Aggregate | Join | Over))
        hinted = any(any(hints.ttl_ms) for hints in below if hints)
        ttl_ms = tuple(ttl_of(node, ordinal, self.ttl_ms) for ordinal in range(len(inputs_of(node))))
        return Retention(ttl_ms, incomplete=hinted or self.ttl_ms is not None)


def _parts_of(definition: GroupDefinition) -> tuple[tuple[Accumulator, ...], tuple[Item, ...]]:
    """The accumulators of parts of groups, and their inputs."""
    parts = tuple(map(part_of, definition.accumulators))
    return parts, tuple(Item(each.name, each.input) for each in parts if each.input is not None)


def _role(definition: GroupDefinition) -> str:
    """What the operator of an aggregate does, for its uid."""
    names = [name for name in definition.key_names if name not in definition.window_keys.values()]
    if definition.window_keys:
        return "-".join(("windows-by", *names)) if names else "windows"
    return "-".join(("group-by", *names)) if names else "aggregate"


def _role_of_rows(definition: RowsDefinition) -> tuple[str, str]:
    """The name of an operator that keeps rows, and what it does, for its uid."""
    node, keys = definition.node, definition.key_names
    if isinstance(node, Over):
        return f"over {', '.join(keys)}", "-".join(("over", *keys))
    tables = dict.fromkeys(each.table for each in nodes_of(node) if isinstance(each, Scan))
    return f"{node.kind} join{' in event time' * is_final(node)}", "-".join(("join", *tables))


def ttl_of(node: Aggregate | Join | Over, ordinal: int, configured_ms: int | None) -> int | None:
    """How long a node keeps the state of an input, in ms; None without limit."""
    given = node.hints.ttl_ms[ordinal] if node.hints and ordinal < len(node.hints.ttl_ms) else None
    return configured_ms if given is None else given or None


def in_several_windows(plan: Plan) -> bool:
    """Whether the rows of an aggregate's input are those of another table, several times each."""
    below = plan.input if isinstance(plan, Select) else plan
    return isinstance(below, Window) and below.windows.per_row > 1


Selection = tuple[Expression | None, tuple[Item, ...]]
"""A condition and items."""


def selected(upstream: tuple[Edge, ...], of: Selection, schema: Schema, *, weighted: bool) -> tuple[Edge, ...]:
    type = row_type(schema, updating=weighted)
    return (Edge(Transformation(select_spec(*of, weighted=weighted), "select", upstream, type)),)


def computed_before(condition: Expression | None, items: tuple[Item, ...], upstream: tuple[Edge, ...]) -> Selection:
    """The selection with columns in place of what the source of a table has computed: columns that their expression names."""
    type = upstream[0].upstream.output_type
    known = set() if type is None else set(type.column_names)

    def read(expression: Expression) -> Expression:
        if not isinstance(expression, Call):
            return expression
        if str(expression) in known:
            return Column(str(expression), expression.type)
        return Call(expression.function, tuple(map(read, expression.arguments)), expression.type)

    return None if condition is None else read(condition), tuple(Item(item.name, read(item.of)) for item in items)


def free_name(name: str, taken: set[str]) -> str:
    """The name, with a number if it is taken; it is taken then."""
    found, number = name, 2
    while found in taken:
        found, number = f"{name}-{number}", number + 1
    taken.add(found)
    return found


def upserts(changes: tuple[Edge, ...], plan: Plan, key: tuple[str, ...]) -> tuple[Edge, ...]:
    """The changes of a plan's result as one row for each primary key and epoch."""
    of = changes[0].upstream.output_type
    found = (Edge(Transformation(UpsertSpec(key), "upsert", changes, of)),)
    if _is_together(plan, key):
        return found
    return (Edge(Transformation(UpsertSpec(key, of_subtasks=True), "upsert by key", _by_key(found, plan, key), of)),)


def ordered(changes: tuple[Edge, ...], plan: Plan, key: tuple[str, ...]) -> tuple[Edge, ...]:
    """The changes of a plan's result, of which those of a key are in order, in one subtask."""
    if _is_together(plan, key):
        return changes
    of = changes[0].upstream.output_type
    return (Edge(Transformation(OrderedSpec(key), "order by key", _by_key(changes, plan, key), of)),)


def _is_together(plan: Plan, key: tuple[str, ...]) -> bool:
    """Whether one subtask has all changes of a key; otherwise, one may remove a row that another adds."""
    return any(columns <= set(key) for columns in together(plan))


def _by_key(changes: tuple[Edge, ...], plan: Plan, key: tuple[str, ...]) -> tuple[Edge, ...]:
    at = [[field.name for field in plan.schema].index(name) for name in key]
    keyed = key_by(key, key, [plan.schema[each].type for each in at], at)
    return tuple(replace(edge, partitioning=keyed) for edge in changes)

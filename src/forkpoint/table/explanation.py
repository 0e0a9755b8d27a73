"""EXPLAIN: a plan as text, with what each node needs to know."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

from forkpoint.graph.transformations import Edge, topological_order
from forkpoint.relational.canonical import canonical
from forkpoint.relational.definitions.rows import on_side
from forkpoint.relational.expressions import Call, Literal, all_of, conjuncts_of
from forkpoint.relational.operators.retention import lifetime
from forkpoint.relational.plan import (
    LEFT,
    RIGHT,
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
    is_updating,
    is_windowed,
    nodes_of,
)
from forkpoint.relational.precision import as_it_runs, in_ms
from forkpoint.relational.sharing import repeated
from forkpoint.relational.translation import ttl_of
from forkpoint.relational.types import BOOLEAN
from forkpoint.relational.windows import duration
from forkpoint.sql.statements import CreateTable
from forkpoint.table.endless_state import REMEDY


class ExplainDetail(Enum):
    """What Flink's ``explain`` adds to a plan. Plans always show changes and state; EXPLAIN in SQL takes the last two, too."""

    ESTIMATED_COST = 0
    CHANGELOG_MODE = 1
    JSON_EXECUTION_PLAN = 2
    PLAN_ADVICE = 3


def explained(plan: Plan, depth: int = 0, ttl_ms: int | None = None) -> str:
    """The plan, inputs below, with its changes and state. ``ttl_ms``: how long state is kept, None without limit."""
    equal = repeated(canonical(as_it_runs(plan)))
    return "\n".join(_lines(plan, depth, ttl_ms, dict.fromkeys(equal, False)))


def insertion(table: CreateTable, plan: Plan, ttl_ms: int | None = None) -> str:
    """What an INSERT writes into a table."""
    return f"Insert into {table.name} ({table.options['connector']})\n{explained(plan, 1, ttl_ms)}"


def advice(plan: Plan, ttl_ms: int | None = None) -> str:
    """What to think about: the nodes whose state nothing bounds."""
    found = [text for node in nodes_of(plan) if (text := _described(node, ttl_ms)).endswith("without limit")]
    lines = [f"advice[{number}]: [WARNING] {text}; {REMEDY}" for number, text in enumerate(found, 1)]
    return "\n".join(lines) or "No available advice..."


def execution_plan(edges: Sequence[Edge], table: CreateTable | None) -> str:
    """The operators with the result of a query, and the sink if it is written into a table, as JSON by Flink's names."""
    order = topological_order([edge.upstream for edge in edges])
    ids = {each: number for number, each in enumerate(order, 1)}

    def read(inputs: Sequence[Edge]) -> list[dict[str, Any]]:
        return [{"id": ids[edge.upstream], "ship_strategy": edge.partitioning.ship_strategy} for edge in inputs]

    nodes = [
        {
            "id": ids[each],
            "type": each.name,
            "pact": "Operator" if each.inputs else "Data Source",
            "contents": each.name,
            "predecessors": read(each.inputs),
        }
        for each in order
    ]
    if table is not None:
        name = f"insert into {table.name}"
        nodes.append({"id": len(ids) + 1, "type": name, "pact": "Data Sink", "contents": name, "predecessors": read(edges)})
    return json.dumps({"nodes": nodes}, indent=2)


def _lines(plan: Plan, depth: int, ttl_ms: int | None, computed: dict[str, bool]) -> Iterator[str]:
    """``computed``: the aggregates that are computed once, and which of them have been shown."""
    if isinstance(plan, Select) and isinstance(plan.input, Window) and plan == in_ms(plan.input):
        plan = plan.input
    changes = "adds and removes rows" if is_updating(plan) else "adds rows"
    described = _described(plan, ttl_ms)
    text = repr(canonical(as_it_runs(plan))) if computed and isinstance(plan, Aggregate) else ""
    if computed.get(text):
        yield f"{'   ' * depth}{described.partition(';')[0]}; the one above  [{changes}]"
        return
    if text in computed:
        computed[text] = True
    yield f"{'   ' * depth}{described}  [{changes}]"
    for each in inputs_of(plan):
        yield from _lines(each, depth + 1, ttl_ms, computed)


def _described(node: Plan, ttl_ms: int | None) -> str:
    match node:
        case Scan(table, fields, rowtime):
            event_time = "" if rowtime is None else f", event time {rowtime}"
            return f"Scan {table}({', '.join(field.name for field in fields)}){event_time}"
        case Select(_, condition, items):
            shown = ", ".join(item.name if str(item.of) == item.name else f"{item.of} AS {item.name}" for item in items)
            return f"Select {shown}" + ("" if condition is None else f" WHERE {condition}")
        case Aggregate(_, keys, calls):
            by = f" by {', '.join(str(key.of) for key in keys)}" if keys else ""
            kept = "until its window ends" if is_windowed(node) else lifetime(ttl_of(node, 0, ttl_ms))
            return f"Aggregate {', '.join(map(str, calls)) or 'distinct rows'}{by}; keeps a row for each group, {kept}"
        case Join(_, _, kind, condition, within=within):
            equal = (Call("=", (on_side(LEFT, one), on_side(RIGHT, other)), BOOLEAN) for one, other in node.keys)
            condition = all_of((*equal, *conjuncts_of(condition)))
            on = "" if condition is None else f" ON {condition}"
            if node.lookup:
                return f"{kind.capitalize()} lookup join{on}; keeps no rows but those of a cache, until they expire"
            if node.as_of:
                kept = (
                    "keeps rows until event time has passed them, and of each key's versions those after it and the latest before"
                )
                return f"{kind.capitalize()} join {node.as_of}{on}; {kept}"
            if within:
                bound = "their windows" if within.windows else "these bounds"
                return f"{kind.capitalize()} join{on}, {within}; keeps rows until event time has passed {bound}"
            kept = ", of the right one ".join(dict.fromkeys(lifetime(ttl_of(node, each, ttl_ms)) for each in (0, 1)))
            return f"{kind.capitalize()} join{on}; keeps the rows of both inputs, {kept}"
        case Over(until=Literal()):
            return "Final rows; keeps rows until the input has ended"
        case Over(order=order, calls=(), until=until):
            kept = f"until event time has passed {until}" if until else "until the input has ended"
            return f"Sort by {', '.join(map(str, order))}; keeps rows {kept}"
        case Over(_, partition, _, calls):
            by = f" by {', '.join(map(str, partition))}" if partition else ""
            limit = f"until event time has passed {node.until}" if node.until else lifetime(ttl_of(node, 0, ttl_ms))
            return f"Over {', '.join(map(node.name_of, calls))}; keeps all rows{by}, {limit}"
        case Union():
            return "Union all"
        case Unnest(of=of):
            return f"Unnest {of}"
        case Match(partition=partition, pattern=pattern, within_ms=within_ms, excluded=excluded):
            by = f" by {', '.join(partition)}" if partition else ""
            kept = "without limit" if within_ms is None else f"for {duration(within_ms)}"
            shown = f", without the rows of {', '.join(excluded)}" if excluded else ""
            return f"Match {' '.join(map(str, pattern.parts))}{by}{shown}; keeps the rows of partial matches, {kept}"
        case Process(function=function, partition=partition, uid=uid):
            by = f" by {', '.join(partition)}, with its own state" if partition else ""
            return f"Process {function}{by}, uid {uid}"
        case Apply(calls=applied):
            return f"Apply {', '.join(item.name for item in applied)}"
        case Window(time=time, windows=windows, partition=partition):
            by = f" by {', '.join(map(str, partition))}" if partition else ""
            return f"Window {windows} of {time}{by}"

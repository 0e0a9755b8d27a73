"""EXPLAIN: a plan as text, with what each node needs to know."""

from __future__ import annotations

from forkpoint.relational.plan import Aggregate, Plan, Scan, Select, is_updating


def explained(plan: Plan) -> str:
    """The plan, inputs below, with its changes and state."""
    lines: list[str] = []
    depth = 0
    node: Plan | None = plan
    while node is not None:
        changes = "adds and removes rows" if is_updating(node) else "adds rows"
        lines.append(f"{'   ' * depth}{_described(node)}  [{changes}]")
        node, depth = None if isinstance(node, Scan) else node.input, depth + 1
    return "\n".join(lines)


def _described(node: Plan) -> str:
    match node:
        case Scan(table, fields):
            return f"Scan {table}({', '.join(field.name for field in fields)})"
        case Select(_, condition, items):
            shown = ", ".join(item.name if str(item.of) == item.name else f"{item.of} AS {item.name}" for item in items)
            return f"Select {shown}" + ("" if condition is None else f" WHERE {condition}")
        case Aggregate(_, keys, calls):
            by = f" by {', '.join(str(key.of) for key in keys)}" if keys else ""
            return f"Aggregate {', '.join(map(str, calls)) or 'distinct rows'}{by}; keeps a row for each group, without limit"
    raise AssertionError(node)

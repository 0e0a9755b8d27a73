"""What the operators of queries tell about themselves, for people: what their results do, by which key, and what bounds their
state."""

from __future__ import annotations

from forkpoint.checkpoint.plan import CHANGES, KEEPS, KEY
from forkpoint.graph.specs import OperatorSpec
from forkpoint.relational.changes import WEIGHT
from forkpoint.relational.definitions.groups import GroupDefinition
from forkpoint.relational.definitions.rows import RowsDefinition, is_final
from forkpoint.relational.operators.latest_rows import LatestRowsSpec
from forkpoint.relational.operators.retention import lifetime
from forkpoint.relational.plan import Join, is_windowed
from forkpoint.types import TypeInformation


def properties_of(spec: OperatorSpec, output: TypeInformation | None) -> dict[str, str]:
    """The properties of a query's operator; none of others. ``output``: the type of its elements."""
    definition = getattr(spec, "definition", None)
    removes = output is not None and WEIGHT in output.column_names
    found = {CHANGES: "adds and removes rows" if removes else "adds rows"}
    match definition:
        case GroupDefinition():
            names, what, final = definition.key_names, "a row for each group", is_windowed(definition.aggregate)
            limit = "until its window ends"
        case RowsDefinition(node=node):
            names, what, final, limit = definition.key_names, "rows", is_final(node), "until event time has passed them"
            if isinstance(node, Join) and node.lookup:
                what, final, limit = "rows of a cache", True, "until they expire"
        case _ if isinstance(spec, LatestRowsSpec):
            names, what, final, limit = spec.key, "the latest row of each key", False, ""
        case _:
            return found if removes else {}
    ttl = max((state.ttl_ms or 0 for state in spec.states()), default=0)
    if not final:
        limit = lifetime(ttl or None)
    return {**found, KEY: ", ".join(names) or "none", KEEPS: f"{what}, {limit}"}

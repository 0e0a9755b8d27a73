"""A job as Flink's JSON for its plan visualizer: ``env.get_execution_plan()``."""

from __future__ import annotations

import json
from collections.abc import Iterable

from forkpoint.graph.specs import DataFrameSpec, EpochSinkSpec, SinkSpec, SourceSpec
from forkpoint.graph.transformations import (
    Broadcast,
    Custom,
    Edge,
    Forward,
    KeyBy,
    Partitioning,
    Rebalance,
    Transformation,
)

_STRATEGIES: dict[type[Partitioning], str] = {
    Forward: "FORWARD", KeyBy: "HASH", Custom: "CUSTOM", Broadcast: "BROADCAST",
}  # fmt: skip


def execution_plan(ends: Iterable[Transformation], parallelism: int) -> str:
    """The operators of a job, inputs ahead of what reads them. ``parallelism``: of operators that have none of their own."""
    ids: dict[int, int] = {}
    nodes = []
    for operator in _in_order(ends):
        ids[id(operator)] = len(ids) + 1
        node = {
            "id": ids[id(operator)],
            "type": operator.name,
            "pact": _pact(operator),
            "contents": operator.name,
            "parallelism": operator.parallelism or parallelism,
        }
        if operator.inputs:
            node["predecessors"] = [
                {"id": ids[id(edge.upstream)], "ship_strategy": _strategy(edge), "side": "second"}
                for edge in operator.inputs
            ]
        nodes.append(node)
    return json.dumps({"nodes": nodes}, indent=2)


def _in_order(ends: Iterable[Transformation]) -> list[Transformation]:
    seen: dict[int, Transformation] = {}
    waiting = [(end, False) for end in reversed(list(ends))]
    while waiting:
        operator, ready = waiting.pop()
        if ready:
            seen[id(operator)] = operator
        elif id(operator) not in seen:
            waiting.append((operator, True))
            waiting += [(edge.upstream, False) for edge in reversed(operator.inputs)]
    return list(seen.values())


def _pact(operator: Transformation) -> str:
    if isinstance(operator.spec, SourceSpec | DataFrameSpec):
        return "Data Source"
    return "Data Sink" if isinstance(operator.spec, SinkSpec | EpochSinkSpec) else "Operator"


def _strategy(edge: Edge) -> str:
    partitioning = edge.partitioning
    return partitioning.said if isinstance(partitioning, Rebalance) else _STRATEGIES[type(partitioning)]

"""The job as JSON for Flink's plan visualizer: ``env.get_execution_plan()``."""

from __future__ import annotations

import json
from collections.abc import Iterable

from forkpoint.graph.specs import DataFrameSpec, EpochSinkSpec, SinkSpec, SourceSpec
from forkpoint.graph.transformations import Transformation, topological_order


def execution_plan(ends: Iterable[Transformation], parallelism: int) -> str:
    """The job's operators in topological order. ``parallelism``: that of operators without their own."""
    ids: dict[Transformation, int] = {}
    nodes = []
    for operator in topological_order(ends):
        ids[operator] = len(ids) + 1
        node = {
            "id": ids[operator],
            "type": operator.name,
            "pact": _pact(operator),
            "contents": operator.name,
            "parallelism": operator.parallelism or parallelism,
        }
        if operator.inputs:
            node["predecessors"] = [
                {"id": ids[edge.upstream], "ship_strategy": edge.partitioning.ship_strategy, "side": "second"}
                for edge in operator.inputs
            ]
        nodes.append(node)
    return json.dumps({"nodes": nodes}, indent=2)


def _pact(operator: Transformation) -> str:
    if isinstance(operator.spec, SourceSpec | DataFrameSpec):
        return "Data Source"
    return "Data Sink" if isinstance(operator.spec, SinkSpec | EpochSinkSpec) else "Operator"

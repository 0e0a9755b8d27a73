"""The plan of a job's graph, as it is stored with each run."""

from __future__ import annotations

from forkpoint.checkpoint.plan import Plan, PlanInput, PlanOperator
from forkpoint.graph.job import JobGraph, Operator


def plan_of(graph: JobGraph) -> Plan:
    """The graph's operators and their inputs."""

    def described(operator: Operator) -> PlanOperator:
        inputs = [
            PlanInput(
                uid=graph.by_id[edge.upstream].uid, ship_strategy=edge.partitioning.ship_strategy, tag=edge.tag,
                crosses=edge.crosses,
            )
            for edge in operator.inputs
        ]  # fmt: skip
        output = operator.output_type
        return PlanOperator(
            uid=operator.uid, name=operator.name, kind=operator.kind, stage=operator.stage,
            generated_uid=operator.generated_uid, stateful=operator.stateful,
            type=None if output is None else repr(output), inputs=inputs,
        )  # fmt: skip

    return Plan(operators=[described(operator) for operator in graph.operators])

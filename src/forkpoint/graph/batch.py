"""``RuntimeExecutionMode.BATCH``: bounded jobs with final results only. Pure.

As in Flink, event time does not advance until the input ends. So no element is late, timers and windows fire at the end,
and running aggregates emit the last value of each key, however the input is split into epochs. Broadcast streams are read
to their ends before the streams connected with them.
"""

from __future__ import annotations

from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

from forkpoint.errors import GraphError
from forkpoint.graph.job import JobGraph, Operator
from forkpoint.graph.options import RuntimeExecutionMode
from forkpoint.graph.specs import DataFrameSpec, SourceSpec
from forkpoint.graph.transformations import Broadcast


def in_mode(graph: JobGraph, mode: RuntimeExecutionMode) -> JobGraph:
    """The graph for a mode; AUTOMATIC is BATCH if all sources are bounded. GraphError if it cannot run as BATCH."""
    if mode is RuntimeExecutionMode.STREAMING or (mode is RuntimeExecutionMode.AUTOMATIC and _unbounded(graph)):
        return graph
    batch = replace(graph.with_specs(lambda o: o.spec.in_batch()), batch=True)
    _check(batch)
    return batch


def _unbounded(graph: JobGraph) -> list[str]:
    return [o.uid for o in graph.sources if isinstance(o.spec, SourceSpec | DataFrameSpec) and not o.spec.bounded]


def _check(graph: JobGraph) -> None:
    if unbounded := _unbounded(graph):
        raise GraphError(
            f"RuntimeExecutionMode.BATCH: source {unbounded[0]!r} is unbounded; bound it (FileSource: bounded=True), or use "
            "STREAMING"
        )
    if graph.loops:
        raise GraphError("RuntimeExecutionMode.BATCH: the job has an iteration, which runs in STREAMING mode only")
    for operator in graph.operators:
        rules, others = _input_sources(graph, operator)
        if rules & others:
            shared = graph.by_id[min(rules & others)].uid
            raise GraphError(
                f"RuntimeExecutionMode.BATCH: source {shared!r} feeds both inputs of operator {operator.uid!r}, but the "
                "broadcast input is read to its end first; use a second source for one of them, or use STREAMING"
            )
    try:
        TopologicalSorter(read_first(graph)).prepare()
    except CycleError as error:
        cycle = ", ".join(repr(graph.by_id[source].uid) for source in error.args[1][1:])
        raise GraphError(
            f"RuntimeExecutionMode.BATCH: sources {cycle} would wait for one another, because broadcast streams are read to "
            "their ends first; use STREAMING"
        ) from None


def read_first(graph: JobGraph) -> dict[int, set[int]]:
    """For each source's operator id, the ids of the sources to read to their ends first; empty in STREAMING mode.

    The sources of broadcast streams come before those of the streams connected with them.
    """
    first: dict[int, set[int]] = {}
    for operator in graph.operators if graph.batch else ():
        rules, others = _input_sources(graph, operator)
        for source in others if rules else ():
            first.setdefault(source, set()).update(rules)
    return first


def _input_sources(graph: JobGraph, operator: Operator) -> tuple[frozenset[int], frozenset[int]]:
    """The sources of an operator's broadcast inputs, and of its other inputs."""
    broadcast = {e.upstream for e in operator.inputs if isinstance(e.partitioning, Broadcast)}
    others = {e.upstream for e in operator.inputs if not isinstance(e.partitioning, Broadcast)}
    return graph.sources_of(broadcast), graph.sources_of(others)

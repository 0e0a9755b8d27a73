"""``RuntimeExecutionMode.BATCH``: a bounded job that gives final results only. Pure.

As in Flink, event time stands still until the input has ended and goes to its end then. So nothing is late, timers fire and
windows come out at the end, and running aggregates give the last value of each key. Which epochs the input is read in makes
no difference. Broadcast streams are read to their ends ahead of what is connected with them.
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
    """The graph as it runs in a mode. GraphError where it cannot run as a batch; AUTOMATIC: a batch if all sources end."""
    if mode is RuntimeExecutionMode.STREAMING or (mode is RuntimeExecutionMode.AUTOMATIC and _endless(graph)):
        return graph
    _check(graph)
    return replace(graph.with_specs(lambda o: o.spec.in_batch()), batch=True)


def _endless(graph: JobGraph) -> list[str]:
    return [o.uid for o in graph.sources if isinstance(o.spec, SourceSpec | DataFrameSpec) and not o.spec.bounded]


def _check(graph: JobGraph) -> None:
    if endless := _endless(graph):
        raise GraphError(
            f"RuntimeExecutionMode.BATCH: source {endless[0]!r} has no end; bound it (FileSource: bounded=True), or use STREAMING"
        )
    if graph.loops:
        raise GraphError("RuntimeExecutionMode.BATCH: there is an iteration, which runs in STREAMING mode only")
    for operator in graph.operators:
        rules, others = _input_sources(graph, operator)
        if rules & others:
            shared = graph.by_id[min(rules & others)].uid
            raise GraphError(
                f"RuntimeExecutionMode.BATCH: source {shared!r} gives operator {operator.uid!r} both its broadcast stream, which "
                "is read to its end first, and what is connected with that; read it by a second source as well, or use STREAMING"
            )
    try:
        TopologicalSorter(_read_first(graph)).prepare()
    except CycleError as error:
        waiting = ", ".join(repr(graph.by_id[source].uid) for source in error.args[1][1:])
        raise GraphError(
            f"RuntimeExecutionMode.BATCH: sources {waiting} feed one another's broadcast streams, which are read to their ends "
            "first; use STREAMING"
        ) from None


def read_first(graph: JobGraph) -> dict[int, set[int]]:
    """The sources that a source has to wait for until they have ended, by operator ids: in a batch, those of broadcast
    streams come ahead of what is connected with them."""
    return _read_first(graph) if graph.batch else {}


def _read_first(graph: JobGraph) -> dict[int, set[int]]:
    first: dict[int, set[int]] = {}
    for operator in graph.operators:
        rules, others = _input_sources(graph, operator)
        for source in others if rules else ():
            first.setdefault(source, set()).update(rules)
    return first


def _input_sources(graph: JobGraph, operator: Operator) -> tuple[frozenset[int], frozenset[int]]:
    """The sources of an operator's broadcast inputs, and of its other inputs."""
    broadcast = {e.upstream for e in operator.inputs if isinstance(e.partitioning, Broadcast)}
    others = {e.upstream for e in operator.inputs if not isinstance(e.partitioning, Broadcast)}
    return graph.sources_of(broadcast), graph.sources_of(others)

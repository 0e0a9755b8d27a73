"""``RuntimeExecutionMode.BATCH``: a bounded job that gives final results only. Pure.

As in Flink, event time stands still until the input has ended and goes to its end then. So nothing is late, timers fire and
windows come out at the end, and running aggregates give the last value of each key. Which epochs the input is read in makes
no difference.
"""

from __future__ import annotations

from dataclasses import replace

from forkpoint.errors import GraphError
from forkpoint.functions import EndOfStreamTrigger, GlobalWindows, WindowRows
from forkpoint.graph.job import JobGraph, Operator
from forkpoint.graph.options import RuntimeExecutionMode
from forkpoint.graph.transformations import (
    Broadcast,
    DataFrameSpec,
    OperatorSpec,
    ReduceSpec,
    RollingSpec,
    RunningAggregatesSpec,
    SourceSpec,
    TimestampsSpec,
    WindowSpec,
)


def in_mode(graph: JobGraph, mode: RuntimeExecutionMode) -> JobGraph:
    """The graph as it runs in a mode. GraphError where it cannot run as a batch; AUTOMATIC: a batch if all sources end."""
    if mode is RuntimeExecutionMode.STREAMING or (mode is RuntimeExecutionMode.AUTOMATIC and _endless(graph)):
        return graph
    _check(graph)
    return replace(graph.with_specs(_at_the_end), batch=True)


def _endless(graph: JobGraph) -> list[str]:
    return [o.uid for o in graph.sources if not _ends(o.spec)]


def _ends(spec: OperatorSpec) -> bool:
    if isinstance(spec, DataFrameSpec):
        return not spec.frame.isStreaming
    return isinstance(spec, SourceSpec) and spec.source.bounded


def _check(graph: JobGraph) -> None:
    if endless := _endless(graph):
        raise GraphError(
            f"RuntimeExecutionMode.BATCH: source {endless[0]!r} has no end; bound it (FileSource: bounded=True), or use STREAMING"
        )
    if graph.loops:
        raise GraphError("RuntimeExecutionMode.BATCH: there is an iteration, which runs in STREAMING mode only")
    for operator in graph.operators:
        if any(isinstance(edge.partitioning, Broadcast) for edge in operator.inputs):
            raise GraphError(
                f"RuntimeExecutionMode.BATCH: operator {operator.uid!r} takes a broadcast stream, which would have to be read to "
                "its end first; use STREAMING, where it is read along with the others"
            )


def _at_the_end(operator: Operator) -> OperatorSpec:
    spec = operator.spec
    match spec:
        case SourceSpec() | TimestampsSpec():
            still = replace(
                spec.strategy, out_of_orderness_ms=None, generator_factory=None, idleness_ms=None, alignment=None
            )
            return replace(spec, strategy=still)
        case ReduceSpec(fn=fn, value_type=of):
            return WindowSpec(GlobalWindows(), EndOfStreamTrigger(), None, 0, None, "reducing", of, fn, None)
        case RollingSpec(value_type=of):
            return WindowSpec(GlobalWindows(), EndOfStreamTrigger(), None, 0, None, "reducing", of, spec, None)
        case RunningAggregatesSpec(aggregates=aggregates, shape=shape, accumulator_type=of):
            rows = WindowRows(shape)
            return WindowSpec(GlobalWindows(), EndOfStreamTrigger(), None, 0, None, "aggregating", of, aggregates, rows)
    return spec

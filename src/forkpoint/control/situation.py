"""What is known of a running driver, for ``problems``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forkpoint.control.problems import Situation, SourceNow, TimedOperator
from forkpoint.graph.specs import DataFrameSpec, SourceSpec, WatermarkSpec
from forkpoint.graph.transformations import Broadcast

if TYPE_CHECKING:
    from forkpoint.driver.observe.metrics import JobMetrics
    from forkpoint.driver.observe.status import Status
    from forkpoint.driver.run.job_driver import JobDriver
    from forkpoint.graph.job import JobGraph, Operator


def situation(driver: JobDriver, status: Status, now_ms: int, doing: str | None) -> Situation:
    """``doing``: what a long epoch is doing."""
    metrics, journal, graph, manifest = driver.metrics(), driver.journal(), driver.graph, driver.manifest
    finished = set() if manifest is None else {uid for uid, known in manifest.sources.items() if known.finished}
    timed = set() if manifest is None else {state.uid for state in manifest.states if state.kind == "timers-event"}
    return Situation(
        state=status.state, now_ms=now_ms, silence_ms=driver.options.silence_ms, since_ms=metrics.since_ms,
        sources=[_source(graph, each, status, metrics) for each in graph.sources if each.uid not in finished],
        operators=[_timed(graph, each) for each in graph.operators if each.uid in timed],
        holds=metrics.holds, idleness_ms=_idleness(graph), restarts=status.restarts, failure=status.failure,
        failures=journal.failures, interval_ms=driver.options.checkpoint.interval_ms, epochs=journal.epochs,
        epoch_ms=driver.epoch_ms, doing=doing, unpublished=status.unpublished,
        publishing_problem=status.publishing_problem, behind_ms=metrics.behind_ms,
    )  # fmt: skip


def _source(graph: JobGraph, operator: Operator, status: Status, metrics: JobMetrics) -> SourceNow:
    assert isinstance(operator.spec, SourceSpec | DataFrameSpec)
    uid = operator.uid
    return SourceNow(
        uid, operator.spec.bounded, _only_broadcast(graph, operator), metrics.read_ms.get(uid),
        status.reading_problems.get(uid), metrics.backlog.get(uid), metrics.backlogs.get(uid, ()),
    )  # fmt: skip


def _only_broadcast(graph: JobGraph, operator: Operator) -> bool:
    """Whether all of what an operator emits is broadcast, at once or further down."""
    consumers = [(graph.by_id[consumer], edge) for consumer, edge in graph.consumers.get(operator.id, ())]
    return bool(consumers) and all(
        isinstance(edge.partitioning, Broadcast) or _only_broadcast(graph, consumer) for consumer, edge in consumers
    )


def _timed(graph: JobGraph, operator: Operator) -> TimedOperator:
    origins = sorted(operator.origins)
    sources = sorted(graph.by_id[each].uid for each in graph.sources_of(origins))
    return TimedOperator(operator.uid, [graph.by_id[origin].uid for origin in origins], sources)


def _idleness(graph: JobGraph) -> dict[str, int]:
    origins = ((o.uid, o.spec.strategy.idleness_ms) for o in graph.operators if isinstance(o.spec, WatermarkSpec))
    return {uid: after_ms for uid, after_ms in origins if after_ms is not None}

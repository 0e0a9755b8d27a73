"""The reports of a running driver: its metrics as a message, and its situation, from which its problems follow."""

from __future__ import annotations

from collections.abc import Collection
from itertools import accumulate
from typing import TYPE_CHECKING

from forkpoint.driver.commit.measurements import Hold, is_time
from forkpoint.driver.observe.metrics import BOUNDS_MS, Durations, JobMetrics
from forkpoint.driver.observe.problems import Situation, SourceNow, TimedOperator, problems, silences
from forkpoint.driver.observe.status import Status
from forkpoint.graph.specs import DataFrameSpec, SourceSpec, WatermarkSpec
from forkpoint.graph.transformations import Broadcast
from forkpoint.protocol.messages import (
    BacklogMetrics,
    CatchUpMetrics,
    DurationMetrics,
    MetricsMessage,
    OperatorMetrics,
    UserMetrics,
    WatermarkMetrics,
)

if TYPE_CHECKING:
    from forkpoint.driver.run.job_driver import JobDriver
    from forkpoint.graph.job import JobGraph, Operator


def metrics_message(
    status: Status, metrics: JobMetrics, now: Situation, *, sources: Collection[str], parallelism: int
) -> MetricsMessage:
    """``sources``: their uids; a source emits all elements that it reads."""
    size = metrics.state_size
    return MetricsMessage(
        job=status.job,
        run=status.run,
        state=status.state,
        now_ms=now.now_ms,
        started_ms=status.started_ms,
        since_ms=metrics.since_ms,
        epoch=status.epoch,
        epochs=metrics.epochs,
        committed_ms=metrics.committed_ms,
        epoch_ms=now.epoch_ms,
        restarts=metrics.restarts,
        rescalings=metrics.rescalings,
        parallelism=parallelism,
        operators=_operators(metrics, sources),
        watermarks={uid: watermark_metrics(hold, hold.split) for uid, hold in metrics.holds.items() if hold.split is not None},
        backlog={
            uid: BacklogMetrics(amount=backlog.amount, unit=backlog.unit, files=backlog.files)
            for uid, backlog in metrics.backlog.items()
        },
        user=[
            UserMetrics(**key._asdict(), **vars(value)) for key, value in sorted(metrics.user.items(), key=lambda i: str(i[0]))
        ],
        durations={part: _durations(found) for part, found in metrics.durations.items()},
        changelog_bytes=metrics.changes_bytes,
        snapshot_bytes=metrics.snapshot_bytes,
        state_entries=None if size is None else size.entries,
        state_bytes=None if size is None else size.bytes,
        states=None if metrics.states is None else list(metrics.states),
        catch_ups={kind: CatchUpMetrics(count=found.count, sum_ms=found.sum_ms) for kind, found in metrics.catch_ups.items()},
        stores_reused=metrics.stores_reused,
        unpublished=dict(metrics.unpublished),
        savepoints=metrics.savepoints,
        savepoints_failed=metrics.savepoints_failed,
        savepoint_ms=metrics.savepoint_ms,
        silent_ms=silences(now),
        problems=problems(now),
    )


def watermark_metrics(hold: Hold, split: str) -> WatermarkMetrics:
    return WatermarkMetrics(
        watermark_ms=_time(hold.watermark_ms),
        split=split,
        others=hold.others,
        next=None if hold.next is None else hold.next[0],
        behind_ms=hold.behind_ms,
        notable=hold.notable,
    )


def _operators(metrics: JobMetrics, sources: Collection[str]) -> dict[str, OperatorMetrics]:
    counts = (metrics.records_in, metrics.records_out, metrics.busy_us, metrics.watermarks)
    out = {**metrics.records_out, **{uid: n for uid, n in metrics.records_in.items() if uid in sources}}
    return {
        uid: OperatorMetrics(
            records_in=metrics.records_in.get(uid, 0),
            records_out=out.get(uid, 0),
            late_records_dropped=metrics.late_records_dropped.get(uid, 0),
            busy_ms=metrics.busy_us.get(uid, 0) / 1000,
            bytes_in=metrics.bytes_in.get(uid, 0),
            bytes_out=metrics.bytes_out.get(uid, 0),
            watermark_ms=_time(metrics.watermarks.get(uid)),
        )
        for uid in dict.fromkeys(uid for count in counts for uid in count)
    }


def _durations(found: Durations) -> DurationMetrics:
    at_most = list(accumulate(found.up_to[:-1]))
    return DurationMetrics(count=found.count, sum_ms=found.sum_ms, bounds_ms=list(BOUNDS_MS), at_most=at_most)


def _time(watermark_ms: int | None) -> int | None:
    return watermark_ms if watermark_ms is not None and is_time(watermark_ms) else None


def situation(driver: JobDriver, status: Status, now_ms: int, doing: str | None) -> Situation:
    """``doing``: the activity of a long epoch."""
    metrics, journal, graph, manifest = driver.metrics(), driver.journal(), driver.graph, driver.manifest
    finished = set() if manifest is None else {uid for uid, known in manifest.sources.items() if known.finished}
    timed = set() if manifest is None else {state.uid for state in manifest.states if state.kind == "timers-event"}
    origins = ((o.uid, o.spec.strategy.idleness_ms) for o in graph.operators if isinstance(o.spec, WatermarkSpec))
    return Situation(
        state=status.state,
        now_ms=now_ms,
        silence_ms=driver.options.silence_ms,
        since_ms=metrics.since_ms,
        sources=[_source(graph, source, status, metrics) for source in graph.sources if source.uid not in finished],
        operators=[_timed(graph, operator) for operator in graph.operators if operator.uid in timed],
        holds=metrics.holds,
        skews=metrics.skews,
        short_memory=metrics.short_memory,
        idleness_ms={uid: after_ms for uid, after_ms in origins if after_ms is not None},
        restarts=status.restarts,
        failure=status.failure,
        failures=journal.failures,
        interval_ms=driver.options.checkpoint.interval_ms,
        epochs=journal.epochs,
        epoch_ms=driver.epoch_ms,
        doing=doing,
        unpublished=status.unpublished,
        publishing_problem=status.publishing_problem,
        behind_ms=metrics.behind_ms,
    )


def _source(graph: JobGraph, operator: Operator, status: Status, metrics: JobMetrics) -> SourceNow:
    assert isinstance(operator.spec, SourceSpec | DataFrameSpec)
    uid = operator.uid
    return SourceNow(
        uid,
        operator.spec.bounded,
        _only_broadcast(graph, operator),
        metrics.read_ms.get(uid),
        status.reading_problems.get(uid),
        metrics.backlog.get(uid),
        metrics.backlogs.get(uid, ()),
    )


def _only_broadcast(graph: JobGraph, operator: Operator) -> bool:
    """Whether all output of an operator is broadcast, directly or further downstream."""
    consumers = [(graph.by_id[consumer], edge) for consumer, edge in graph.consumers.get(operator.id, ())]
    return bool(consumers) and all(
        isinstance(edge.partitioning, Broadcast) or _only_broadcast(graph, consumer) for consumer, edge in consumers
    )


def _timed(graph: JobGraph, operator: Operator) -> TimedOperator:
    origins = sorted(operator.origins)
    sources = sorted(graph.by_id[source].uid for source in graph.sources_of(origins))
    return TimedOperator(operator.uid, [graph.by_id[origin].uid for origin in origins], sources)

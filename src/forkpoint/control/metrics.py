"""A run's metrics as a message. Pure."""

from __future__ import annotations

from collections.abc import Collection
from itertools import accumulate

from forkpoint.control.messages import (
    BacklogMetrics,
    CatchUpMetrics,
    DurationMetrics,
    MetricsMessage,
    OperatorMetrics,
    ProblemMessage,
    StateMetrics,
    UserMetrics,
    WatermarkMetrics,
)
from forkpoint.control.problems import Situation, problems, silences
from forkpoint.driver.commit.measurements import Hold, is_time
from forkpoint.driver.observe.metrics import BOUNDS_MS, Durations, JobMetrics
from forkpoint.driver.observe.status import Status


def metrics_message(
    status: Status, metrics: JobMetrics, now: Situation, *, sources: Collection[str], parallelism: int
) -> MetricsMessage:
    """``sources``: their uids, as what they read is also what they emit."""
    size = metrics.state_size
    return MetricsMessage(
        job=status.job, run=status.run, state=status.state, now_ms=now.now_ms, started_ms=status.started_ms,
        since_ms=metrics.since_ms, epoch=status.epoch, epochs=metrics.epochs, committed_ms=metrics.committed_ms,
        epoch_ms=now.epoch_ms, restarts=metrics.restarts, rescalings=metrics.rescalings, parallelism=parallelism,
        operators=_operators(metrics, sources),
        watermarks={
            uid: watermark_metrics(hold, hold.split) for uid, hold in metrics.holds.items() if hold.split is not None
        },
        backlog={
            uid: BacklogMetrics(amount=backlog.amount, unit=backlog.unit, files=backlog.files)
            for uid, backlog in metrics.backlog.items()
        },
        user=[UserMetrics(**key._asdict(), **vars(value)) for key, value in sorted(metrics.user.items(), key=_place)],
        durations={part: _durations(found) for part, found in metrics.durations.items()},
        changelog_bytes=metrics.changes_bytes, snapshot_bytes=metrics.snapshot_bytes,
        state_entries=None if size is None else size.entries, state_bytes=None if size is None else size.bytes,
        states=None if metrics.states is None else [StateMetrics(**each._asdict()) for each in metrics.states],
        catch_ups={
            kind: CatchUpMetrics(count=found.count, sum_ms=found.sum_ms) for kind, found in metrics.catch_ups.items()
        },
        stores_reused=metrics.stores_reused, unpublished=dict(metrics.unpublished), savepoints=metrics.savepoints,
        savepoints_failed=metrics.savepoints_failed, savepoint_ms=metrics.savepoint_ms, silent_ms=silences(now),
        problems=problem_messages(now),
    )  # fmt: skip


def problem_messages(now: Situation) -> list[ProblemMessage]:
    return [ProblemMessage(**vars(each)) for each in problems(now)]


def watermark_metrics(hold: Hold, split: str) -> WatermarkMetrics:
    return WatermarkMetrics(
        watermark_ms=_time(hold.watermark_ms), split=split, others=hold.others,
        next=None if hold.next is None else hold.next[0], behind_ms=hold.behind_ms, notable=hold.notable,
    )  # fmt: skip


def _operators(metrics: JobMetrics, sources: Collection[str]) -> dict[str, OperatorMetrics]:
    counts = (metrics.records_in, metrics.records_out, metrics.busy_us, metrics.watermarks)
    out = {**metrics.records_out, **{uid: n for uid, n in metrics.records_in.items() if uid in sources}}
    return {
        uid: OperatorMetrics(
            records_in=metrics.records_in.get(uid, 0), records_out=out.get(uid, 0),
            late_records_dropped=metrics.late_records_dropped.get(uid, 0), busy_ms=metrics.busy_us.get(uid, 0) / 1000,
            bytes_in=metrics.bytes_in.get(uid, 0), bytes_out=metrics.bytes_out.get(uid, 0),
            watermark_ms=_time(metrics.watermarks.get(uid)),
        )
        for uid in dict.fromkeys(uid for each in counts for uid in each)
    }  # fmt: skip


def _durations(found: Durations) -> DurationMetrics:
    at_most = list(accumulate(found.up_to[:-1]))
    return DurationMetrics(count=found.count, sum_ms=found.sum_ms, bounds_ms=list(BOUNDS_MS), at_most=at_most)


def _time(watermark_ms: int | None) -> int | None:
    return watermark_ms if watermark_ms is not None and is_time(watermark_ms) else None


def _place(item: tuple[object, object]) -> str:
    return str(item[0])

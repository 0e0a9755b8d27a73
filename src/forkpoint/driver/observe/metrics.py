"""The metrics of a run, from its events.

They cover only committed epochs: like state and output, they exclude elements that a failed attempt has read or counted. Each
(re)start resets the counts, except those of restarts and savepoints.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import field
from msgspec.structs import replace

from forkpoint.driver.commit.measurements import SKEW_ELEMENTS
from forkpoint.driver.observe.events import (
    AttemptStarted,
    EpochCommitted,
    EpochReached,
    Event,
    PublishingProgressed,
    RescaleEnded,
    Restarting,
    SavepointEnded,
    added_up,
)
from forkpoint.protocol.messages import Phase, StateMetrics

if TYPE_CHECKING:
    from forkpoint.contract.source import Backlog
    from forkpoint.driver.commit.measurements import Hold, Skew
    from forkpoint.runtime.exchange.control import CatchUpKind, Memory, MetricKind, UserMetric
    from forkpoint.state import StoreSize

BOUNDS_MS = (5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000)

BACKLOG_WINDOW_MS, BACKLOG_EVERY_MS = 600_000, 20_000

EpochPart = str
"""A part of an epoch's duration: "plan", "compute", "write", "commit", "publish", or "epoch" for all of it."""

PARTS: Mapping[Phase, EpochPart] = {
    "planned": "plan",
    "computed": "compute",
    "written": "write",
    "committed": "commit",
    "published": "publish",
}
WHOLE: EpochPart = "epoch"


@dataclass(frozen=True)
class Durations:
    """A histogram: the number of durations and their sum. ``up_to``: the number above the previous bound and up to
    ``BOUNDS_MS[i]``; the last item counts the rest."""

    count: int = 0
    sum_ms: int = 0
    up_to: tuple[int, ...] = (0,) * (len(BOUNDS_MS) + 1)

    def with_one(self, duration_ms: int) -> Durations:
        at = bisect_left(BOUNDS_MS, duration_ms)
        counts = (*self.up_to[:at], self.up_to[at] + 1, *self.up_to[at + 1 :])
        return Durations(self.count + 1, self.sum_ms + duration_ms, counts)


class UserKey(NamedTuple):
    """The name of a user metric. ``subtask``: for gauges only."""

    uid: str
    group: str
    name: str
    kind: MetricKind
    subtask: int | None = None


@dataclass(frozen=True)
class UserValue:
    """A user metric's value: a count, or a gauge's value; of a distribution also the sum, and the least and greatest value."""

    value: float = 0
    sum: float = 0
    least: float | None = None
    greatest: float | None = None

    def after(self, metric: UserMetric) -> UserValue:
        if metric.kind == "gauge":
            return UserValue(metric.value)
        least = min((n for n in (self.least, metric.least) if n is not None), default=None)
        greatest = max((n for n in (self.greatest, metric.greatest) if n is not None), default=None)
        return UserValue(self.value + metric.value, self.sum + metric.sum, least, greatest)


@dataclass(frozen=True)
class CatchUps:
    """How often stores caught up with an epoch's initial state in one way, and the total time."""

    count: int = 0
    sum_ms: int = 0


class BacklogSample(NamedTuple):
    """The size of a source's backlog at a time."""

    at_ms: int
    amount: int


class JobMetrics(msgspec.Struct, frozen=True):
    """A run's metrics. Counts by operator uid, durations, catch-ups and bytes of written state are since the last (re)start.

    ``since_ms``: the time of the last (re)start. ``epochs``: the number of committed epochs; ``committed_ms``: the time of the
    last commit. ``began_ms``: the start of the running epoch; None between epochs. ``stores_reused``: tasks that found their
    store up to date. ``savepoint_ms``: the completion of this run's last savepoint. ``read_ms``: by source, the last commit of
    an epoch with elements of it. ``skews``: by operator, of the last large epoch. ``short_memory``: of a process that took more
    than its limit in the last epoch, however small. ``backlogs``: samples of the last minutes,
    oldest first. ``behind_ms``: by sink, the start of back pressure, or of one more epoch being enough for it.
    """

    since_ms: int | None = None
    epochs: int = 0
    committed_ms: int | None = None
    began_ms: int | None = None
    restarts: int = 0
    rescalings: int = 0
    records_in: Mapping[str, int] = field(default_factory=dict)
    records_out: Mapping[str, int] = field(default_factory=dict)
    late_records_dropped: Mapping[str, int] = field(default_factory=dict)
    busy_us: Mapping[str, int] = field(default_factory=dict)
    bytes_in: Mapping[str, int] = field(default_factory=dict)
    bytes_out: Mapping[str, int] = field(default_factory=dict)
    watermarks: Mapping[str, int] = field(default_factory=dict)
    read_ms: Mapping[str, int] = field(default_factory=dict)
    holds: Mapping[str, Hold] = field(default_factory=dict)
    skews: Mapping[str, Skew] = field(default_factory=dict)
    short_memory: Memory | None = None
    backlog: Mapping[str, Backlog] = field(default_factory=dict)
    backlogs: Mapping[str, tuple[BacklogSample, ...]] = field(default_factory=dict)
    user: Mapping[UserKey, UserValue] = field(default_factory=dict)
    durations: Mapping[EpochPart, Durations] = field(default_factory=dict)
    changes_bytes: int = 0
    snapshot_bytes: int = 0
    state_size: StoreSize | None = None
    states: Sequence[StateMetrics] | None = None
    catch_ups: Mapping[CatchUpKind, CatchUps] = field(default_factory=dict)
    stores_reused: int = 0
    unpublished: Mapping[str, int] = field(default_factory=dict)
    behind_ms: Mapping[str, int] = field(default_factory=dict)
    savepoints: int = 0
    savepoints_failed: int = 0
    savepoint_ms: int | None = None


class MetricsListener:
    """Keeps the metrics up to date; any thread may read them."""

    def __init__(self) -> None:
        self.metrics = JobMetrics()
        self._lock = threading.Lock()  # savepoints send events on their own threads

    def on_event(self, event: Event) -> None:
        with self._lock:
            self.metrics = after(self.metrics, event)


def after(metrics: JobMetrics, event: Event) -> JobMetrics:
    """The metrics after an event. Pure."""
    match event:
        case AttemptStarted():
            return _started(metrics, event)
        case EpochReached():
            return _reached(metrics, event)
        case EpochCommitted():
            return _committed(metrics, event)
        case Restarting():
            return replace(metrics, restarts=event.restarts, began_ms=None)
        case RescaleEnded(failure=None):
            return replace(metrics, rescalings=metrics.rescalings + 1)
        case PublishingProgressed(unpublished):
            since_ms = {uid: metrics.behind_ms.get(uid, event.at_ms) for uid in event.behind}
            known = {uid: at_ms for uid, at_ms in since_ms.items() if at_ms is not None}
            return replace(metrics, unpublished=unpublished, behind_ms=known)
        case SavepointEnded(path=None):
            return replace(metrics, savepoints_failed=metrics.savepoints_failed + 1)
        case SavepointEnded():
            return replace(metrics, savepoints=metrics.savepoints + 1, savepoint_ms=event.at_ms)
    return metrics


def _started(metrics: JobMetrics, event: AttemptStarted) -> JobMetrics:
    """Reset counts; keep the values of the run and the job."""
    return JobMetrics(
        since_ms=event.at_ms,
        restarts=event.restarts,
        rescalings=metrics.rescalings,
        watermarks=event.watermarks,
        unpublished=metrics.unpublished,
        savepoints=metrics.savepoints,
        savepoints_failed=metrics.savepoints_failed,
        savepoint_ms=metrics.savepoint_ms,
        committed_ms=metrics.committed_ms,
        state_size=metrics.state_size,
        states=event.states,
        backlog=metrics.backlog,
        read_ms=metrics.read_ms,
        behind_ms=metrics.behind_ms,
    )


def _reached(metrics: JobMetrics, event: EpochReached) -> JobMetrics:
    """An epoch that the driver discards and plans again counts again."""
    took = {PARTS[event.phase]: event.at_ms - event.since_ms}
    began_ms = event.since_ms if event.phase == "planned" else metrics.began_ms
    if event.phase == "published" and began_ms is not None:
        took[WHOLE] = event.at_ms - began_ms
        began_ms = None
    durations = {
        part: metrics.durations.get(part, Durations()).with_one(max(0, duration_ms)) for part, duration_ms in took.items()
    }
    committed_ms = event.at_ms if event.phase == "committed" else metrics.committed_ms
    return replace(metrics, durations={**metrics.durations, **durations}, began_ms=began_ms, committed_ms=committed_ms)


def _committed(metrics: JobMetrics, event: EpochCommitted) -> JobMetrics:
    measured = event.measured
    return replace(
        metrics,
        epochs=metrics.epochs + 1,
        records_in=added_up((metrics.records_in, event.records_in)),
        records_out=added_up((metrics.records_out, event.records_out)),
        late_records_dropped=added_up((metrics.late_records_dropped, event.late_records_dropped)),
        busy_us=added_up((metrics.busy_us, measured.busy_us)),
        bytes_in=added_up((metrics.bytes_in, measured.bytes_in)),
        bytes_out=added_up((metrics.bytes_out, measured.bytes_out)),
        watermarks=event.watermarks,
        read_ms=_with_read(metrics, event),
        holds=measured.holds,
        skews=measured.skews if sum(event.records_in.values()) >= SKEW_ELEMENTS else metrics.skews,
        short_memory=measured.short,
        backlog=measured.backlog,
        backlogs=_with_backlogs(metrics.backlogs, measured.backlog, metrics.committed_ms),
        user=_with_user(metrics.user, event),
        changes_bytes=metrics.changes_bytes + event.changes_bytes,
        snapshot_bytes=metrics.snapshot_bytes + event.snapshot_bytes,
        state_size=measured.state_size or metrics.state_size,
        states=measured.states,
        catch_ups=_with_catch_ups(metrics.catch_ups, event),
        stores_reused=metrics.stores_reused + event.stores_reused,
    )


def _with_read(metrics: JobMetrics, event: EpochCommitted) -> Mapping[str, int]:
    at_ms = metrics.committed_ms
    return {**metrics.read_ms, **{uid: at_ms for uid, count in event.records_in.items() if count and at_ms is not None}}


def _with_backlogs(
    known: Mapping[str, tuple[BacklogSample, ...]], now: Mapping[str, Backlog], at_ms: int | None
) -> Mapping[str, tuple[BacklogSample, ...]]:
    """Add samples of the present backlogs, where the last one is old enough, and drop samples outside of the window."""
    if at_ms is None:
        return known
    found: dict[str, tuple[BacklogSample, ...]] = {}
    for uid, backlog in now.items():
        recent = tuple(sample for sample in known.get(uid, ()) if at_ms - sample.at_ms <= BACKLOG_WINDOW_MS)
        is_due = not recent or at_ms - recent[-1].at_ms >= BACKLOG_EVERY_MS
        found[uid] = (*recent, BacklogSample(at_ms, backlog.amount)) if is_due else recent
    return found


def _with_user(known: Mapping[UserKey, UserValue], event: EpochCommitted) -> Mapping[UserKey, UserValue]:
    if not event.measured.user:
        return known
    values = dict(known)
    for uid, subtask, metric in event.measured.user:
        key = UserKey(uid, metric.group, metric.name, metric.kind, subtask if metric.kind == "gauge" else None)
        values[key] = values.get(key, UserValue()).after(metric)
    return values


def _with_catch_ups(known: Mapping[CatchUpKind, CatchUps], event: EpochCommitted) -> Mapping[CatchUpKind, CatchUps]:
    found = dict(known)
    for catch_up in event.catch_ups:
        before = found.get(catch_up.by, CatchUps())
        found[catch_up.by] = CatchUps(before.count + 1, before.sum_ms + catch_up.duration_ms)
    return found

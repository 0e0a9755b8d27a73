"""The status of a run, from its events."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import msgspec
from msgspec import field
from msgspec.structs import replace

from forkpoint.driver.observe.events import (
    AttemptStarted,
    CaughtUp,
    EpochCommitted,
    EpochReached,
    Event,
    Leading,
    PublishingProgressed,
    RescaleEnded,
    RescaleStarted,
    Restarting,
    RestoreProgressed,
    RunEnded,
    SavepointEnded,
    SavepointProgressed,
    StandingBy,
    added_up,
)
from forkpoint.protocol.messages import DriverState


class Status(msgspec.Struct, frozen=True):
    """A run's status, as ``list`` and the control port show it. ``records`` (received, or emitted by operators without input) and
    ``late_records_dropped`` count by operator uid since the last (re)start, ``run_records`` since the run's start.
    ``ignored_files``: by source, the number of files that appeared too late. ``restored`` and ``savepoint_progress``: completed
    and total parts; None without a restore or savepoint in progress. ``rescaling_to``: the target of a rescaling in progress.
    ``caught_up``: whether the stores of a run that waits to lead have caught up with the job. ``unpublished``: the number of
    unpublished committed epochs, by sink; ``publishing_problem``: the reason for the delay. ``reading_problems``: by source, the
    fault because of which it has no input for now."""

    job: str
    run: str
    started_ms: int
    state: DriverState = "starting"
    epoch: int = 0
    restarts: int = 0
    records: Mapping[str, int] = field(default_factory=dict)
    run_records: Mapping[str, int] = field(default_factory=dict)
    late_records_dropped: Mapping[str, int] = field(default_factory=dict)
    ignored_files: Mapping[str, int] = field(default_factory=dict)
    watermarks: Mapping[str, int] = field(default_factory=dict)
    restored: tuple[int, int] | None = None
    savepoint_progress: tuple[int, int] | None = None
    rescaling_to: int | None = None
    caught_up: bool = False
    unpublished: Mapping[str, int] = field(default_factory=dict)
    publishing_problem: str | None = None
    reading_problems: Mapping[str, str] = field(default_factory=dict)
    failure: str | None = None


class StatusListener:
    """Keeps the status up to date; any thread may read it."""

    def __init__(self, job: str, run: str, started_ms: int) -> None:
        self.status = Status(job, run, started_ms)
        self._lock = threading.Lock()  # savepoints send events on their own threads

    def on_event(self, event: Event) -> None:
        with self._lock:
            self.status = after(self.status, event)


def after(status: Status, event: Event) -> Status:
    """The status after an event. Pure."""
    match event:
        case StandingBy():
            return replace(status, state="standby")
        case CaughtUp(epoch):
            return replace(status, epoch=epoch, caught_up=True)
        case Leading():
            return replace(status, state="starting")
        case RestoreProgressed(done, total):
            return replace(status, restored=(done, total))
        case AttemptStarted(epoch, restarts, watermarks):
            started = replace(status, state="running", epoch=epoch, restarts=restarts, watermarks=watermarks)
            return replace(started, records={}, late_records_dropped={})
        case EpochReached(epoch, "committed"):
            return replace(status, epoch=epoch)
        case EpochCommitted():
            counted = {**event.records_out, **event.records_in}
            return replace(
                status,
                watermarks=event.watermarks,
                records=added_up((status.records, counted)),
                run_records=added_up((status.run_records, counted)),
                late_records_dropped=added_up((status.late_records_dropped, event.late_records_dropped)),
            )
        case Restarting(failure, restarts):
            return replace(status, state="restarting", failure=failure, restarts=restarts)
        case SavepointProgressed():
            return replace(status, savepoint_progress=(event.done, event.total))
        case SavepointEnded():
            return replace(status, savepoint_progress=None)
        case RescaleStarted(parallelism):
            return replace(status, rescaling_to=parallelism)
        case RescaleEnded():
            return replace(status, rescaling_to=None)
        case PublishingProgressed(unpublished):
            return replace(status, unpublished=unpublished)
        case RunEnded():
            return replace(status, state="ended", failure=event.failure or status.failure)
    return status

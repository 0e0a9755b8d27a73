"""The events of a run, for its status and metrics, progress bars and tests.

The driver calls listeners in order, on the thread of the event. An error of a listener ends the run like a failure of that step.
Times are in ms since 1970.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from forkpoint.driver.commit.measurements import Measurements
from forkpoint.protocol.messages import Phase, StateMetrics

if TYPE_CHECKING:
    from forkpoint.runtime.exchange.control import CatchUp

Outcome = Literal["finished", "stopped", "cancelled", "failed"]


@dataclass(frozen=True)
class StandingBy:
    """The run waits for another one, which leads the job."""


@dataclass(frozen=True)
class Leading:
    """A run that waited takes over."""


@dataclass(frozen=True)
class CaughtUp:
    """The stores of a run that waits to lead have caught up with the job, to this epoch."""

    epoch: int


@dataclass(frozen=True)
class RestoreProgressed:
    """``done`` of ``total`` parts of the initial state are restored."""

    done: int
    total: int


@dataclass(frozen=True)
class AttemptStarted:
    """Epochs begin to run, at the start or after the ``restarts``-th restart. ``epoch``: the last committed one. ``states``: the
    size of each state; None if unknown. ``from_nothing``: the job starts without state."""

    epoch: int
    restarts: int
    watermarks: Mapping[str, int]
    at_ms: int | None = None
    states: Sequence[StateMetrics] | None = None
    from_nothing: bool = False


@dataclass(frozen=True)
class EpochReached:
    """An epoch has completed a phase, which began at ``since_ms``."""

    epoch: int
    phase: Phase
    at_ms: int
    since_ms: int


@dataclass(frozen=True)
class EpochCommitted:
    """The result of an epoch, sent once its output is published or withheld. Counts are by operator uid, of this epoch alone.

    ``watermarks``: at its end. ``changes_bytes`` and ``snapshot_bytes``: the size of the written state. ``catch_ups``: how local
    stores caught up with the epoch's initial state; ``stores_reused``: the number of stores that were up to date. ``measured``:
    further measurements.
    """

    epoch: int
    records_in: Mapping[str, int]
    records_out: Mapping[str, int]
    late_records_dropped: Mapping[str, int]
    watermarks: Mapping[str, int]
    changes_bytes: int
    snapshot_bytes: int
    catch_ups: Sequence[CatchUp]
    stores_reused: int = 0
    measured: Measurements = field(default_factory=Measurements)


def added_up(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sum of several counts by uid."""
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(total)


@dataclass(frozen=True)
class Restarting:
    """An attempt failed; the next one starts after a delay."""

    failure: str
    restarts: int
    delay_ms: int


@dataclass(frozen=True)
class SavepointProgressed:
    """A savepoint of a committed epoch has started (0 of 1), or ``done`` of ``total`` parts are written."""

    savepoint: str
    epoch: int
    done: int
    total: int


@dataclass(frozen=True)
class SavepointEnded:
    """A savepoint has failed, or was completed at ``at_ms``, in ``path``."""

    savepoint: str
    epoch: int
    path: str | None = None
    failure: str | None = None
    at_ms: int | None = None


@dataclass(frozen=True)
class RescaleStarted:
    """The driver builds stores for another parallelism while epochs run."""

    parallelism: int
    epoch: int


@dataclass(frozen=True)
class RescaleEnded:
    """The job runs at this parallelism from ``epoch`` on, or keeps the old one because of a failure."""

    parallelism: int
    epoch: int | None = None
    failure: str | None = None


@dataclass(frozen=True)
class PublishingProgressed:
    """``unpublished``: the number of committed epochs that each sink has not published yet, by uid. ``behind``: the sinks that
    cause back pressure, or would with one more epoch."""

    unpublished: Mapping[str, int]
    behind: Collection[str] = ()
    at_ms: int | None = None


@dataclass(frozen=True)
class RunEnded:
    outcome: Outcome
    failure: str | None = None


Event = (
    StandingBy
    | CaughtUp
    | Leading
    | RestoreProgressed
    | AttemptStarted
    | EpochReached
    | EpochCommitted
    | Restarting
    | SavepointProgressed
    | SavepointEnded
    | RescaleStarted
    | RescaleEnded
    | PublishingProgressed
    | RunEnded
)


class Listener(Protocol):
    def on_event(self, event: Event) -> None: ...


class Steps(Protocol):
    """Receives only the phases of a run's epochs."""

    def on_step(self, step: str, epoch: int) -> None: ...


@dataclass(frozen=True)
class StepListener:
    """Passes phases on to ``steps``."""

    steps: Steps

    def on_event(self, event: Event) -> None:
        if isinstance(event, EpochReached):
            self.steps.on_step(event.phase, event.epoch)


@dataclass(frozen=True)
class Listeners:
    """Several listeners as one, called in this order."""

    listeners: Sequence[Listener] = ()

    def on_event(self, event: Event) -> None:
        for listener in self.listeners:
            listener.on_event(event)

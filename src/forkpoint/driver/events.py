"""What happens in a run, as it happens. Status, progress bars and tests listen here; metrics and a page can, too.

Events are told on the thread on which they happen, in order. What a listener raises ends the run, as a failure of the step
that it was told about. Times are in ms since the epoch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from forkpoint.runtime.exchange.control import CatchUp

Outcome = Literal["finished", "stopped", "cancelled", "failed"]
Phase = Literal["planned", "computed", "written", "committed", "published"]


@dataclass(frozen=True)
class RestoreProgressed:
    """So many parts of the state that the run starts from are restored."""

    done: int
    total: int


@dataclass(frozen=True)
class AttemptStarted:
    """Epochs run from here on: from the start, or after the ``restarts``-th restart. ``epoch`` is the last committed one."""

    epoch: int
    restarts: int
    watermarks: Mapping[str, int]


@dataclass(frozen=True)
class EpochReached:
    """An epoch has come to a phase."""

    epoch: int
    phase: Phase
    at_ms: int


@dataclass(frozen=True)
class EpochCommitted:
    """What an epoch did; told once its output is visible, or withheld. Counts are by operator uid, of this epoch alone.

    ``watermarks`` are those at its end. ``changes_bytes`` and ``snapshot_bytes``: what its tasks wrote of state. ``catch_ups``:
    how its subtasks came to the state that they began with.
    """

    epoch: int
    processing_time_ms: int
    records_in: Mapping[str, int]
    records_out: Mapping[str, int]
    late_records_dropped: Mapping[str, int]
    watermarks: Mapping[str, int]
    changes_bytes: int
    snapshot_bytes: int
    catch_ups: Sequence[CatchUp]

    def lag_ms(self, uid: str) -> int | None:
        """How far an operator's watermark is behind processing time; None where it has none yet."""
        watermark = self.watermarks.get(uid)
        return None if watermark is None else self.processing_time_ms - watermark


def added_up(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Several counts by uid as one."""
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(total)


@dataclass(frozen=True)
class Restarting:
    """An attempt failed; the next one begins after a delay."""

    failure: str
    restarts: int
    delay_ms: int


@dataclass(frozen=True)
class SavepointProgressed:
    """A savepoint of a committed epoch has been begun (0 of 1), or so many of its parts are written."""

    savepoint: str
    epoch: int
    done: int
    total: int


@dataclass(frozen=True)
class SavepointEnded:
    """A savepoint is complete, at ``path``, or failed."""

    savepoint: str
    epoch: int
    path: str | None = None
    failure: str | None = None


@dataclass(frozen=True)
class RunEnded:
    outcome: Outcome
    failure: str | None = None


Event = (
    RestoreProgressed | AttemptStarted | EpochReached | EpochCommitted | Restarting | SavepointProgressed | SavepointEnded |
    RunEnded
)  # fmt: skip


class Listener(Protocol):
    def on_event(self, event: Event) -> None: ...


class Steps(Protocol):
    """Sees the phases of a run's epochs go by, for those who need nothing else."""

    def on_step(self, step: str, epoch: int) -> None: ...


@dataclass(frozen=True)
class StepListener:
    """Tells ``steps`` what it wants to know."""

    steps: Steps

    def on_event(self, event: Event) -> None:
        if isinstance(event, EpochReached):
            self.steps.on_step(event.phase, event.epoch)


@dataclass(frozen=True)
class Listeners:
    """Several listeners as one, told in this order."""

    listeners: Sequence[Listener] = field(default_factory=tuple)

    def on_event(self, event: Event) -> None:
        for listener in self.listeners:
            listener.on_event(event)

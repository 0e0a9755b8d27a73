"""Trials: the driver publishes the output of a new version's first epochs once all of them have succeeded."""

from __future__ import annotations

from dataclasses import dataclass

IDLE_MS = 10_000  # time without input after which a trial ends


@dataclass(frozen=True)
class Trial:
    """The driver withholds a run's output until ``epochs`` epochs are committed, or its sources have been idle for ten seconds. A
    run that fails before does not restart, and its withheld output is dropped."""

    epochs: int


class TrialProgress:
    """The state of a run's trial. Without a trial, it is over."""

    def __init__(self, trial: Trial | None, now_ms: int) -> None:
        self._left = 0 if trial is None else trial.epochs
        self._idle_since_ms = now_ms

    @property
    def active(self) -> bool:
        return self._left > 0

    def ends_at_ms(self) -> int | None:
        """When the trial ends without new input."""
        return self._idle_since_ms + IDLE_MS if self.active else None

    def withholds(self, now_ms: int, *, last: bool) -> bool:
        """Whether to withhold the output of the epoch to commit. ``last``: it is the job's last epoch."""
        return self._left > 1 and not last and now_ms < self._idle_since_ms + IDLE_MS

    def committed(self, withheld: bool, now_ms: int) -> None:
        self._left = self._left - 1 if withheld else 0
        self._idle_since_ms = now_ms

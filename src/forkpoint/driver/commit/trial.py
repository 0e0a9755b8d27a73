"""Trials: the output of a new version's first epochs is published only once all of them have succeeded."""

from __future__ import annotations

from dataclasses import dataclass

IDLE_MS = 10_000  # a trial ends after so long without input


@dataclass(frozen=True)
class Trial:
    """A run's output is withheld until ``epochs`` epochs are committed, or its sources have been idle for ten seconds. A run
    that fails before that is not restarted, and its withheld output is dropped."""

    epochs: int


class TrialProgress:
    """The state of a run's trial. None counts as a trial that is over."""

    def __init__(self, trial: Trial | None, now_ms: int) -> None:
        self._left = 0 if trial is None else trial.epochs
        self._idle_since_ms = now_ms

    @property
    def active(self) -> bool:
        return self._left > 0

    def ends_at_ms(self) -> int | None:
        """When it ends unless there is new input."""
        return self._idle_since_ms + IDLE_MS if self.active else None

    def withholds(self, now_ms: int, *, last: bool) -> bool:
        """Whether the output of the epoch to be committed is withheld. ``last``: it is the job's last epoch."""
        return self._left > 1 and not last and now_ms < self._idle_since_ms + IDLE_MS

    def committed(self, withheld: bool, now_ms: int) -> None:
        self._left = self._left - 1 if withheld else 0
        self._idle_since_ms = now_ms

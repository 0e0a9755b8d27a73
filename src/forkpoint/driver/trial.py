"""The first epochs of a new version, whose output nobody sees before they have all gone well."""

from __future__ import annotations

from dataclasses import dataclass

REST_MS = 10_000


@dataclass(frozen=True)
class Trial:
    """A run's output is withheld until ``epochs`` epochs are committed, or until its sources have had nothing new for
    ten seconds. A run that fails before that fails for good, and what it withheld is dropped."""

    epochs: int


class TrialCourse:
    """How far a run's trial is. None counts as a trial that is over."""

    def __init__(self, trial: Trial | None, now_ms: int) -> None:
        self._left = 0 if trial is None else trial.epochs
        self._resting_since_ms = now_ms

    @property
    def active(self) -> bool:
        return self._left > 0

    def ends_at_ms(self) -> int | None:
        """When it ends if nothing comes in."""
        return self._resting_since_ms + REST_MS if self.active else None

    def withholds(self, now_ms: int, *, last: bool) -> bool:
        """Whether the epoch that is about to be committed still belongs to it. ``last``: the job's last epoch."""
        return self._left > 1 and not last and now_ms < self._resting_since_ms + REST_MS

    def committed(self, withheld: bool, now_ms: int) -> None:
        self._left = self._left - 1 if withheld else 0
        self._resting_since_ms = now_ms

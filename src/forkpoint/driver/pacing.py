"""How long a run waits between epochs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

IDLE_WAIT_MS = 200


@dataclass(frozen=True)
class Pace:
    """``interval_ms``: from the beginning of one epoch to that of the next. ``min_pause_ms``: at least, after an epoch."""

    interval_ms: int
    min_pause_ms: int

    def wait_ms(
        self, *, worked: bool, passed_ms: float, in_flight: bool, due_in_ms: int | None, blocked: bool
    ) -> float:
        """``worked``: whether there was an epoch, that began ``passed_ms`` ago. ``in_flight``: whether iterations have elements.
        ``due_in_ms``: when an epoch is due without input. ``blocked``: whether none may run, as output is unpublished."""
        if blocked:
            return IDLE_WAIT_MS
        wait_ms = self.interval_ms - passed_ms if worked else max(self.interval_ms, IDLE_WAIT_MS)
        if in_flight:
            wait_ms = 0  # each round of an iteration is an epoch: waiting would add up over the rounds
        if due_in_ms is not None and not worked:
            wait_ms = min(wait_ms, max(0, due_in_ms))
        return max(wait_ms, self.min_pause_ms if worked else 0)

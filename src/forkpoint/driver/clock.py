"""Processing time, which must neither go back nor stand still when somebody sets the machine's clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

CATCH_UP = 0.1  # of the time that passes, by which processing time is slower until the machine's clock has caught up


@dataclass
class ProcessingClock:
    """Processing time in ms: the machine's, as long as that does not go back. Then it goes on from where it was, a tenth slower,
    until the machine's clock has caught up. ``start_ms``: it begins there, if the machine's clock is behind."""

    wall_ms: Callable[[], int]
    start_ms: int
    _lead_ms: float = field(init=False)
    _before_ms: int = field(init=False)

    def __post_init__(self) -> None:
        self._before_ms = self.wall_ms()
        self._lead_ms = max(0, self.start_ms - self._before_ms)

    def __call__(self) -> int:
        now_ms = self.wall_ms()
        passed_ms = now_ms - self._before_ms
        self._before_ms = now_ms
        if passed_ms < 0:
            self._lead_ms -= passed_ms
        else:
            self._lead_ms = max(0.0, self._lead_ms - passed_ms * CATCH_UP)
        return now_ms + int(self._lead_ms)

"""Processing time, the waits between epochs, and the checkpoint timeout."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

SLOWDOWN = 0.1  # of processing time, until the machine's clock has caught up
IDLE_WAIT_MS = 200
TURN_SECONDS = 0.0005
INTERRUPT_SECONDS = 1.0  # between interrupts of an epoch that does not end
_CHECK_SECONDS = 0.25


@dataclass
class ProcessingClock:
    """Processing time in ms: the machine's clock, made monotonic. If that clock is set back, or is behind ``start_ms``,
    processing time continues from its last value, a tenth slower, until the clock has caught up."""

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
            self._lead_ms = max(0.0, self._lead_ms - passed_ms * SLOWDOWN)
        return now_ms + int(self._lead_ms)


@dataclass(frozen=True)
class Pace:
    """``interval_ms``: start-to-start time between epochs. ``min_pause_ms``: minimum pause after an epoch."""

    interval_ms: int
    min_pause_ms: int

    def wait_ms(self, *, worked: bool, passed_ms: float, in_flight: bool, due_in_ms: int | None, blocked: bool) -> float:
        """``worked``: an epoch began ``passed_ms`` ago. ``in_flight``: iterations have elements. ``due_in_ms``: time until an
        epoch is due without input. ``blocked``: no epoch may run because output is not published yet."""
        if blocked:
            return IDLE_WAIT_MS
        wait_ms = self.interval_ms - passed_ms if worked else max(self.interval_ms, IDLE_WAIT_MS)
        if in_flight:
            wait_ms = 0  # each round of an iteration is an epoch: waiting would add up over the rounds
        if due_in_ms is not None and not worked:
            wait_ms = min(wait_ms, max(0, due_in_ms))
        return max(wait_ms, self.min_pause_ms if worked else 0)


@contextmanager
def short_turns() -> Iterator[None]:
    """Within the block, a thread of this process leaves Python to one that waits for it after ``TURN_SECONDS``. By default, it
    takes 5 ms: a sink's thread, which waits for Python after each answer of its system, then takes as long as an epoch."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, TURN_SECONDS))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class EpochTimeout:
    """Calls ``interrupt`` repeatedly while an epoch exceeds the timeout. Its thread starts with the first epoch and ends with
    ``close``."""

    def __init__(self, timeout_ms: int, interrupt: Callable[[], None]) -> None:
        self._timeout_s = timeout_ms / 1000
        self._interrupt = interrupt
        self._lock = threading.Lock()
        self._ended = threading.Event()  # the newest epoch
        self._closed = threading.Event()
        self._deadline: float | None = None
        self._thread: threading.Thread | None = None
        self.passed = False  # by the newest epoch

    @contextmanager
    def running(self) -> Iterator[None]:
        """Around an epoch."""
        with self._lock:
            self.passed = False
            self._ended.clear()
            self._deadline = time.monotonic() + self._timeout_s
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="forkpoint-epoch-timeout", daemon=True)
            self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._deadline = None
            self._ended.set()

    def close(self) -> None:
        """After the last epoch."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._closed.is_set():
            with self._lock:
                left_s = _CHECK_SECONDS if self._deadline is None else self._deadline - time.monotonic()
                if left_s <= 0:
                    self.passed = True
            if left_s > 0:
                self._closed.wait(min(left_s, _CHECK_SECONDS))
            else:
                self._interrupt()
                self._ended.wait(INTERRUPT_SECONDS)

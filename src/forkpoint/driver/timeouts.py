"""The time limit of epochs. One thread watches over many short epochs: to start one for each would take longer than some of
their commits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

INTERRUPT_SECONDS = 1.0  # between interrupts of an epoch that goes on
_CHECK_SECONDS = 0.25


class EpochTimeout:
    """Calls ``interrupt`` again and again while an epoch has been running for longer than the timeout. Its thread starts with the
    first epoch and ends with ``close``."""

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

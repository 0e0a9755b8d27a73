"""Requests to a running job from other threads, and the interrupts of a cancellation."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from forkpoint.driver.run.executor import Executor
from forkpoint.driver.run.timing import INTERRUPT_SECONDS
from forkpoint.errors import JobFailed

log = logging.getLogger("forkpoint")
STUCK_SECONDS = 30.0
ABANDON_SECONDS = 10.0  # time for savepoints in progress to complete after a cancellation


@dataclass(frozen=True, eq=False)
class SavepointRequest:
    """``stop``: end the job with this savepoint. ``drain``: fire all timers first. ``schedule_ms``: the interval of the
    requesting schedule. ``skip_unreadable``: leave out entries that don't fit their types. ``epoch``: an earlier epoch whose
    files still exist; None: the last committed one. ``self_contained``: it refers to no earlier savepoint."""

    directory: str | None = None
    label: str | None = None
    note: str | None = None
    stop: bool = False
    drain: bool = False
    schedule_ms: int | None = None
    skip_unreadable: bool = False
    epoch: int | None = None
    self_contained: bool = False
    done: Future[str] = field(default_factory=Future)


@dataclass(frozen=True, eq=False)
class CancelRequest:
    done: Future[None] = field(default_factory=Future)


@dataclass(frozen=True, eq=False)
class RescaleRequest:
    """``done`` receives the first epoch at this parallelism. ``prepared`` is set while its stores have caught up with the job,
    and if they cannot be built."""

    parallelism: int
    prepared: threading.Event = field(default_factory=threading.Event)
    done: Future[int] = field(default_factory=Future)


@dataclass(frozen=True, eq=False)
class HandOverRequest:
    """``done`` receives the last epoch before ``successor`` leads the job."""

    successor: str
    done: Future[int] = field(default_factory=Future)


Request = SavepointRequest | CancelRequest | RescaleRequest | HandOverRequest

_UNMET = {SavepointRequest: "its savepoint was made", RescaleRequest: "it was rescaled", HandOverRequest: "it was handed over"}


class Inbox:
    """Requests that the driver's loop handles between epochs."""

    def __init__(self) -> None:
        self._requests: deque[Request] = deque()
        self._changed = threading.Condition()
        self._awake = False
        self._input = False

    def put(self, request: Request) -> None:
        with self._changed:
            self._requests.append(request)
            self._changed.notify_all()

    def take(self) -> Request | None:
        with self._changed:
            return self._requests.popleft() if self._requests else None

    def wake(self) -> None:
        """End a ``wait``."""
        with self._changed:
            self._awake = True
            self._changed.notify_all()

    def found_input(self) -> None:
        """End a ``wait`` for input."""
        with self._changed:
            self._input = True
            self._changed.notify_all()

    def wait(self, seconds: float, *, for_input: bool = False) -> None:
        """Wait for a request, a call of ``wake`` or, if that is why the job waits, of ``found_input``, or the end of the time."""
        with self._changed:
            self._changed.wait_for(lambda: self._requests or self._awake or (for_input and self._input), max(seconds, 0))
            self._awake = self._input = False

    def pause(self, seconds: float) -> bool:
        """Wait for a request to cancel, or the end of the time; returns whether there is such a request."""
        with self._changed:
            return self._changed.wait_for(lambda: self.cancelled, seconds)

    @property
    def cancelled(self) -> bool:
        with self._changed:
            return any(isinstance(r, CancelRequest) for r in self._requests)

    def cancel_all(self, job: str) -> None:
        """Answer all requests of a cancelled job."""
        while (request := self.take()) is not None:
            if isinstance(request, CancelRequest):
                request.done.set_result(None)
            else:
                request.done.set_exception(JobFailed(f"job {job!r} was cancelled before {_UNMET[type(request)]}"))

    def fail_all(self, error: BaseException) -> None:
        while (request := self.take()) is not None:
            request.done.set_exception(error)


def interrupt_until_over(
    executor: Executor, over: threading.Event, *, starting: Callable[[], bool], stuck: Callable[[], None]
) -> None:
    """Interrupt repeatedly until the run is ``over``: work may start just after an interrupt, or survive it. Calls ``stuck`` if
    the run takes longer than ``STUCK_SECONDS``."""
    began = time.monotonic()
    while not over.is_set():
        try:
            if starting() or time.monotonic() - began > ABANDON_SECONDS:
                executor.abandon()
            else:
                executor.interrupt()
        except Exception as error:  # the engine may be shutting down
            log.debug("could not interrupt: %s", error)
        if over.wait(INTERRUPT_SECONDS):
            return
        if time.monotonic() - began > STUCK_SECONDS:
            stuck()

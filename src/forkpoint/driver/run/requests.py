"""Requests to a running job from other threads, and how cancelling interrupts its work."""

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
ABANDON_SECONDS = 10.0  # that savepoints in progress get to complete once the job is cancelled


@dataclass(frozen=True, eq=False)
class SavepointRequest:
    """``stop``: end the job with it; ``drain``: and fire all timers first. ``schedule_ms``: the interval of the schedule
    that requested it. ``skip_unreadable``: leave out entries that don't fit their types. ``epoch``: an earlier one, whose files
    are still there; None: the last committed one."""

    directory: str | None = None
    label: str | None = None
    note: str | None = None
    stop: bool = False
    drain: bool = False
    schedule_ms: int | None = None
    skip_unreadable: bool = False
    epoch: int | None = None
    done: Future[str] = field(default_factory=Future)


@dataclass(frozen=True, eq=False)
class CancelRequest:
    done: Future[None] = field(default_factory=Future)


@dataclass(frozen=True, eq=False)
class RescaleRequest:
    """``done`` receives the epoch from which the job runs at this parallelism. ``prepared`` is set while its stores are close
    enough to the job to switch to them, and if they cannot be built."""

    parallelism: int
    prepared: threading.Event = field(default_factory=threading.Event)
    done: Future[int] = field(default_factory=Future)


@dataclass(frozen=True, eq=False)
class HandOverRequest:
    """``done`` receives the last epoch before that of ``successor``, which leads the job then."""

    successor: str
    done: Future[int] = field(default_factory=Future)


Request = SavepointRequest | CancelRequest | RescaleRequest | HandOverRequest

_WANTED = {SavepointRequest: "its savepoint was made", RescaleRequest: "it was rescaled", HandOverRequest: "it was handed over"}


class Inbox:
    """Requests that the driver's loop handles between epochs."""

    def __init__(self) -> None:
        self._requests: deque[Request] = deque()
        self._changed = threading.Condition()
        self._awake = False

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

    def wait(self, seconds: float) -> None:
        """Wait until there is a request, ``wake`` is called or the time has passed."""
        with self._changed:
            if not self._requests and not self._awake and seconds > 0:
                self._changed.wait(seconds)
            self._awake = False

    def pause(self, seconds: float) -> bool:
        """Wait until the time has passed or there is a request to cancel; whether there is one."""
        with self._changed:
            return self._changed.wait_for(lambda: self.cancelled, seconds)

    @property
    def cancelled(self) -> bool:
        with self._changed:
            return any(isinstance(r, CancelRequest) for r in self._requests)

    def cancel_all(self, job: str) -> None:
        """Answer everything, as the job has been cancelled."""
        while (request := self.take()) is not None:
            if isinstance(request, CancelRequest):
                request.done.set_result(None)
            else:
                request.done.set_exception(JobFailed(f"job {job!r} was cancelled before {_WANTED[type(request)]}"))

    def fail_all(self, error: BaseException) -> None:
        while (request := self.take()) is not None:
            request.done.set_exception(error)


def interrupt_until_over(
    executor: Executor, over: threading.Event, *, starting: Callable[[], bool], stuck: Callable[[], None]
) -> None:
    """Interrupt repeatedly until the run is ``over``: work may start just after an interrupt, or survive it. ``stuck`` is called
    if it still is not after a while."""
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

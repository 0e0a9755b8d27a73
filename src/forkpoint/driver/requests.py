"""What can be asked of a running job from other threads."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field


@dataclass(frozen=True, eq=False)
class SavepointRequest:
    """``stop``: end the job with it, ``drain``: and let all timers fire first. ``schedule_ms``: of one that nobody asked
    for, how often the schedule makes one. ``skip_unreadable``: leave out entries that don't fit their types."""

    directory: str | None
    label: str | None
    note: str | None
    stop: bool
    drain: bool
    schedule_ms: int | None = None
    skip_unreadable: bool = False
    done: Future[str] = field(default_factory=Future)


@dataclass(frozen=True, eq=False)
class CancelRequest:
    done: Future[None] = field(default_factory=Future)


Request = SavepointRequest | CancelRequest


class Inbox:
    """Requests for the driver's loop, which it looks at between epochs."""

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
        """Let a waiting loop look around."""
        with self._changed:
            self._awake = True
            self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        """Wait for a request, a wake-up call, or the time to pass."""
        with self._changed:
            if not self._requests and not self._awake and seconds > 0:
                self._changed.wait(seconds)
            self._awake = False

    def pause(self, seconds: float) -> None:
        """Let the time pass; only a request to cancel ends it sooner."""
        with self._changed:
            self._changed.wait_for(self._has_cancel, seconds)

    @property
    def cancelled(self) -> bool:
        with self._changed:
            return self._has_cancel()

    def _has_cancel(self) -> bool:
        return any(isinstance(r, CancelRequest) for r in self._requests)

    def fail_all(self, error: BaseException) -> None:
        while (request := self.take()) is not None:
            request.done.set_exception(error)

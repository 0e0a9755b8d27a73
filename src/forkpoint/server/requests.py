"""Long operations: the server accepts them at once, and callers poll for their results by id."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from forkpoint.errors import ConfigError, ForkpointError
from forkpoint.operations.observer import Observer, OnStep
from forkpoint.savepoint.format.tasks import Progress

KEPT = 1_000  # answers
AT_ONCE = 16
WAITING = 64


class Busy(ForkpointError):
    """Too many operations are in progress."""


class Unknown(ForkpointError):
    """No request has this id."""


@dataclass
class Asked(Observer):
    """An operation in progress, or its result. ``kind``: of operation, which a lookup has to match. ``step``: the current step,
    in words; ``progress_``: the step's completed and total parts."""

    id: str
    kind: str
    job: str | None
    by: str
    started: float = field(default_factory=time.time)
    step: str | None = None
    progress_: tuple[int, int] | None = None
    remarks: list[str] = field(default_factory=list)
    future: Future[dict[str, Any]] = field(default_factory=Future)

    @contextmanager
    def progress(self, what: str, unit: str = "parts") -> Iterator[Progress]:
        self.step = what

        def report(done: int, total: int) -> None:
            self.progress_ = done, total

        yield report
        self.progress_ = None

    @contextmanager
    def steps(self, what: str) -> Iterator[OnStep]:
        self.step = what

        def report(step: str) -> None:
            self.step = f"{what}: {step}"

        yield report

    def remark(self, text: str) -> None:
        self.remarks = [*self.remarks, text][-100:]


class Requests:
    """The operations of a server. It forgets the oldest ended ones beyond ``KEPT``."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self._changed = changed
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="forkpoint-request")
        self._known: dict[str, Asked] = {}
        self._lock = threading.Lock()

    def begin(
        self, kind: str, job: str | None, by: str, work: Callable[[Asked], dict[str, Any]], request_id: str | None = None
    ) -> Asked:
        """Start an operation, unless one has this id, which makes repeated calls idempotent. Raises Busy, and ConfigError if a
        request of another kind has the id."""
        with self._lock:
            if request_id is not None and (known := self._known.get(request_id)) is not None:
                if (known.kind, known.job) != (kind, job):
                    raise ConfigError(f"request id {request_id!r} is taken by a request for something else; choose another")
                return known
            open_ = [known for known in self._known.values() if not known.future.done()]
            if len(open_) >= WAITING:
                raise Busy(f"{len(open_)} requests are in progress; try again when some of them are done")
            asked = Asked(request_id or uuid.uuid4().hex, kind, job, by)
            self._known[asked.id] = asked
            for known in list(self._known.values())[: max(0, len(self._known) - KEPT)]:
                if known.future.done():
                    del self._known[known.id]
        self._pool.submit(self._work, asked, work)
        return asked

    def find(self, request_id: str, kind: str | None = None, job: str | None = None) -> Asked:
        """Raises Unknown."""
        with self._lock:
            found = self._known.get(request_id)
        if found is None or (kind is not None and (found.kind, found.job) != (kind, job)):
            raise Unknown(
                f"there is no request {request_id!r}; answers are kept for the last {KEPT:,} requests, until the server ends"
            )
        return found

    def latest(self, count: int = 100) -> list[Asked]:
        """The latest requests, newest first."""
        with self._lock:
            return list(self._known.values())[: -count - 1 : -1]

    def close(self) -> None:
        """Start no further operation; running ones continue in the background until this process ends."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _work(self, asked: Asked, work: Callable[[Asked], dict[str, Any]]) -> None:
        try:
            result = work(asked)
        except BaseException as error:
            asked.future.set_exception(error)
        else:
            asked.future.set_result(result)
        finally:
            self._changed()

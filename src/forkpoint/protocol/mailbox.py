"""Requests to a running driver as files below the state root, for callers that cannot reach its port.

A caller creates `requests/<id>.json` next to the run's record: `run operation body`. The driver lists that directory every
second, takes each request once, writes `answers/<id>.json`, and removes the request. It updates the answer while a savepoint
makes progress; the caller removes the last answer once it has read it. Anyone who can write below the state root can command the
job.

An answer is an object with one field that names its kind: `status`, `journal`, `metrics`, `savepoint` (of all long requests), or
`error`. Earlier releases write all of these fields, with null for all but one.
"""

from __future__ import annotations

import logging
import shlex
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

from msgspec import DecodeError, Raw, Struct, ValidationError, json

from forkpoint.checkpoint.lease import LEASE
from forkpoint.checkpoint.manifest import RUN
from forkpoint.checkpoint.paths import JobPaths, parse_mail_file
from forkpoint.errors import ForkpointError, NotFound, StorageError
from forkpoint.protocol import messages as m
from forkpoint.protocol.client import Carrier, Pending, RunClient, Unreachable

if TYPE_CHECKING:
    from forkpoint.protocol.endpoint import Endpoint
    from forkpoint.storage.base import Storage

POLL_SECONDS = 1.0
KEEP_SECONDS = 600.0  # lifetime of an answer
PATIENCE_SECONDS = 20.0  # a driver polls every second, but its storage may be slow
ALIVE_SECONDS = 15.0  # time without news after which to check whether the driver is alive

A = TypeVar("A", bound=m.Message)
L = TypeVar("L", bound=m.LongAnswer)

log = logging.getLogger("forkpoint")


class MailedRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A request as a file. ``run``: its recipient."""

    run: str
    operation: str
    body: Raw = Raw(b"{}")


_FIELDS: Mapping[type[m.Message], str] = {
    m.StatusMessage: "status",
    m.JournalMessage: "journal",
    m.MetricsMessage: "metrics",
    m.LongAnswer: "savepoint",
    m.ErrorDetail: "error",
}


def _field(kind: type[m.Message]) -> str:
    return next(name for base, name in _FIELDS.items() if issubclass(kind, base))


def _read_answer(data: bytes, kind: type[A]) -> A | m.ErrorDetail:
    """Raises DecodeError if the answer is incomplete, or of another kind."""
    found = m.read(data, dict[str, Raw])
    kinds: tuple[type[A | m.ErrorDetail], ...] = (m.ErrorDetail, kind)
    for expected in kinds:
        part = found.get(_field(expected))
        if part is not None and bytes(part) != b"null":
            return m.read(part, expected)
    raise ValidationError(f"it has no {_field(kind)}")


def _is_final(answer: m.Message) -> bool:
    """Whether no further answer follows."""
    return not isinstance(answer, m.LongAnswer) or answer.status != "IN_PROGRESS"


@dataclass
class _Taken:
    """A taken request. ``accepted``: the driver's id of a long request. ``written``: when ``answer`` was written."""

    accepted: str | None
    answer: m.Message
    written: float | None = None


class Mailbox:
    """The driver's side: takes the requests to one run."""

    def __init__(self, storage: Storage, job: str, run: str, driver: m.RequestHandler) -> None:
        self._storage, self._paths, self._run, self._driver = storage, JobPaths(job), run, driver
        self._taken: dict[str, _Taken] = {}
        self._closing = threading.Event()
        self._reachable = True
        self._thread = threading.Thread(target=self._serve, name=f"forkpoint-mailbox-{job}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Answer open requests. Call this once the run has ended."""
        self._closing.set()
        self._thread.join()
        if self._taken or not self._reachable:  # otherwise the last round was recent, and callers see the run's end
            self._round()

    def _serve(self) -> None:
        while not self._closing.wait(POLL_SECONDS):
            self._round()

    def _round(self) -> None:
        try:
            for path in self._storage.list(self._paths.requests(self._run)):
                request_id = parse_mail_file(path)
                if request_id is not None and request_id not in self._taken:
                    self._take(request_id, path)
                self._storage.delete(path)
            self._report()
            self._reachable = True
        except StorageError as error:
            if self._reachable:
                log.warning("job %r: requests cannot be listed: %s", self._paths.job, error)
            self._reachable = False

    def _take(self, request_id: str, path: str) -> None:
        """Execute a request. It counts as taken even if its answer cannot be written, so it is never executed twice."""
        try:
            data = self._storage.read(path)
        except NotFound:  # its caller has given up
            return
        try:
            taken = self._execute(data, path)
        except m.Refused as refused:
            taken = _Taken(None, refused.detail)
        self._taken[request_id] = taken
        self._write(request_id)

    def _execute(self, data: bytes, path: str) -> _Taken:
        """Execute a request; returns it with its first answer. Raises Refused."""
        mailed = m.read_request(data, MailedRequest)
        if mailed.run != self._run:
            raise m.Refused("bad-request", f"{path} is for run {mailed.run}, this is run {self._run}")
        kind = m.REQUESTS.get(mailed.operation)
        if kind is None:
            known = ", ".join(map(repr, m.REQUESTS))
            raise m.Refused("bad-request", f"operation: there is no {mailed.operation!r}; there are {known}")
        answer = self._driver.ask(m.read_request(mailed.body, kind))
        if isinstance(answer, m.Accepted):
            return _Taken(answer.request_id, self._driver.answer(answer.request_id))
        return _Taken(None, answer)

    def _report(self) -> None:
        """Write the progress of accepted requests, and remove expired answers."""
        for request_id, taken in list(self._taken.items()):
            if taken.accepted is not None and not _is_final(taken.answer):
                answer = self._driver.answer(taken.accepted)
                if answer != taken.answer:
                    taken.answer, taken.written = answer, None
            if taken.written is None:
                self._write(request_id)
            elif _is_final(taken.answer) and taken.written < time.monotonic() - KEEP_SECONDS:
                self._storage.delete(self._paths.answer_file(self._run, request_id))
                del self._taken[request_id]

    def _write(self, request_id: str) -> None:
        taken = self._taken[request_id]
        data = json.encode({_field(type(taken.answer)): taken.answer})
        self._storage.put(self._paths.answer_file(self._run, request_id), data)
        taken.written = time.monotonic()


class MailboxCarrier(Carrier):
    """The client's side, on any host that can write below the state root. Waits up to ``patience_seconds`` for the first answer
    to each request."""

    poll_seconds = 0.3

    def __init__(self, storage: Storage, endpoint: Endpoint, patience_seconds: float = PATIENCE_SECONDS) -> None:
        super().__init__(endpoint)
        self._storage, self._paths, self._patience = storage, JobPaths(endpoint.job), patience_seconds
        self._last: dict[str, m.LongAnswer] = {}  # by request
        self._heard = time.monotonic()  # the last news of the driver

    def ask(self, request: m.Request[A]) -> A:
        """Raises Unreachable without an answer."""
        if (end := self._end()) is not None:
            raise Unreachable(f"{self.who} {end}")
        request_id = uuid.uuid4().hex
        mailed = MailedRequest(self.endpoint.run, request.operation, Raw(json.encode(request)))
        path = self._paths.request_file(self.endpoint.run, request_id)
        self._storage.create(path, json.encode(mailed))
        try:
            answer = self._first_answer(request_id, request.outcome if isinstance(request, m.LongRequest) else request.answer)
        finally:
            self._storage.delete(path)  # the driver may not have taken it, and this client no longer waits
        self._heard = time.monotonic()
        if isinstance(answer, m.LongAnswer):
            self._last[request_id] = answer
            answer = m.Accepted(request_id)
        return cast("A", answer)

    def answer(self, pending: Pending[L]) -> L:
        known = cast("L", self._last[pending.id])
        if _is_final(known):
            return known
        end = self._end()
        # Fetch after this check: the driver writes the last answers before its end.
        found = cast("L | None", self._fetch(pending.id, pending.kind.outcome))
        if found is not None and found != known:
            self._last[pending.id], self._heard = found, time.monotonic()
            return found
        if end is not None:
            raise Unreachable(f"{self.who} {end}; `forkpoint savepoints {shlex.quote(self.endpoint.job)}` shows its savepoints")
        self._check_alive()
        return known

    def is_gone(self) -> bool:
        if not self._storage.exists(self._paths.endpoint_file(self.endpoint.run)):
            return True
        try:
            self._check_alive()
        except Unreachable:
            return True
        return False

    def _check_alive(self) -> None:
        """Raise Unreachable if there has been no news for ``ALIVE_SECONDS`` and the driver does not answer."""
        if time.monotonic() - self._heard > ALIVE_SECONDS:
            self.ask(m.StatusRequest())

    def _first_answer(self, request_id: str, kind: type[A]) -> A:
        until = time.monotonic() + self._patience
        renewals = self._renewals()
        while True:
            end = self._end()
            # Fetch after this check: the driver writes the last answers before its end.
            answer = self._fetch(request_id, kind)
            if answer is not None:
                return answer
            if end is not None:
                raise Unreachable(f"{self.who} {end}")
            if time.monotonic() > until:
                if (now := self._renewals()) is not None and now != renewals:
                    raise ForkpointError(
                        f"{self.who} is alive, but has not answered for {self._patience:.0f} s; it may be overloaded: try again"
                    )
                raise Unreachable(
                    f"{self.who} has not answered for {self._patience:.0f} s: its driver (process {self.endpoint.pid} on "
                    f"machine {self.endpoint.machine!r}) was killed, or cannot reach {self._storage.url}"
                )
            time.sleep(self.poll_seconds)

    def _fetch(self, request_id: str, kind: type[A]) -> A | None:
        """The answer, if there is one. Removes a final answer. Raises ForkpointError for a refusal."""
        path = self._paths.answer_file(self.endpoint.run, request_id)
        try:
            answer = _read_answer(self._storage.read(path), kind)
        except NotFound:
            return None
        except DecodeError:
            raise ForkpointError(
                f"{self.who}: {self._storage.url}/{path} is damaged, or of a newer release: upgrade forkpoint here"
            ) from None
        if _is_final(answer):
            self._storage.delete(path)
        if isinstance(answer, m.ErrorDetail):
            raise ForkpointError(f"{self.who}: {answer.message}")
        return answer

    def _renewals(self) -> int | None:
        """The number of renewals of the driver's lease; None without a lease."""
        lease = LEASE.load_if_whole(self._storage, self._paths.lease_file(self.endpoint.run))
        return None if lease is None else lease.renewals

    def _end(self) -> str | None:
        """The run's recorded end; None if it has not ended, or may still answer."""
        record = RUN.load_if_whole(self._storage, self._paths.run_file(self.endpoint.run))
        if record is None or record.outcome is None:
            return None
        if self._storage.exists(self._paths.endpoint_file(self.endpoint.run)):
            return None
        return f"has ended ({record.outcome})"


def by_mail(storage: Storage, endpoint: Endpoint, patience_seconds: float = PATIENCE_SECONDS) -> RunClient:
    """A client of a run on any host."""
    return RunClient(MailboxCarrier(storage, endpoint, patience_seconds))

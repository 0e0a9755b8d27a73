"""The client of a run's mailbox, from any host that can write below the state root."""

from __future__ import annotations

import time
import uuid

from pydantic import ValidationError

from forkpoint.checkpoint.lease import LEASE
from forkpoint.checkpoint.manifest import RUN
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.control.client import RunClient, Unreachable
from forkpoint.control.endpoint import Endpoint
from forkpoint.control.messages import (
    Answer,
    HandOverBody,
    JournalMessage,
    LongRequest,
    MailedAnswer,
    MailedRequest,
    MetricsMessage,
    Operation,
    RequestBody,
    RescaleBody,
    SavepointBody,
    StatusMessage,
    StopBody,
)
from forkpoint.errors import ForkpointError, NotFound
from forkpoint.storage.base import Storage

PATIENCE_SECONDS = 20.0  # a driver looks every second, but its storage may be slow
POLL_SECONDS = 0.3
ALIVE_SECONDS = 15.0  # after this long without news, look whether the driver is still there

_OPERATIONS: dict[type[RequestBody], Operation] = {
    SavepointBody: "savepoint", StopBody: "stop", RescaleBody: "rescale", HandOverBody: "hand-over",
}  # fmt: skip


class MailboxClient(RunClient):
    """Waits ``patience_seconds`` for the first answer to each request."""

    poll_seconds = POLL_SECONDS

    def __init__(self, storage: Storage, endpoint: Endpoint, patience_seconds: float = PATIENCE_SECONDS) -> None:
        super().__init__(endpoint)
        self._storage, self._paths, self._patience = storage, JobPaths(endpoint.job), patience_seconds
        self._last: dict[str, tuple[Answer, float]] = {}  # the answers by request, and since when they have been known

    def status(self) -> StatusMessage:
        return self._status_after("status")

    def journal(self) -> JournalMessage:
        _, answer = self._send("journal")
        assert answer.journal is not None
        return answer.journal

    def metrics(self) -> MetricsMessage:
        _, answer = self._send("metrics")
        assert answer.metrics is not None
        return answer.metrics

    def cancel(self) -> None:
        self._status_after("cancel")

    def _status_after(self, operation: Operation) -> StatusMessage:
        _, answer = self._send(operation)
        assert answer.status is not None
        return answer.status

    def _request(self, body: LongRequest) -> str:
        request_id, answer = self._send(_OPERATIONS[type(body)], body)
        assert answer.savepoint is not None
        self._last[request_id] = answer.savepoint, time.monotonic()
        return request_id

    def answer(self, request_id: str) -> Answer:
        known, since = self._last[request_id]
        if known.status != "IN_PROGRESS":
            return known
        end = self._end()
        found = self._fetch(request_id)  # after the look at the end, before which the last answers are written
        if found is not None and found.savepoint is not None and found.savepoint != known:
            self._last[request_id] = found.savepoint, time.monotonic()
            return found.savepoint
        if end is not None:
            raise Unreachable(f"{self._who} {end}; `forkpoint savepoints {self.endpoint.job}` shows what it has made")
        if time.monotonic() - since > ALIVE_SECONDS:
            self.status()
            self._last[request_id] = known, time.monotonic()
        return known

    def _renewals(self) -> int | None:
        """How often the driver has renewed its lease; None without one."""
        lease = LEASE.load_if_whole(self._storage, self._paths.lease_file(self.endpoint.run))
        return None if lease is None else lease.renewals

    def wait_gone(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        asked = time.monotonic()
        while self._storage.exists(self._paths.endpoint_file(self.endpoint.run)):
            if time.monotonic() > until:
                return False
            if time.monotonic() - asked > ALIVE_SECONDS:
                try:
                    self.status()
                except Unreachable:
                    return True
                asked = time.monotonic()
            time.sleep(POLL_SECONDS)
        return True

    def _send(self, operation: Operation, body: LongRequest | None = None) -> tuple[str, MailedAnswer]:
        """A request's id and its first answer. Raises Unreachable if there is none, and ForkpointError if it was refused."""
        if (end := self._end()) is not None:
            raise Unreachable(f"{self._who} {end}")
        request_id = uuid.uuid4().hex
        request = MailedRequest(
            run=self.endpoint.run, operation=operation, body={} if body is None else body.model_dump()
        )
        path = self._paths.request_file(self.endpoint.run, request_id)
        self._storage.create(path, request.model_dump_json().encode())
        try:
            return request_id, self._first_answer(request_id)
        finally:
            self._storage.delete(path)  # if it was not taken: nobody waits for it any more

    def _first_answer(self, request_id: str) -> MailedAnswer:
        until = time.monotonic() + self._patience
        renewals = self._renewals()
        while True:
            end = self._end()
            answer = self._fetch(request_id)  # after the look at the end, before which the last answers are written
            if answer is not None:
                break
            if end is not None:
                raise Unreachable(f"{self._who} {end}")
            if time.monotonic() > until:
                if (now := self._renewals()) is not None and now != renewals:
                    raise ForkpointError(
                        f"{self._who} is alive, but has not answered for {self._patience:.0f} s; it may be overloaded: try again"
                    )
                raise Unreachable(
                    f"{self._who} has not answered for {self._patience:.0f} s: its driver (process {self.endpoint.pid} on "
                    f"machine {self.endpoint.machine!r}) was killed, or cannot reach {self._storage.url}"
                )
            time.sleep(POLL_SECONDS)
        if answer.error is not None:
            raise ForkpointError(f"{self._who}: {answer.error.message}")
        return answer

    def _fetch(self, request_id: str) -> MailedAnswer | None:
        """The answer; None if there is none yet. Removes it if nothing follows."""
        path = self._paths.answer_file(self.endpoint.run, request_id)
        try:
            answer = MailedAnswer.model_validate_json(self._storage.read(path))
        except NotFound:
            return None
        except ValidationError:
            raise ForkpointError(
                f"{self._who}: {self._storage.url}/{path} is damaged, or of a newer release: upgrade forkpoint here"
            ) from None
        if answer.final:
            self._storage.delete(path)
        return answer

    def _end(self) -> str | None:
        """How the run has ended, according to its record; None if it has not, or may still answer."""
        record = RUN.load_if_whole(self._storage, self._paths.run_file(self.endpoint.run))
        if record is None or record.outcome is None:
            return None
        if self._storage.exists(self._paths.endpoint_file(self.endpoint.run)):
            return None
        return f"has ended ({record.outcome})"

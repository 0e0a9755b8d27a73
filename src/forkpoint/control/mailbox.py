"""Requests to a running driver as files below the state root, for callers that cannot reach its port.

A caller creates `requests/<id>.json` beside the run's record. The driver lists that directory every second, takes each request
once, writes `answers/<id>.json`, and removes the request. It replaces the answer while a savepoint makes progress; the caller
removes it once it has read the last one. Whoever can write below the state root can command the job.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass

from pydantic import ValidationError

from forkpoint.checkpoint.paths import JobPaths, parse_mail_file
from forkpoint.control.commands import Commands, Refused, bad_request
from forkpoint.control.messages import (
    HandOverBody,
    LongRequest,
    MailedAnswer,
    MailedRequest,
    Operation,
    RescaleBody,
    SavepointBody,
    StopBody,
)
from forkpoint.errors import NotFound, StorageError
from forkpoint.storage.base import Storage

POLL_SECONDS = 1.0
KEEP_SECONDS = 600.0  # that an answer waits for its caller

_BODIES: dict[Operation, type[LongRequest]] = {
    "savepoint": SavepointBody, "stop": StopBody, "rescale": RescaleBody, "hand-over": HandOverBody,
}  # fmt: skip

log = logging.getLogger("forkpoint")


@dataclass
class _Taken:
    """A request that was taken. ``savepoint``: the id of its savepoint's answer. ``written``: whether ``answer`` is, and when."""

    savepoint: str | None
    answer: MailedAnswer
    written: float | None = None


class Mailbox:
    """The driver's side: takes the requests to one run."""

    def __init__(self, storage: Storage, job: str, run: str, commands: Commands) -> None:
        self._storage, self._paths, self._run, self._commands = storage, JobPaths(job), run, commands
        self._taken: dict[str, _Taken] = {}
        self._closing = threading.Event()
        self._reachable = True
        self._thread = threading.Thread(target=self._serve, name=f"forkpoint-mailbox-{job}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Answer what is still open. Call this once the run has ended."""
        self._closing.set()
        self._thread.join()
        if self._taken or not self._reachable:  # else the last round was a moment ago, and callers see the run's end
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
                log.warning("job %r: cannot look for requests: %s", self._paths.job, error)
            self._reachable = False

    def _take(self, request_id: str, path: str) -> None:
        """Do what a request asks for. It counts as taken even if its answer cannot be written: it is never done twice."""
        try:
            data = self._storage.read(path)
        except NotFound:  # its caller has given up
            return
        try:
            savepoint, answer = self._done(data, path)
        except Refused as refused:
            savepoint, answer = None, MailedAnswer(error=refused.detail)
        self._taken[request_id] = _Taken(savepoint, answer)
        self._write(request_id)

    def _done(self, data: bytes, path: str) -> tuple[str | None, MailedAnswer]:
        """The id of the savepoint's answer, if one was requested, and the first answer. Raises Refused."""
        try:
            request = MailedRequest.model_validate_json(data)
        except ValidationError as error:
            raise bad_request(error, MailedRequest) from None
        if request.run != self._run:
            raise Refused("bad-request", f"{path} is for run {request.run}, this is run {self._run}")
        if (answer := self._immediate(request.operation)) is not None:
            return None, answer
        model = _BODIES[request.operation]
        try:
            body = model.model_validate(request.body)
        except ValidationError as error:
            raise bad_request(error, model) from None
        savepoint = self._commands.request(body).request_id
        return savepoint, MailedAnswer(savepoint=self._commands.answer(savepoint))

    def _immediate(self, operation: Operation) -> MailedAnswer | None:
        """The answer to a request that takes no time."""
        match operation:
            case "status":
                return MailedAnswer(status=self._commands.status())
            case "journal":
                return MailedAnswer(journal=self._commands.journal())
            case "metrics":
                return MailedAnswer(metrics=self._commands.metrics())
            case "cancel":
                return MailedAnswer(status=self._commands.cancel())
        return None

    def _report(self) -> None:
        """Write how far the requested savepoints have come, and remove answers that nobody has fetched."""
        for request_id, taken in list(self._taken.items()):
            if taken.savepoint is not None and not taken.answer.final:
                answer = MailedAnswer(savepoint=self._commands.answer(taken.savepoint))
                if answer != taken.answer:
                    taken.answer, taken.written = answer, None
            if taken.written is None:
                self._write(request_id)
            elif taken.answer.final and taken.written < time.monotonic() - KEEP_SECONDS:
                self._storage.delete(self._paths.answer_file(self._run, request_id))
                del self._taken[request_id]

    def _write(self, request_id: str) -> None:
        taken = self._taken[request_id]
        data = taken.answer.model_dump_json(by_alias=True).encode()
        self._storage.put(self._paths.answer_file(self._run, request_id), data)
        taken.written = time.monotonic()

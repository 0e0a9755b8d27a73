"""Clients of a running driver: what all have in common, and that of its control port."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pydantic import ValidationError

from forkpoint.control.messages import (
    Accepted,
    Answer,
    ErrorMessage,
    HandOverBody,
    JournalMessage,
    LongRequest,
    Message,
    MetricsMessage,
    RequestBody,
    RescaleBody,
    SavepointBody,
    SavepointProgress,
    StatusMessage,
    StopBody,
)
from forkpoint.errors import ForkpointError, JobFailed

if TYPE_CHECKING:
    from ssl import SSLContext

    from forkpoint.control.endpoint import Endpoint

TIMEOUT_SECONDS = 10.0
POLL_SECONDS = 0.1

M = TypeVar("M", bound=Message)
_PATHS: dict[type[RequestBody], str] = {
    SavepointBody: "/v1/savepoints", StopBody: "/v1/stop", RescaleBody: "/v1/rescale", HandOverBody: "/v1/hand-over",
}  # fmt: skip


class Unreachable(ForkpointError):
    """A run's control port does not answer, or belongs to another process: its driver has ended."""


class DriverGone(JobFailed):
    """A driver ended, or was killed, before it answered a request that takes a while."""


class RunClient(ABC):
    """Sends requests to one run. Raises Unreachable if its driver has ended, and ForkpointError for refused requests."""

    poll_seconds = POLL_SECONDS

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:  # noqa: B027 - not every client has something to close
        """Close connections."""

    @abstractmethod
    def status(self) -> StatusMessage:
        """The run's status."""

    @abstractmethod
    def journal(self) -> JournalMessage:
        """The run's latest epochs, failures and savepoints."""

    @abstractmethod
    def metrics(self) -> MetricsMessage:
        """The run's metrics."""

    def savepoint(
        self, directory: str | None = None, label: str | None = None, note: str | None = None,
        *, skip_unreadable: bool = False, epoch: int | None = None,
    ) -> str:  # fmt: skip
        """Request a savepoint of the running job, of its newest epoch or an earlier one; returns the request's id."""
        return self._request(
            SavepointBody(directory=directory, label=label, note=note, skip_unreadable=skip_unreadable, epoch=epoch)
        )

    def stop(self, directory: str | None = None, *, drain: bool = False, skip_unreadable: bool = False) -> str:
        """Ask the job to end with a savepoint; returns the request's id."""
        return self._request(StopBody(directory=directory, drain=drain, skip_unreadable=skip_unreadable))

    def rescale(self, parallelism: int) -> str:
        """Ask the job to go on at another parallelism; returns the request's id."""
        return self._request(RescaleBody(parallelism=parallelism))

    def hand_over(self, successor: str) -> str:
        """Ask the run to hand the job over to one that waits for it; returns the request's id."""
        return self._request(HandOverBody(successor=successor))

    def wait_epoch(self, request_id: str, done: str, on_epoch: Callable[[str], None] | None = None) -> int:
        """Wait until the job has been rescaled or handed over; returns the answer's epoch. ``done``: which of them, in words.
        Raises JobFailed if it was refused or the driver died."""
        while True:
            try:
                answer = self.answer(request_id)
            except Unreachable as error:
                raise DriverGone(f"{error} before the job was {done}{self._log}") from None
            if answer.status == "COMPLETED" and answer.epoch is not None:
                return answer.epoch
            if answer.status == "FAILED":
                raise JobFailed(f"{self._who} was not {done}: {answer.failure}")
            if answer.doing is not None and on_epoch is not None:
                on_epoch(answer.doing)
            time.sleep(self.poll_seconds)

    @abstractmethod
    def cancel(self) -> None:
        """Ask the job to end without a savepoint."""

    @abstractmethod
    def _request(self, body: LongRequest) -> str:
        """Request what takes a while; returns the request's id."""

    @abstractmethod
    def answer(self, request_id: str) -> Answer:
        """How far a requested savepoint or rescaling has come."""

    def wait(
        self, request_id: str, on_progress: Callable[[SavepointProgress], None] | None = None,
        on_epoch: Callable[[str], None] | None = None,
    ) -> str:  # fmt: skip
        """Wait for a savepoint; returns its path. ``on_epoch`` receives a description of a long epoch that delays it. Raises
        JobFailed if the savepoint failed or the driver died."""
        while True:
            try:
                answer = self.answer(request_id)
            except Unreachable as error:
                raise DriverGone(f"{error} before it said that its savepoint was complete{self._log}") from None
            if answer.status == "COMPLETED" and answer.location is not None:
                return answer.location
            if answer.status == "FAILED":
                raise JobFailed(f"{self._who}: no savepoint was made: {answer.failure}")
            if answer.progress is not None and on_progress is not None:
                on_progress(answer.progress)
            if answer.progress is None and answer.doing is not None and on_epoch is not None:
                on_epoch(answer.doing)
            time.sleep(self.poll_seconds)

    def wait_gone(self, seconds: float) -> bool:
        """Wait until the driver has ended; False if the time has passed first."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                self.status()
            except Unreachable:
                return True
            time.sleep(self.poll_seconds)
        return False

    @property
    def _who(self) -> str:
        return f"run {self.endpoint.run} of job {self.endpoint.job!r}"

    @property
    def _log(self) -> str:
        return f"; its log is {self.endpoint.log}" if self.endpoint.log else ""


@cache
def _no_tls() -> SSLContext:
    """Control ports speak plain HTTP. Left alone, httpx loads the system's certificates for each client, which takes longer
    than a request."""
    import ssl

    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class ControlClient(RunClient):
    """The client of a run's control port, on this machine."""

    def __init__(self, endpoint: Endpoint, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        import httpx  # takes a fifth of the time of a command that finds no job running

        super().__init__(endpoint)
        self._unreachable, self._late = httpx.TransportError, httpx.TimeoutException
        self._http = httpx.Client(
            base_url=f"http://{endpoint.host}:{endpoint.port}",
            headers={"authorization": f"Bearer {endpoint.token}"},
            timeout=timeout_seconds,
            trust_env=False,  # no proxy for the loopback interface
            verify=_no_tls(),
        )

    def close(self) -> None:
        self._http.close()

    def status(self) -> StatusMessage:
        found = self._ask("GET", "/v1/status", StatusMessage)
        if found.run != self.endpoint.run:
            raise Unreachable(f"{self._who}: its port now belongs to run {found.run} of job {found.job!r}")
        return found

    def journal(self) -> JournalMessage:
        return self._ask("GET", "/v1/journal", JournalMessage)

    def metrics(self) -> MetricsMessage:
        return self._ask("GET", "/v1/metrics", MetricsMessage)

    def cancel(self) -> None:
        self._ask("POST", "/v1/cancel", StatusMessage)

    def _request(self, body: LongRequest) -> str:
        return self._ask("POST", _PATHS[type(body)], Accepted, body).request_id

    def answer(self, request_id: str) -> Answer:
        return self._ask("GET", f"/v1/savepoints/{request_id}", Answer)

    def _ask(self, method: str, path: str, expected: type[M], body: Message | None = None) -> M:
        content: dict[str, Any] = {} if body is None else {"content": body.model_dump_json(by_alias=True)}
        try:
            response = self._http.request(method, path, **content)
        except self._late:
            raise ForkpointError(
                f"{self._who} (process {self.endpoint.pid}) does not answer at port {self.endpoint.port}; it may be "
                f"overloaded: try again, or check whether the process is alive{self._log}"
            ) from None
        except self._unreachable:
            raise Unreachable(f"{self._who}: its driver (process {self.endpoint.pid}) is gone") from None
        try:
            if response.is_success:
                return expected.model_validate_json(response.content)
            error = ErrorMessage.model_validate_json(response.content).error
        except ValidationError:
            raise Unreachable(
                f"{self._who}: its port {self.endpoint.port} now belongs to something other than a forkpoint driver"
            ) from None
        if error.code == "unauthorized":  # the port's current owner has another token
            raise Unreachable(f"{self._who}: its port {self.endpoint.port} now belongs to another driver")
        raise ForkpointError(f"{self._who}: {error.message}")

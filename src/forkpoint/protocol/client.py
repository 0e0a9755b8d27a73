"""The client of a running job's driver, over any carrier."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from forkpoint.errors import ForkpointError, JobFailed
from forkpoint.protocol import messages as m

if TYPE_CHECKING:
    from forkpoint.protocol.endpoint import Endpoint

A = TypeVar("A", bound=m.Message)
L = TypeVar("L", bound=m.LongAnswer)
E = TypeVar("E", bound=m.EpochAnswer)


class Unreachable(ForkpointError):
    """A run's driver does not answer: it has ended, or its port belongs to another process."""


class DriverGone(JobFailed):
    """A driver ended, or was killed, before it answered a long request."""


@dataclass(frozen=True)
class Pending(Generic[L]):
    """An accepted request, by its id."""

    id: str
    kind: type[m.LongRequest[L]]


class Carrier(ABC):
    """Transports requests to one run. Raises Unreachable if its driver has ended, ForkpointError for refused requests."""

    poll_seconds = 0.1

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    @abstractmethod
    def ask(self, request: m.Request[A]) -> A:
        """The answer to a request, or the acceptance of a long request."""

    @abstractmethod
    def answer(self, pending: Pending[L]) -> L:
        """The progress or result of an accepted request."""

    @abstractmethod
    def is_gone(self) -> bool:
        """Whether the driver has ended."""

    def close(self) -> None:  # noqa: B027 - not every carrier has connections
        """Close connections."""

    @property
    def who(self) -> str:
        return f"run {self.endpoint.run} of job {self.endpoint.job!r}"

    @property
    def log(self) -> str:
        return f"; its log is {self.endpoint.log}" if self.endpoint.log else ""


class RunClient:
    """Sends requests to one run. Raises Unreachable if its driver has ended, ForkpointError for refused requests."""

    def __init__(self, carrier: Carrier) -> None:
        self.carrier = carrier
        self.endpoint = carrier.endpoint

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close connections."""
        self.carrier.close()

    def status(self) -> m.StatusMessage:
        """The run's status."""
        return self.carrier.ask(m.StatusRequest())

    def journal(self) -> m.JournalMessage:
        """The run's latest epochs, failures and savepoints."""
        return self.carrier.ask(m.JournalRequest())

    def metrics(self) -> m.MetricsMessage:
        """The run's metrics."""
        return self.carrier.ask(m.MetricsRequest())

    def cancel(self) -> None:
        """Request the end of the job without a savepoint."""
        self.carrier.ask(m.CancelRequest())

    def savepoint(
        self,
        directory: str | None = None,
        label: str | None = None,
        note: str | None = None,
        *,
        skip_unreadable: bool = False,
        epoch: int | None = None,
        self_contained: bool = False,
    ) -> Pending[m.SavepointAnswer]:
        """Request a savepoint of the newest or an earlier epoch."""
        return self._begin(m.SavepointRequest(directory, label, note, skip_unreadable, epoch, self_contained))

    def stop(
        self, directory: str | None = None, *, drain: bool = False, skip_unreadable: bool = False, self_contained: bool = False
    ) -> Pending[m.SavepointAnswer]:
        """Request the end of the job with a savepoint."""
        return self._begin(m.StopRequest(directory, drain, skip_unreadable, self_contained))

    def rescale(self, parallelism: int) -> Pending[m.RescaleAnswer]:
        """Request another parallelism."""
        return self._begin(m.RescaleRequest(parallelism))

    def hand_over(self, successor: str) -> Pending[m.HandOverAnswer]:
        """Request a hand-off of the job to a run that waits for it."""
        return self._begin(m.HandOverRequest(successor))

    def _begin(self, request: m.LongRequest[L]) -> Pending[L]:
        return Pending(self.carrier.ask(request).request_id, type(request))

    def wait(
        self,
        pending: Pending[m.SavepointAnswer],
        on_progress: Callable[[m.SavepointProgress], None] | None = None,
        on_epoch: Callable[[str], None] | None = None,
    ) -> str:
        """Wait for a savepoint; returns its path. ``on_epoch`` receives a description of a long epoch that delays it. Raises
        JobFailed if the savepoint failed or the driver died."""

        def under_way(answer: m.SavepointAnswer) -> None:
            if answer.progress is not None and on_progress is not None:
                on_progress(answer.progress)
            if answer.progress is None and answer.doing is not None and on_epoch is not None:
                on_epoch(answer.doing)

        answer = self._last_answer(pending, "it said that its savepoint was complete", under_way)
        if answer.location is None:
            raise JobFailed(f"{self.carrier.who}: no savepoint was made: {answer.failure}")
        return answer.location

    def wait_epoch(self, pending: Pending[E], done: str, on_epoch: Callable[[str], None] | None = None) -> int:
        """Wait until the job has been rescaled or handed over; returns the answer's epoch. ``done``: "rescaled" or "handed over",
        for messages. Raises JobFailed if the request was refused or the driver died."""

        def under_way(answer: E) -> None:
            if answer.doing is not None and on_epoch is not None:
                on_epoch(answer.doing)

        answer = self._last_answer(pending, f"the job was {done}", under_way)
        if answer.epoch is None:
            raise JobFailed(f"{self.carrier.who} was not {done}: {answer.failure}")
        return answer.epoch

    def _last_answer(self, pending: Pending[L], before: str, under_way: Callable[[L], None]) -> L:
        while True:
            try:
                answer = self.carrier.answer(pending)
            except Unreachable as error:
                raise DriverGone(f"{error} before {before}{self.carrier.log}") from None
            if answer.status != "IN_PROGRESS":
                return answer
            under_way(answer)
            time.sleep(self.carrier.poll_seconds)

    def wait_gone(self, seconds: float) -> bool:
        """Wait until the driver has ended; returns False on a timeout."""
        until = time.monotonic() + seconds
        while not self.carrier.is_gone():
            if time.monotonic() > until:
                return False
            time.sleep(self.carrier.poll_seconds)
        return True

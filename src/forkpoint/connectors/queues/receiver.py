"""Receives messages on a thread of the driver, so that planning never waits for a broker."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence

from forkpoint.connectors.queues.ledger import Due, Ledger
from forkpoint.errors import ForkpointError, JobFailed, StorageError, SystemUnavailable
from forkpoint.storage.base import open_storage

log = logging.getLogger("forkpoint.queues")

POLL_SECONDS = 0.05
BACK_OFF_SECONDS = (0.1, 0.3, 1.0, 3.0)  # the last one repeatedly
STEADY_SECONDS = 1.0  # a connection that has lasted so long resets the back-off
UNAVAILABLE_SECONDS = 30.0  # without a connection, before the source fails
CLOSE_SECONDS = 5.0


class Connection(ABC):
    """A connection that consumes messages, used by one thread. Every method raises SystemUnavailable if the connection is lost,
    and another ForkpointError if reconnecting would not help."""

    @abstractmethod
    def serve(self, seconds: float) -> None:
        """Receive messages into the ledger for this time."""

    @abstractmethod
    def acknowledge(self, due: Due) -> None:
        """Acknowledge deliveries. Returns once the broker confirms, if it does."""

    @abstractmethod
    def close(self) -> None:
        """Disconnect. Does not raise."""


class Receiver:
    """``connect`` connects and begins to consume into the ledger. ``storage``: a URL; ``directory`` below it has the messages of
    this source; ``own`` those of this receiver."""

    def __init__(
        self, name: str, ledger: Ledger, connect: Callable[[], Connection], storage: str, directory: str, own: str
    ) -> None:
        self._name = name
        self._ledger = ledger
        self._connect = connect
        self._storage = storage
        self._directory = directory
        self._own = own
        self._garbage: deque[str] = deque()
        self._failure: ForkpointError | None = None
        self._closed = threading.Event()
        self._seen = False
        self._thread = threading.Thread(target=self._run, name=f"forkpoint-{name}", daemon=True)
        self._thread.start()

    def ready(self) -> bool:
        """Whether it has ever been connected. Raises the source's failure."""
        if self._failure is not None:
            raise self._failure
        return self._seen

    def remove(self, paths: Sequence[str]) -> None:
        """Remove files of read messages asynchronously."""
        self._garbage.extend(paths)

    def close(self) -> None:
        """Stop after acknowledging all due messages."""
        self._closed.set()
        self._thread.join(CLOSE_SECONDS)

    # -- the thread

    def _run(self) -> None:
        try:
            self._clean()
            self._receive()
        except ForkpointError as error:
            self._failure = error
        except Exception as error:
            log.exception("%s: receiving failed", self._name)
            self._failure = JobFailed(f"{self._name}: receiving messages failed: {error!r}")
        self._remove_garbage()

    def _receive(self) -> None:
        tries, lost_at = 0, time.monotonic()
        while not self._closed.is_set():
            connected_at: float | None = None
            try:
                connection = self._connect()
                connected_at = time.monotonic()
                self._seen = True
                self._serve(connection)
            except SystemUnavailable as trouble:
                now = time.monotonic()
                if connected_at is not None and now > connected_at + STEADY_SECONDS:
                    tries, lost_at = 0, now
                elif now > lost_at + UNAVAILABLE_SECONDS:
                    raise
                log.warning("%s; connecting again", trouble)
                self._closed.wait(BACK_OFF_SECONDS[min(tries, len(BACK_OFF_SECONDS) - 1)])
                tries += 1

    def _serve(self, connection: Connection) -> None:
        try:
            while not self._closed.is_set():
                connection.serve(POLL_SECONDS)
                self._acknowledge(connection)
            self._acknowledge(connection)
        finally:
            self._ledger.lost()
            connection.close()

    def _acknowledge(self, connection: Connection) -> None:
        if due := self._ledger.due():
            connection.acknowledge(due)
            self._ledger.acknowledged(due)
        self._remove_garbage()

    # -- files

    def _clean(self) -> None:
        """Remove the files of earlier runs' receivers: their epochs were committed, or never will be."""
        try:
            storage = open_storage(self._storage)
            found = storage.list(self._directory)
            storage.delete_all([path for path in found if not path.startswith(f"{self._own}/")])
        except StorageError as error:
            log.warning("%s: messages that an earlier run stored are not removed: %s", self._name, error)

    def _remove_garbage(self) -> None:
        paths = [self._garbage.popleft() for _ in range(len(self._garbage))]
        if not paths:
            return
        try:
            open_storage(self._storage).delete_all(paths)
        except StorageError as error:  # the next start removes them
            log.warning("%s: messages that have been read are not removed: %s", self._name, error)

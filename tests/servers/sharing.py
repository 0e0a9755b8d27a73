"""One server for all processes of a test run, where tests neither stop it nor look at what others leave there."""

from __future__ import annotations

import fcntl
import os
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest

LONGEST_WAIT_S = 200.0  # less than a test may take


class _Stoppable(Protocol):
    def stop(self) -> None: ...


S = TypeVar("S", bound=_Stoppable)


@contextmanager
def shared(factory: pytest.TempPathFactory, name: str, start: Callable[[Path], S]) -> Iterator[S]:
    """The server that the first process to ask for it has started, in the directory given to ``start``. That process stops it
    once the others have ended. They get a copy by way of pickle."""
    place = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent  # of the run
    server = place / f"{name}.pickle"
    # Locks go with the process that holds them, however it ends.
    with open(f"{server}.users", "ab") as users, open(f"{server}.lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if server.exists():
            fcntl.flock(users, fcntl.LOCK_SH)
            fcntl.flock(lock, fcntl.LOCK_UN)
            yield pickle.loads(server.read_bytes())
            return
        started = start(factory.mktemp(name) / "server")
        try:
            server.write_bytes(pickle.dumps(started))
            fcntl.flock(lock, fcntl.LOCK_UN)
            yield started
            fcntl.flock(lock, fcntl.LOCK_EX)
            server.unlink()  # who comes later starts another one
            fcntl.flock(lock, fcntl.LOCK_UN)
            _wait_for(users)
        finally:
            started.stop()


def _wait_for(users: Any) -> None:
    until = time.monotonic() + LONGEST_WAIT_S
    while time.monotonic() < until:
        try:
            return fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.1)

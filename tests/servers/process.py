"""A server that tests start, kill, pause and start again: one process, with its data in a directory."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest


class Server(ABC):
    """Starts at once, and can be started again on the same data and port. Subclasses prepare ``directory`` and set what they
    need before they call ``super().__init__``."""

    user: str | None = None
    """Whom the process runs as, for servers that refuse to be root's; None for the tests' own user."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @abstractmethod
    def command(self) -> Sequence[str]:
        """What starts it, in the foreground."""

    @abstractmethod
    def serves(self) -> bool:
        """Whether it answers, as a client sees it. Does not raise."""

    def environment(self) -> Mapping[str, str]:
        return os.environ

    def start(self) -> None:
        """Start it and wait until it serves."""
        self._process = self.run(*self.command())
        while not self.serves():
            if self._process.poll() is not None:
                pytest.fail((self.directory / "log").read_text(errors="replace")[-3000:])
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill it, as a power failure would (SIGKILL, to it and its children)."""
        assert self._process is not None
        self._signal(signal.SIGKILL)
        self._process.wait()

    def wait(self) -> None:
        """Wait until it has ended by itself."""
        assert self._process is not None
        self._process.wait()

    def stop(self) -> None:
        """Kill it, for good."""
        if self._process is not None and self._process.poll() is None:
            self.kill()
        if self.user is not None:
            shutil.rmtree(self.directory, ignore_errors=True)

    def own_directory(self, directory: Path) -> Path:
        """A new directory that the server's user can reach: ``directory``, or one outside of pytest's, which are for one user."""
        if self.user is None:
            directory.mkdir(parents=True)
            return directory
        place = Path(tempfile.mkdtemp(prefix="forkpoint-server-"))
        shutil.chown(place, self.user)
        return place

    def pause(self) -> None:
        """Stop answering, without closing connections (SIGSTOP)."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def run(self, *command: str) -> subprocess.Popen[bytes]:
        """Run a program of the server's, with its output in ``directory / "log"``."""
        with open(self.directory / "log", "ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env=self.environment(),
                user=self.user if os.getuid() == 0 else None,
                start_new_session=True,
            )

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def free_port() -> int:
    """A free port that no client's connection gets, so that the server can have it again after a pause."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        lowest = int(file.read().split()[0])
    while True:
        port = random.randrange(lowest // 2, lowest)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def accepts(port: int) -> bool:
    """Whether something listens."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False

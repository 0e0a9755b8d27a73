"""A shop's jobs, and their server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from programs import ENVIRONMENT, SERVER, Python

OPERATE, READ = "operate-0123456789abcdef", "read-0123456789abcdef"
ORDERS = Path(__file__).with_name("orders.py")
HOSTILE = "<img src=x onerror=alert(1)>"
HOUR_MS = 3_600_000


class Shop:
    """A state root with two jobs, or those given by name, program and arguments, and its server. ``url``: the page's."""

    def __init__(self, directory: Path, jobs: Sequence[tuple[str, Path, *tuple[str, ...]]] = ()) -> None:
        self.root = directory / "state"
        self._environment = ENVIRONMENT | {"FORKPOINT_SERVER_TOKEN": OPERATE, "FORKPOINT_SERVER_READ_TOKEN": READ}
        since = str(time.time_ns() // 1_000_000 - HOUR_MS)
        orders = [(name, ORDERS, since, name) for name in ("orders", HOSTILE)]
        starts = [self._start("run", "-d", str(app), "--", *arguments) for _, app, *arguments in jobs or orders]
        self._server = self._start("server", "--port", "0")
        assert self._server.stdout is not None
        self.url = json.loads(self._server.stdout.readline())["url"]
        for process in starts:
            _result(process)

    def _start(self, *arguments: str) -> subprocess.Popen[str]:
        command = ["-m", "forkpoint.cli", "--state-root", self.root, "--output", "json", *arguments]
        return Python(
            command, loading=SERVER, env=self._environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def forkpoint(self, *arguments: str) -> dict:
        """The result of a command."""
        return _result(self._start(*arguments))

    def close(self) -> None:
        self._server.terminate()
        self._server.wait()
        for job in self.forkpoint("list")["jobs"]:
            with suppress(ProcessLookupError):
                os.kill(job["pid"], signal.SIGKILL)


def _result(process: subprocess.Popen[str]) -> dict:
    out, _ = process.communicate()
    assert process.returncode == 0, out
    return json.loads(out)

"""A real server, a process of its own."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx

from programs import ENVIRONMENT, SERVER, Python

OPERATE, READ = "operate-0123456789abcdef", "read-0123456789abcdef"
JOB = """
import forkpoint as fp

env = fp.StreamExecutionEnvironment.get_execution_environment()
env.enable_checkpointing(100)
numbers = env.from_source(fp.CounterSource(per_epoch=100), fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
counts = numbers.key_by(lambda n: n % 10, int).map_with_state(lambda n, c: ((n, c or 0), (c or 0) + 1), int).uid("counts")
counts.sink_to(fp.DiscardSink()).uid("out")
env.execute("counting")
"""


class Server:
    """``forkpoint server``, and the state root that it serves."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.root = directory / "root"
        self._environment = ENVIRONMENT | {"FORKPOINT_SERVER_TOKEN": OPERATE, "FORKPOINT_SERVER_READ_TOKEN": READ}
        self.process = self._start("--output", "json", "server", "--port", "0", *options)
        assert self.process.stderr is not None
        assert self.process.stdout is not None
        self.url = json.loads(self.process.stdout.readline())["url"]

    def _start(self, *arguments: str) -> subprocess.Popen[str]:
        command = ["-m", "forkpoint.cli", "--state-root", str(self.root), *arguments]
        pipe = subprocess.PIPE
        return Python(command, loading=SERVER, env=self._environment, cwd=self.directory, text=True, stdout=pipe, stderr=pipe)

    def forkpoint(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        """The result of a command, which ends with this exit code."""
        process = self._start("--output", "json", *arguments)
        out, err = process.communicate()
        assert process.returncode == code, f"{arguments}: {out}\n{err}"
        found: dict[str, Any] = json.loads(out)
        return found

    def text(self, *arguments: str) -> str:
        """What a command prints for people."""
        out, err = (process := self._start(*arguments)).communicate()
        assert process.returncode == 0, f"{arguments}: {out}\n{err}"
        return out

    def client(self, token: str | None = OPERATE, **headers: str) -> httpx.Client:
        given = headers if token is None else {"authorization": f"Bearer {token}", **headers}
        return httpx.Client(base_url=self.url, headers=given, trust_env=False, timeout=60, verify=False)

    def close(self) -> None:
        """End the server as Ctrl-C does."""
        self.process.terminate()
        self.process.communicate()


def result(client: httpx.Client, response: httpx.Response) -> Any:
    """The result of a request that was accepted."""
    assert response.status_code == 202, response.text
    path = f"/v1/requests/{response.json()['request-id']}"
    while (found := client.get(path).json())["status"] == "IN_PROGRESS":
        time.sleep(0.05)
    assert found["status"] == "COMPLETED", found
    return found["result"]

"""A file of SQL that runs as a job, in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

from programs import ENVIRONMENT, Python, run_python
from servers.kafka import Message


class SqlJob:
    """``with`` ends the job."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.process: Python | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()

    def write_file(self, text: str) -> None:
        (self.directory / "app.sql").write_text(text)

    def start(self, *options: str) -> None:
        with open(self.directory / "log", "ab") as log:
            arguments = ["-m", "forkpoint.cli", "sql", "-f", "app.sql", *options]
            self.process = Python(arguments, cwd=self.directory, env=ENVIRONMENT, stdout=log, stderr=log, start_new_session=True)

    def kill(self) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """Stop it with a savepoint."""
        done = self.command("stop", "app")
        assert done.returncode == 0, done.stderr
        assert self.process is not None
        assert self.process.wait(60) == 0, self.log

    def command(self, *arguments: str) -> Any:
        return run_python(
            ["-m", "forkpoint.cli", *arguments], cwd=self.directory, env=ENVIRONMENT, capture_output=True, text=True
        )

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()[-4000:]

    def wait_until(self, found: Callable[[], Any], wanted: Any) -> None:
        until = time.monotonic() + 60
        while (last := found()) != wanted:
            assert self.process is not None
            assert self.process.poll() is None, self.log
            assert time.monotonic() < until, (last, wanted, self.log)
            time.sleep(0.05)


def folded(records: Iterable[Message], key: str) -> dict[Any, Any]:
    """The current row of each key, as a reader of a topic of upserts sees it."""
    rows: dict[Any, Any] = {}
    for record in records:
        assert record.key is not None
        of = json.loads(record.key)[key]
        if record.value is None:
            del rows[of]
        else:
            rows[of] = json.loads(record.value)
    return rows

"""Drivers in the background: starting one, and its word about how that went."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from forkpoint.checkpoint.paths import log_file
from forkpoint.cli.failures import JOB_FAILED, Failure
from forkpoint.cli.settings import Settings
from forkpoint.cli.text import place
from forkpoint.driver.job_driver import JobDriver, Result
from forkpoint.storage.private import make_directories, open_new

TAIL_LINES = 20


class Reporter:
    """The driver's end of a pipe to the command that started it: a line for each step of the start, and one about its end."""

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)  # the engine's own processes must not hold it open
        self._pipe: TextIO | None = os.fdopen(fd, "w")
        self._lock = threading.Lock()  # steps are told by a thread that watches

    def starting(self, step: str) -> None:
        self._say({"step": step}, last=False)

    def running(self, driver: JobDriver) -> None:
        self._say(
            {
                "job": driver.job,
                "run": driver.run_id,
                "state": "running",
                "state_root": place(driver.history.storage.url),
            },
            last=True,
        )

    def ended(self, driver: JobDriver, result: Result) -> None:
        return None

    def failed(self, failure: Failure) -> None:
        """The program ended without a job that runs."""
        self._say(
            {"failure": {"code": failure.code, "message": failure.message, "exit_code": failure.exit_code}}, last=True
        )

    def _say(self, message: dict[str, Any], *, last: bool) -> None:
        with self._lock, suppress(BrokenPipeError):  # nobody waits any more
            if self._pipe is not None:
                pipe = self._pipe
                print(json.dumps(message), file=pipe, flush=True)
                if last:
                    self._pipe = None
                    pipe.close()


@dataclass(frozen=True)
class Started:
    """What a detached driver said about its start."""

    pid: int
    log: str
    report: dict[str, Any]

    @property
    def run(self) -> str:
        return str(self.report["run"])


def start_detached(
    settings: Settings, app: str, arguments: Sequence[str], on_step: Callable[[str], None] = lambda step: None
) -> Started | Failure:
    """Start ``forkpoint run`` with these arguments in a session of its own, and wait until its job runs or failed.

    ``on_step`` is told what the start has come to: "starting Spark", "restoring 3 of 8".
    """
    log = Path(settings.log_root) / log_file(f"{Path(app).stem[:60]}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
    make_directories(str(log.parent))
    reading, writing = os.pipe()
    command = [
        sys.executable, "-P", "-m", "forkpoint.cli", *_global(settings),
        "run", "--driver-report-fd", str(writing), "--driver-log", str(log), *arguments,
    ]  # fmt: skip
    with open(open_new(str(log), append=True), "ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            pass_fds=[writing], env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
    os.close(writing)
    report: dict[str, Any] = {}
    with open(reading) as pipe:
        for line in pipe:
            report = json.loads(line)
            if "step" in report:
                on_step(report["step"])
    if not report or "step" in report:
        code = process.wait()
        ended = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return Failure(
            "DriverDied", f"the driver (process {process.pid}) {ended} before its job ran; its log is {log}", JOB_FAILED,
            tail(log),
        )  # fmt: skip
    if "failure" in report:
        process.wait()
        failure = report["failure"]
        said_there = (tail(log) or "").removesuffix(f"Error: {failure['message']}").rstrip() or None
        return Failure(failure["code"], f"{failure['message']}\nThe log is {log}", failure["exit_code"], said_there)
    return Started(process.pid, str(log), report)


def tail(log: Path, lines: int = TAIL_LINES) -> str | None:
    """The last lines of a log, None if it is empty."""
    with open(log, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 64_000))
        kept = file.read().decode(errors="replace").rstrip().splitlines()[-lines:]
    return "\n".join(kept) or None


def _global(settings: Settings) -> list[str]:
    options = ["--verbose"] if settings.verbose else []
    return options if settings.given_root is None else [*options, "--state-root", settings.root]

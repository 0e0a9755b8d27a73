"""Starts drivers in the background, and reports on their start."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forkpoint import logs
from forkpoint.checkpoint.paths import log_file
from forkpoint.driver.run.job_driver import JobDriver
from forkpoint.operations.launch.failed import DriverFailed
from forkpoint.operations.launch.program_jobs import Announcer
from forkpoint.operations.launch.request import RunRequest
from forkpoint.operations.roots import StateRoot
from forkpoint.storage.places import plain_place
from forkpoint.storage.private import make_directories, open_new

TAIL_LINES = 20
_ERROR = "Error: "  # begins the last message of `forkpoint run`
FAILED, JOB_FAILED = 1, 3  # exit codes of `forkpoint run`


class Reporter(Announcer):
    """The driver's end of a pipe to the command that started it: a line for each step of the start, and one for its result.
    ``while_open``: its end of a second pipe, which the command holds open until it has requested the hand-off."""

    def __init__(self, fd: int, while_open: int | None = None) -> None:
        os.set_inheritable(fd, False)  # the engine's processes must not hold it open
        self._pipe = os.fdopen(fd, "w")
        self._while_open = while_open
        if while_open is not None:
            os.set_inheritable(while_open, False)
        self._lock = threading.Lock()  # another thread reports steps

    def starting(self, step: str) -> None:
        self._say({"step": step}, last=False)

    def begun(self, driver: JobDriver) -> None:
        if (pipe := self._while_open) is not None:
            driver.abandoned = lambda: bool(select.select([pipe], [], [], 0)[0])  # readable: its other end is closed
        self._say({"begun": driver.run_id}, last=False)

    def running(self, driver: JobDriver) -> None:
        root = plain_place(driver.history.storage.url)
        state = "standby" if driver.standby else "running"
        self._say({"job": driver.job, "run": driver.run_id, "state": state, "state_root": root}, last=True)

    def failing(self, driver: JobDriver, failure: str) -> None:
        root = plain_place(driver.history.storage.url)
        failing = {"job": driver.job, "run": driver.run_id, "state": "restarting", "state_root": root, "failing": failure}
        self._say(failing, last=True)

    def failed(self, code: str, message: str, exit_code: int) -> None:
        """The program ended without a running job."""
        self._say({"failure": {"code": code, "message": message, "exit_code": exit_code}}, last=True)

    def _say(self, message: dict[str, Any], *, last: bool) -> None:
        with self._lock, suppress(BrokenPipeError):  # the command has ended
            if not self._pipe.closed:
                print(json.dumps(message), file=self._pipe, flush=True)
                if last:
                    self._pipe.close()


@dataclass(frozen=True)
class Started:
    """A driver in the background whose job runs, or restarts repeatedly because of ``failure``. ``log``: the file with its
    output."""

    job: str
    run: str
    state: str
    state_root: str
    pid: int
    log: str
    failure: str | None = None


def start_detached(
    root: StateRoot,
    request: RunRequest,
    on_step: Callable[[str], None],
    *,
    verbose: bool = False,
    called: str | None = None,
    while_open: int | None = None,
) -> Started:
    """Start ``forkpoint run`` in a separate session, and wait until its job runs. Raises DriverFailed.

    ``on_step`` receives each step of the start: "starting Spark", "restoring 3 of 8". ``called``: the name of the log; by default
    the program's. ``while_open``: the read end of a pipe; a run that waits for a hand-off ends once the other end is closed.
    """
    name = Path(called or request.app).stem[:60]
    log = Path(root.log_directory) / log_file(f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
    make_directories(str(log.parent))
    reading, writing = os.pipe()
    command = [*driver_command(root, verbose), "--driver-report-fd", str(writing), "--driver-log", str(log)]
    fds = [writing] if while_open is None else [writing, while_open]
    command += [] if while_open is None else ["--while-open", str(while_open)]
    with open(open_new(str(log), append=True), "ab") as output:
        process = subprocess.Popen(
            [*command, *request.command_line],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=fds,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    os.close(writing)
    report: dict[str, Any] = {}
    run: str | None = None
    try:
        with open(reading) as pipe:
            for line in pipe:
                match json.loads(line):
                    case {"step": step}:
                        on_step(step)
                    case {"begun": begun}:
                        run = begun
                    case last:
                        report = last
    except BaseException as error:
        # It waits for a hand-off that is never requested, or this command no longer waits for it.
        if request.succeeds is not None or isinstance(error, SystemExit):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        raise
    if not report:
        code = process.wait()
        ended = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        message = f"the driver (process {process.pid}) {ended} before its job ran; its log is {log}"
        raise DriverFailed(message, "DriverDied", JOB_FAILED, tail(log), run)
    if "failure" in report:
        process.wait()
        failure = report["failure"]
        printed = _without_error(tail(log) or "", failure["message"]) or None
        raise DriverFailed(f"{failure['message']}\nThe log is {log}", failure["code"], failure["exit_code"], printed, run)
    failing = report.pop("failing", None)
    return Started(**report, pid=process.pid, log=str(log), failure=failing)


@contextmanager
def terminable() -> Iterator[None]:
    """Within this context, SIGTERM raises SystemExit on the main thread, so that a driver whose job does not run yet ends,
    too."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def on_signal(*_: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def driver_command(root: StateRoot, verbose: bool = False) -> list[str]:
    """The command line of a ``forkpoint run`` process, without the options of ``run``."""
    options = ["--as-given", *(["--verbose"] if verbose else [])]  # the configuration's are in the request
    options += [] if logs.chosen() == "text" else ["--log-format", logs.chosen()]
    options += [] if root.given is None else ["--state-root", root.place]
    return [sys.executable, "-P", "-m", "forkpoint.cli", *options, "run"]


def tail(log: Path, lines: int = TAIL_LINES) -> str | None:
    """The last lines of a log; None if it is empty."""
    with open(log, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 64_000))
        kept = file.read().decode(errors="replace").rstrip().splitlines()[-lines:]
    return "\n".join(kept) or None


def last_error(log: Path) -> str | None:
    """The first line of a driver's final error message; None if it has none."""
    for line in reversed((tail(log) or "").splitlines()):
        if line.startswith(_ERROR):
            return line.removeprefix(_ERROR)
        if (failure := logs.parse_failure(line)) is not None:
            return failure[0].partition("\n")[0]
    return None


def _without_error(text: str, message: str) -> str:
    """The end of a log, without the final error message."""
    *before, last = text.splitlines() or [""]
    if (failure := logs.parse_failure(last)) is not None:
        return "\n".join((*before, failure[1] or "")).rstrip()
    return text.removesuffix(f"{_ERROR}{message}").rstrip()

"""Keeps a job running: runs it in a child process, and restarts that when it dies."""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from types import FrameType
from typing import IO, Any

from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.manifest import RUN
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.driver.run.failures import Failures, next_delay_ms
from forkpoint.driver.run.job_driver import JobDriver
from forkpoint.driver.start.starter import Overtaken
from forkpoint.errors import ConfigError, EngineLost, JobFailed
from forkpoint.graph.options import RestartStrategy, RestoreOptions
from forkpoint.operations.launch.detached import driver_command
from forkpoint.operations.launch.recorded import PREFIX
from forkpoint.operations.launch.request import RunRequest
from forkpoint.operations.launch.starts import with_predecessor
from forkpoint.operations.roots import StateRoot
from forkpoint.protocol.endpoint import ENDPOINT
from forkpoint.protocol.registry import probe
from forkpoint.storage.places import plain_place

RESET_AFTER = timedelta(minutes=10)
_POLL_SECONDS = 0.05
_LOOK_MS = 500
_SUCCESSION_SECONDS = 60.0  # time without a live run, after a failed trial
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Begun:
    """A run that the process was about to start, and whose start it may have committed."""

    job: str
    run: str
    state_root: str


@dataclass(frozen=True)
class Ended:
    """The end of a supervised process. ``exit_code``: negative for a signal; ``error``: the name of its error. ``resumes``: its
    request was to resume from the job's newest checkpoint, of any run."""

    exit_code: int
    begun: tuple[Begun, ...] = ()
    error: str | None = None
    resumes: bool = False


@dataclass(frozen=True)
class Done:
    """The supervisor ends with this exit code: another run would end the same way."""

    exit_code: int


@dataclass(frozen=True)
class GivenUp:
    reason: str
    restarts: int


@dataclass(frozen=True)
class Restart:
    """``number``: the number of restarts since the last quiet time, including this one."""

    reason: str
    delay_ms: int
    number: int
    failures: Failures


def next_step(
    ended: Ended, strategy: RestartStrategy, failures: Failures, now_ms: int, rng: random.Random
) -> Done | GivenUp | Restart:
    """The reaction to the end of a supervised process. Pure.

    A restart follows only if a new process helps: the process or its Spark was killed. All other errors either repeat, or went
    through the job's own restart strategy before they ended it.
    """
    reason = _death(ended)
    if reason is None:
        return Done(ended.exit_code)
    delay_ms, failures = next_delay_ms(strategy, failures, JobFailed(reason), now_ms, rng)
    if delay_ms is None:
        return GivenUp(reason, len(failures.times_ms) - 1)
    return Restart(reason, delay_ms, len(failures.times_ms), failures)


def _death(ended: Ended) -> str | None:
    if ended.exit_code < 0:
        number = -ended.exit_code
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"  # a real-time signal
        return f"the run was killed by {name}"
    if ended.error == Overtaken.__name__ and ended.resumes:
        return "another run has led the job since"  # the next process stands by for it
    return "Spark terminated" if ended.error == EngineLost.__name__ else None


def supervise(
    request: RunRequest,
    strategy: RestartStrategy,
    on_restart: Callable[[Restart], None],
    *,
    on_handed_over: Callable[[str], None] = lambda run: None,
    state_root: str | None = None,
    options: Sequence[str] = (),
) -> int:
    """Run a program in a child process until it ends by itself; returns its exit code.

    If the child or its Spark is killed, ``strategy`` decides about a restart, which resumes from the newest checkpoint;
    ``on_restart`` is called before the delay. Call this on the main thread: Ctrl-C and SIGTERM are passed on to the child. If an
    upgrade hands the job over to another run, ``on_handed_over`` is called with it, and its program is supervised from then on:
    by a standby, because that run already has a process. On Linux the child dies with this process. ``options``: further options
    of `forkpoint run`. Raises JobFailed once the strategy allows no further restart.
    """
    root, supervisor = StateRoot(state_root), _Supervisor()
    request = with_predecessor(root, request)
    failures, rng = Failures(), random.Random()
    with supervisor.signals():
        while True:
            ended = supervisor.run([*driver_command(root), *options], request)
            if supervisor.interrupted is not None:
                return ended.exit_code if ended.exit_code >= 0 else 128 + supervisor.interrupted
            if (successor := supervisor.successor(ended)) is not None:
                on_handed_over(successor)
                request = RunRequest(f"{PREFIX}{successor}", resumed=True)
                continue
            match next_step(ended, strategy, failures, int(time.monotonic() * 1000), rng):
                case Done(code):
                    return code
                case GivenUp(reason, restarts):
                    raise JobFailed(f"gave up after {restarts} restarts; last: {reason}")
                case Restart(failures=failures) as restart:
                    request = _to_resume(request, ended)
                    on_restart(restart)
                    supervisor.pause(restart.delay_ms)
            if supervisor.interrupted is not None:
                return 128 + supervisor.interrupted


def _to_resume(request: RunRequest, ended: Ended) -> RunRequest:
    """The request for the next process. Once a run has committed its start, its options for restoring no longer apply, because a
    second restore of the savepoint would repeat all output since. From then on the job resumes from its newest checkpoint, of any
    run."""
    if request.resumed or not any(map(_has_started, ended.begun)):
        return request
    return replace(request, restore=RestoreOptions(), resumed=True, predecessor=None)


def _has_started(begun: Begun) -> bool:
    storage, paths = StateRoot(begun.state_root).storage, JobPaths(begun.job)
    newest = History(storage, paths).newest()
    if newest is not None and newest.run == begun.run:
        return True
    # Written right after the start, and kept when the run's manifests are removed.
    return RUN.load_if_whole(storage, paths.run_file(begun.run)) is not None


class _Supervisor:
    """The child process and its signals. ``interrupted``: the last signal that this process received."""

    def __init__(self) -> None:
        self.interrupted: int | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._for_child: deque[int] = deque()

    def run(self, command: Sequence[str], request: RunRequest) -> Ended:
        """Run the program in a child process, to its end."""
        # A file, not a pipe: processes that the program forked could hold a pipe open after the child's death.
        with tempfile.TemporaryFile("w+") as report:
            supervised = ["--supervisor", str(os.getpid()), str(report.fileno())]
            # A separate session, so that it does not receive Ctrl-C in a terminal twice, which would end it at once.
            self._child = subprocess.Popen(
                [*command, *supervised, *request.command_line],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=[report.fileno()],
            )
            self._pass_on()
            code = self._child.wait()
            self._child = None
            return replace(_read(report, code), resumes=request.restore.savepoint is None)

    def pause(self, delay_ms: int) -> None:
        """Wait until the delay has passed or a signal arrives."""
        end = time.monotonic() + delay_ms / 1000
        while self.interrupted is None and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _POLL_SECONDS))

    def successor(self, ended: Ended) -> str | None:
        """The run that the job was handed over to, once its trial is over; None if the job has ended."""
        if ended.exit_code or not ended.begun:
            return None
        begun = ended.begun[-1]
        storage, paths = StateRoot(begun.state_root).storage, JobPaths(begun.job)
        history, alive = History(storage, paths), time.monotonic()
        while self.interrupted is None and time.monotonic() - alive < _SUCCESSION_SECONDS:
            newest = history.newest()
            if newest is None or newest.run == begun.run:
                return None
            endpoint = ENDPOINT.load_if_whole(storage, paths.endpoint_file(newest.run))
            if endpoint is not None and probe(storage, endpoint) is not None:
                alive = time.monotonic()
                if newest.is_final:
                    return newest.run
            self.pause(_LOOK_MS)
        return None

    @contextmanager
    def signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.interrupted = number
        self._for_child.append(number)
        self._pass_on()

    def _pass_on(self) -> None:
        if self._child is not None:
            with suppress(IndexError):  # the signal handler may call this at any point of this loop
                while True:
                    self._child.send_signal(self._for_child.popleft())


def _read(report: IO[str], exit_code: int) -> Ended:
    report.seek(0)
    lines = [json.loads(line) for line in report]
    begun = tuple(Begun(**line["begun"]) for line in lines if "begun" in line)
    error = next((line["error"] for line in lines if "error" in line), None)
    return Ended(exit_code, begun, error)


class SupervisedReport:
    """In the child: reports its runs and its error to the supervisor. On Linux the child dies with its supervisor. Otherwise a
    new supervisor would find the job running in a process without a supervisor."""

    def __init__(self, supervisor: int, fd: int) -> None:
        if sys.platform == "linux":
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            raise ConfigError(f"the supervisor of this run, process {supervisor}, has ended")
        os.set_inheritable(fd, False)
        self._file = os.fdopen(fd, "w")

    def begun(self, driver: JobDriver) -> None:
        root = plain_place(driver.history.storage.url)
        self._say({"begun": {"job": driver.job, "run": driver.run_id, "state_root": root}})

    def failed(self, error: str) -> None:
        self._say({"error": error})

    def _say(self, message: dict[str, Any]) -> None:
        print(json.dumps(message), file=self._file, flush=True)

"""Replacing the program of a running job, and rolling back if the new one fails."""

from __future__ import annotations

import os
import shlex
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from forkpoint.checkpoint.manifest import RUN, Manifest
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.control.client import ControlClient, RunClient
from forkpoint.control.endpoint import ENDPOINT
from forkpoint.control.programs import NO_RECORD, Program, load_files, load_program
from forkpoint.control.registry import find_live, probe
from forkpoint.driver.declared import check_program
from forkpoint.driver.history import History
from forkpoint.errors import ForkpointError, NotFound
from forkpoint.graph.job import JobGraph
from forkpoint.graph.options import Autoscale, RestoreOptions, SavepointSchedule
from forkpoint.operations.checking import inspect_program
from forkpoint.operations.detached import FAILED, JOB_FAILED, DriverFailed, Started, start_detached, tail
from forkpoint.operations.observer import SILENT, Observer
from forkpoint.operations.packing import pack
from forkpoint.operations.recorded import PREFIX
from forkpoint.operations.request import RunRequest
from forkpoint.operations.roots import StateRoot
from forkpoint.operations.running import wait_for_savepoint, wait_gone
from forkpoint.pyflink import install
from forkpoint.savepoint.dispose import dispose_savepoint
from forkpoint.savepoint.reading import open_savepoint
from forkpoint.savepoint.restore_plan import RestorePlan

WATCH_EPOCHS = 3
TIMEOUT_SECONDS = 300.0
ENDING_SECONDS = 5.0
_POLL_SECONDS = 0.1

Outcome = Literal["upgraded", "rolled-back"]


@dataclass(frozen=True)
class Refused:
    """The program does not fit the job's state, as ``plan`` says; nothing was stopped."""

    job: str
    run: str
    plan: RestorePlan


@dataclass(frozen=True)
class Upgraded:
    """A job that was stopped with ``savepoint`` and resumed from it by ``run``, of the new program or, if rolled back, of the
    old one. ``downtime_ms``: from commit to commit, None before the first. ``failure``: why it was rolled back."""

    job: str
    outcome: Outcome
    run: str
    previous_run: str
    savepoint: str
    downtime_ms: int | None
    failure: str | None
    pid: int
    log: str


def upgrade(
    job: str, request: RunRequest, *, watch_epochs: int = WATCH_EPOCHS, timeout_seconds: float = TIMEOUT_SECONDS,
    state_root: str | None = None, verbose: bool = False, observer: Observer = SILENT,
) -> Upgraded | Refused:  # fmt: skip
    """Replace the program of a job; roll back if the new one fails.

    The program is first checked against the job's state. Then the job is stopped with a savepoint, and the program started
    from it. Its output is withheld until it has committed its first ``watch_epochs`` epochs (0: it only has to start). If
    it fails before that, or takes longer than ``timeout_seconds``, the old program resumes from the savepoint. Raises
    DriverFailed if that fails, too; the savepoint stays.
    """
    if request.pyflink:
        install()
    pack(request.ship_env, observer)
    root = StateRoot(StateRoot(state_root).place)
    with find_live(root.storage, job) as client:
        run = client.endpoint.run
        old = _recorded(root, job, run, request.app)
        program = inspect_program(request.app, request.arguments, None, root)
        plan = _plan(root, client, program.graph, request.restore, observer)
        if plan.refused:
            return Refused(job, run, plan)
        request = replace(
            request, savepoint_schedule=request.savepoint_schedule or _schedule(old),
            autoscale=request.autoscale or _autoscale(old), name=job if program.name != job else None,
        )  # fmt: skip
        observer.remark(_manual_restart(root, job, run, request))
        path = wait_for_savepoint(client, client.stop(), f"stopping {job}", observer)
        observer.remark(f"job {job} is stopped; its savepoint is {path}")
        wait_gone(client)
    replacement = _Replacement(root, job, run, path, verbose, observer, _rescaled_to(root, job))
    trial = watch_epochs or None
    try:
        with observer.steps(f"starting {request.app}") as report:
            request = replace(request, restore=replace(request.restore, savepoint=path), trial_epochs=trial)
            started = start_detached(root, request, report, verbose=verbose)
        replacement.watch(started, watch_epochs, timeout_seconds)
    except DriverFailed as problem:
        return replacement.roll_back(problem)
    return replacement.result("upgraded", started)


def _recorded(root: StateRoot, job: str, run: str, app: str) -> Program:
    """The program that the job's run was started with. Raises ForkpointError if it cannot be started again."""
    program = load_program(root.storage, job, run)
    if program is None:
        raise ForkpointError(
            f"a rollback would be impossible: run {run!r} of job {job!r} has no recorded program: {NO_RECORD}. "
            f"Upgrade it by hand: `forkpoint stop {job}`, then start {app} as you started the old one, or with "
            f"`forkpoint run -d -s latest {app}`"
        )
    load_files(root.storage, job, run, program)
    return program


def _plan(
    root: StateRoot, client: RunClient, graph: JobGraph, restore: RestoreOptions, observer: Observer
) -> RestorePlan:
    """The plan for restoring the job's state to the new program."""
    job, run, renames = client.endpoint.job, client.endpoint.run, restore.renames
    newest = History(root.storage, JobPaths(job)).newest()
    if newest is None:
        raise ForkpointError(
            f"run {run!r} of job {job!r} has only just started, so it has no state to resume from; try again in a moment"
        )
    plan = check_program(graph, newest, allow_non_restored=restore.allow_non_restored, renames=renames)
    if plan.refused and not check_program(graph, newest, allow_non_restored=True, renames=renames).refused:
        return _counted(client, graph, restore, observer)
    return plan


def _counted(client: RunClient, graph: JobGraph, restore: RestoreOptions, observer: Observer) -> RestorePlan:
    """The plan for a savepoint, which unlike a checkpoint counts entries: the program may lack states that have none."""
    observer.remark(f"checking whether states of {client.endpoint.job} that the program no longer has are empty")
    requested = client.savepoint(note="to check an upgrade")
    opened = open_savepoint(wait_for_savepoint(client, requested, "counting", observer))
    try:
        return check_program(graph, opened.savepoint, renames=restore.renames)
    finally:
        dispose_savepoint(opened, runs=[], savepoints=[], force=True)


def _schedule(program: Program) -> SavepointSchedule | None:
    recorded = program.options.get("savepoint_schedule")
    return SavepointSchedule(**recorded) if isinstance(recorded, dict) else None  # type: ignore[arg-type]


def _autoscale(program: Program) -> Autoscale | None:
    recorded = program.options.get("autoscale")
    return Autoscale(**recorded) if isinstance(recorded, dict) else None  # type: ignore[arg-type]


def _rescaled_to(root: StateRoot, job: str) -> int | None:
    """The parallelism that the job was rescaled to, if it was."""
    newest = History(root.storage, JobPaths(job)).newest()
    return newest.parallelism if newest is not None and newest.rescaled else None


def _manual_restart(root: StateRoot, job: str, run: str, request: RunRequest) -> str:
    command = f"forkpoint --state-root {shlex.quote(root.place)} run -d -s latest"
    new = [*request.options, request.app, *(["--", *request.arguments] if request.arguments else [])]
    return (
        f"stopping job {job} with a savepoint. If this command is interrupted, the savepoint stays, and you can start either "
        f"version from it:\n  new: {command} {shlex.join(new)}\n  old: {command} {PREFIX}{run}"
    )


@dataclass(frozen=True)
class _Replacement:
    """A job that was stopped with a savepoint so that another program resumes from it. ``run``: the old program's.
    ``rescaled_to``: what the old program resumes at; None for its own parallelism."""

    root: StateRoot
    job: str
    run: str
    savepoint: str
    verbose: bool
    observer: Observer
    rescaled_to: int | None

    @property
    def history(self) -> History:
        return History(self.root.storage, JobPaths(self.job))

    # -- the new version's trial

    def watch(self, started: Started, epochs: int, timeout: float) -> None:
        """Wait until the new version's trial is over. Raises DriverFailed if it failed."""
        until = time.monotonic() + timeout
        while epochs and not self._passed(started.run):
            ended = self._ended(started.run)
            if ended is not None and not self._passed(started.run):
                raise _failed(started, ended)
            if time.monotonic() > until:
                self._end(started)
                if self._passed(started.run):  # in the meantime
                    return
                raise _failed(started, f"it did not commit its first {epochs} epochs within {timeout:g} s")
            time.sleep(_POLL_SECONDS)

    def _passed(self, run: str) -> bool:
        newest = self.history.newest()
        return newest is not None and newest.run == run and newest.kind != "start" and not newest.withheld

    def _ended(self, run: str) -> str | None:
        """Why the run has ended; None while it runs."""
        storage, paths = self.root.storage, JobPaths(self.job)
        endpoint = ENDPOINT.load_if_whole(storage, paths.endpoint_file(run))
        if endpoint is not None and probe(self.root.storage, endpoint) is not None:
            return None
        record = RUN.load_if_whole(storage, paths.run_file(run))
        if record is None:
            return "it ended before its first epoch"
        if record.outcome is None:
            return "its driver was killed" if endpoint is not None else None
        return record.reason or f"it was {record.outcome} before its first epochs were committed"

    def _end(self, started: Started) -> None:
        """End a driver that this operation started: cancel it if it answers, else kill it."""
        endpoint = ENDPOINT.load_if_whole(self.root.storage, JobPaths(self.job).endpoint_file(started.run))
        if endpoint is None:
            return
        with ControlClient(endpoint) as client, suppress(ForkpointError):
            client.cancel()
            if client.wait_gone(ENDING_SECONDS):
                return
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)  # with its workers: it has its own session

    # -- rollback

    def roll_back(self, problem: DriverFailed) -> Upgraded:
        """Start the old program from the savepoint. What the new version withheld is never published."""
        if problem.log_tail is not None:
            self.observer.remark(problem.log_tail)
        self.observer.remark(f"the new version failed: {problem}\nrolling back to the program of run {self.run}")
        old = RunRequest(f"{PREFIX}{self.run}", restore=RestoreOptions(self.savepoint), parallelism=self.rescaled_to)
        try:
            with self.observer.steps(f"rolling back to run {self.run}") as report:
                started = start_detached(self.root, old, report, verbose=self.verbose, called=self.job)
        except DriverFailed as failed:
            message = (
                f"the old program did not start again either, so job {self.job!r} is not running: {failed}\nThe savepoint stays; "
                f"resume with: forkpoint --state-root {self.root.place} run -d -s {self.savepoint} {PREFIX}{self.run}"
            )
            raise DriverFailed(message, failed.code, FAILED, failed.log_tail) from None
        return self.result("rolled-back", started, str(problem))

    # -- result

    def result(self, outcome: Outcome, started: Started, failure: str | None = None) -> Upgraded:
        return Upgraded(
            self.job, outcome, started.run, self.run, self.savepoint, self._downtime_ms(started.run), failure, started.pid,
            started.log,
        )  # fmt: skip

    def _downtime_ms(self, run: str) -> int | None:
        """From the last commit before the savepoint to the run's first one; None if that is not there."""
        savepoint = open_savepoint(self.savepoint).savepoint
        last = self._loaded(savepoint.epoch) or savepoint
        mine = (self._loaded(epoch) for epoch in self.history.epochs())
        first = next((m.created_ms for m in mine if m is not None and m.run == run and m.kind != "start"), None)
        return None if first is None else max(0, first - last.created_ms)

    def _loaded(self, epoch: int) -> Manifest | None:
        """The manifest; None if it has been removed in the meantime."""
        try:
            return self.history.load(epoch)
        except NotFound:
            return None


def _failed(started: Started, message: str) -> DriverFailed:
    return DriverFailed(message, "JobFailed", JOB_FAILED, tail(Path(started.log)))

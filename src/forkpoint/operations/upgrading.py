"""Putting a new version of a program in the place of the one that runs, and going back if it fails."""

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
from forkpoint.checkpoint.savepoint_manifest import Savepoint
from forkpoint.control.client import ControlClient, Unreachable
from forkpoint.control.endpoint import ENDPOINT
from forkpoint.control.programs import Program, load_files, load_program
from forkpoint.control.registry import find_live
from forkpoint.driver.check import check_program
from forkpoint.driver.history import History
from forkpoint.errors import ForkpointError, NotFound
from forkpoint.graph.job import JobGraph
from forkpoint.graph.options import RestoreOptions, SavepointSchedule
from forkpoint.operations.checking import inspect_program
from forkpoint.operations.detached import FAILED, JOB_FAILED, DriverFailed, Started, start_detached, tail
from forkpoint.operations.observer import SILENT, Observer
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
    """The program does not fit the job's state, as ``plan`` says; the job runs on, nothing was stopped."""

    job: str
    run: str
    plan: RestorePlan


@dataclass(frozen=True)
class Upgraded:
    """A job that was stopped with ``savepoint`` and goes on from it in ``run``, of the new program or, rolled back, of the
    old one. ``downtime_ms``: from commit to commit, None while there is none. ``failure``: why it was rolled back."""

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
    """Put a program in the place of the one that a job runs; go back to that if it fails.

    The program is checked against the job's state first. Then the job is stopped with a savepoint and the program is started
    from it. What it writes is withheld until it has committed its first ``watch_epochs`` epochs (0: it only has to start). If
    it fails before that, or takes longer than ``timeout_seconds``, the old program goes on from the savepoint. Raises
    DriverFailed if that fails, too; the savepoint stands.
    """
    if request.pyflink:
        install()
    root = StateRoot(StateRoot(state_root).place)
    with find_live(root.storage, job) as client:
        run = client.endpoint.run
        old = _way_back(root, job, run, request.app)
        program = inspect_program(request.app, request.arguments, None, root)
        plan = _plan(root, client, program.graph, request.restore, observer)
        if plan.refused:
            return Refused(job, run, plan)
        schedule = request.savepoint_schedule or _schedule(old)
        request = replace(request, savepoint_schedule=schedule, name=job if program.name != job else None)
        observer.remark(_by_hand(root, job, run, request))
        path = wait_for_savepoint(client, client.stop(), f"stopping {job}", observer)
        observer.remark(f"job {job} is stopped; its savepoint is {path}")
        wait_gone(client)
    change = _Change(root, job, run, path, verbose, observer)
    trial = watch_epochs or None
    try:
        with observer.steps(f"starting {request.app}") as report:
            request = replace(request, restore=replace(request.restore, savepoint=path), trial_epochs=trial)
            started = start_detached(root, request, report, verbose=verbose)
        change.watch(started, watch_epochs, timeout_seconds)
    except DriverFailed as problem:
        return change.go_back(problem)
    return change.done("upgraded", started)


def _way_back(root: StateRoot, job: str, run: str, app: str) -> Program:
    """What the job's run was started with; its files are there."""
    program = load_program(root.storage, job, run)
    if program is None:
        raise ForkpointError(
            f"there would be no way back: run {run!r} of job {job!r} has no program on record, as an older release started it. "
            f"Do it by hand: `forkpoint stop {job}`, then `forkpoint run -d -s latest {app}`"
        )
    load_files(root.storage, job, run, program)
    return program


def _plan(
    root: StateRoot, client: ControlClient, graph: JobGraph, restore: RestoreOptions, observer: Observer
) -> RestorePlan:
    """What becomes of the job's state in the new program."""
    job, run, renames = client.endpoint.job, client.endpoint.run, restore.renames
    newest = History(root.storage, JobPaths(job)).newest()
    if newest is None:
        raise ForkpointError(
            f"run {run!r} of job {job!r} has only just begun, so there is nothing to go on from; try again in a moment"
        )
    plan = check_program(graph, newest, allow_non_restored=restore.allow_non_restored, renames=renames)
    if plan.refused and not check_program(graph, newest, allow_non_restored=True, renames=renames).refused:
        return _counted(client, graph, restore, observer)
    return plan


def _counted(client: ControlClient, graph: JobGraph, restore: RestoreOptions, observer: Observer) -> RestorePlan:
    """The plan by a savepoint of this moment: the program has no place for some states, which is fine if they have no
    entries. A checkpoint doesn't know that."""
    observer.remark(f"looking whether states of {client.endpoint.job} that the program has no place for are in use")
    asked = client.savepoint(note="looked at before an upgrade")
    opened = open_savepoint(wait_for_savepoint(client, asked, "counting", observer))
    try:
        return check_program(graph, opened.savepoint, renames=restore.renames)
    finally:
        dispose_savepoint(opened, runs=[], savepoints=[], force=True)


def _schedule(program: Program) -> SavepointSchedule | None:
    noted = program.options.get("savepoint_schedule")
    return SavepointSchedule(**noted) if isinstance(noted, dict) else None  # type: ignore[arg-type]


def _by_hand(root: StateRoot, job: str, run: str, request: RunRequest) -> str:
    again = f"forkpoint --state-root {shlex.quote(root.place)} run -d -s latest"
    new = [*request.options, request.app, *(["--", *request.arguments] if request.arguments else [])]
    return (
        f"stopping job {job} with a savepoint. Should this command be cut short, the savepoint stands, and either version "
        f"can be started from it:\n  new: {again} {shlex.join(new)}\n  old: {again} {PREFIX}{run}"
    )


@dataclass(frozen=True)
class _Change:
    """A job that was stopped with a savepoint so that another program goes on with it. ``run``: the old program's."""

    root: StateRoot
    job: str
    run: str
    savepoint: str
    verbose: bool
    observer: Observer

    @property
    def history(self) -> History:
        return History(self.root.storage, JobPaths(self.job))

    # -- the new version's first epochs

    def watch(self, started: Started, epochs: int, timeout: float) -> None:
        """Wait until the new version's trial is over. Raises DriverFailed if it went badly."""
        until = time.monotonic() + timeout
        while epochs and not self._passed(started.run):
            ended = self._ended(started.run)
            if ended is not None and not self._passed(started.run):
                raise _failed(started, ended)
            if time.monotonic() > until:
                self._end(started)
                if self._passed(started.run):  # it came about in this very moment
                    return
                raise _failed(started, f"it did not commit its first {epochs} epochs within {timeout:g} s")
            time.sleep(_POLL_SECONDS)

    def _passed(self, run: str) -> bool:
        newest = self.history.newest()
        return newest is not None and newest.run == run and newest.kind != "start" and not newest.withheld

    def _ended(self, run: str) -> str | None:
        """Why the run goes on no more; None while it does."""
        storage, paths = self.root.storage, JobPaths(self.job)
        endpoint = ENDPOINT.load_if_whole(storage, paths.endpoint_file(run))
        if endpoint is not None:
            with ControlClient(endpoint) as client:
                try:
                    client.status()
                    return None
                except Unreachable:
                    pass
                except ForkpointError:  # it is there, and busy
                    return None
        record = RUN.load_if_whole(storage, paths.run_file(run))
        if record is None:
            return "it ended before its first epoch"
        if record.outcome is None:
            return "its driver was killed" if endpoint is not None else None
        return record.reason or f"it was {record.outcome} before its first epochs were committed"

    def _end(self, started: Started) -> None:
        """End a driver that this operation started: as it should be if it still listens, else by force."""
        endpoint = ENDPOINT.load_if_whole(self.root.storage, JobPaths(self.job).endpoint_file(started.run))
        if endpoint is None:
            return
        with ControlClient(endpoint) as client, suppress(ForkpointError):
            client.cancel()
            if client.wait_gone(ENDING_SECONDS):
                return
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)  # its own session: its workers go with it

    # -- and back

    def go_back(self, problem: DriverFailed) -> Upgraded:
        """Start the old program from the savepoint. What the new version withheld is never seen."""
        if problem.log_tail is not None:
            self.observer.remark(problem.log_tail)
        self.observer.remark(f"the new version failed: {problem}\ngoing back to the program of run {self.run}")
        old = RunRequest(f"{PREFIX}{self.run}", restore=RestoreOptions(self.savepoint))
        try:
            with self.observer.steps(f"going back to run {self.run}") as report:
                back = start_detached(self.root, old, report, verbose=self.verbose, called=self.job)
        except DriverFailed as failed:
            said = (
                f"the old program did not start again either, so job {self.job!r} does not run: {failed}\nThe savepoint "
                f"{self.savepoint} stands: forkpoint --state-root {self.root.place} run -d -s {self.savepoint} "
                f"{PREFIX}{self.run}"
            )
            raise DriverFailed(said, failed.code, FAILED, failed.log_tail) from None
        return self.done("rolled-back", back, str(problem))

    # -- what came of it

    def done(self, outcome: Outcome, started: Started, failure: str | None = None) -> Upgraded:
        return Upgraded(
            self.job, outcome, started.run, self.run, self.savepoint, self._downtime_ms(started.run), failure, started.pid,
            started.log,
        )  # fmt: skip

    def _downtime_ms(self, run: str) -> int | None:
        """From the last commit before the savepoint to the first one of the run; None if it has none to be seen."""
        old = self._last_commit_ms(open_savepoint(self.savepoint).savepoint)
        mine = (self._loaded(epoch) for epoch in self.history.epochs())
        first = next((m.created_ms for m in mine if m is not None and m.run == run and m.kind != "start"), None)
        return None if first is None else max(0, first - old)

    def _last_commit_ms(self, savepoint: Savepoint) -> int:
        manifest = self._loaded(savepoint.epoch)
        return savepoint.created_ms if manifest is None else manifest.created_ms

    def _loaded(self, epoch: int) -> Manifest | None:
        """The manifest, None if it has been cleaned up meanwhile."""
        try:
            return self.history.load(epoch)
        except NotFound:
            return None


def _failed(started: Started, said: str) -> DriverFailed:
    return DriverFailed(said, "JobFailed", JOB_FAILED, tail(Path(started.log)))

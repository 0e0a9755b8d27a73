"""The command that puts a new version of a program in the place of the one that runs, and goes back if it fails."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from forkpoint.checkpoint.manifest import RUN, Manifest
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.checkpoint.savepoint_manifest import Savepoint
from forkpoint.cli import failures, text
from forkpoint.cli.check import inspected, plan_shown
from forkpoint.cli.detached import Started, start_detached, tail
from forkpoint.cli.failures import Failure
from forkpoint.cli.jobs import wait_for_savepoint, wait_gone
from forkpoint.cli.output import TextOutput
from forkpoint.cli.recorded import PREFIX
from forkpoint.cli.run import RunCommand, start_arguments, start_options
from forkpoint.cli.scheduling import schedule_arguments, schedule_of, schedule_options
from forkpoint.cli.settings import Settings, current
from forkpoint.control.client import ControlClient, Unreachable
from forkpoint.control.endpoint import load_endpoint
from forkpoint.control.programs import Program, load_files, load_program
from forkpoint.control.registry import find_live
from forkpoint.driver.check import check_program
from forkpoint.driver.history import History
from forkpoint.errors import ForkpointError, NotFound
from forkpoint.graph.job import JobGraph
from forkpoint.savepoint.dispose import dispose_savepoint
from forkpoint.savepoint.reading import open_savepoint
from forkpoint.savepoint.restore_plan import RestorePlan

WATCH_EPOCHS = 3
TIMEOUT_SECONDS = 300.0
ENDING_SECONDS = 5.0
_POLL_SECONDS = 0.1


@click.command(cls=RunCommand)
@click.option(
    "--watch-epochs", type=click.IntRange(0), default=WATCH_EPOCHS, show_default=True,
    help="How many epochs the new version has to commit before its output is shown and it stays; 0: it only has to start.",
)  # fmt: skip
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=TIMEOUT_SECONDS, show_default=True, metavar="SECONDS",
    help="How long it may take for that.",
)  # fmt: skip
@start_options
@schedule_options
@click.argument("job")
@click.argument("app", type=click.Path(exists=True, dir_okay=False, readable=True))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def upgrade(
    watch_epochs: int, timeout: float, every_ms: int | None, keep_last: int | None, keep_for_ms: int | None,
    job: str, app: str, args: Sequence[str], **options: Any,
) -> None:  # fmt: skip
    """Put the program APP in the place of the one that JOB runs; go back to that if APP fails.

    APP is checked against the job's state first; nothing is stopped if it doesn't fit (exit code 4). Then the job is
    stopped with a savepoint and APP is started from it. What it writes is withheld until it has committed its first
    epochs. If it fails before that, the old program goes on from the savepoint, as if APP had never run (exit code 3).
    A schedule of savepoints that the job was started with goes on, unless another is given.
    """
    settings = replace(current(), given_root=current().root)
    schedule = schedule_of(every_ms, keep_last, keep_for_ms)
    with find_live(settings.storage, job) as client:
        run = client.endpoint.run
        old: dict[str, Any] = dict(_way_back(settings, job, run, app).options)
        name = _check(settings, client, app, args, options["allow_non_restored_state"], options["renames"])
        how = [*start_arguments(options), *schedule_arguments(schedule or old.get("savepoint_schedule"))]
        how += ["--name", job] if name != job else []
        _say_how_by_hand(settings, job, run, [*how, app, *(["--", *args] if args else [])])
        path = wait_for_savepoint(client, client.stop(), f"stopping {job}")
        settings.output.remark(f"job {job} is stopped; its savepoint is {path}")
        wait_gone(client)
    change = Change(settings, job, run, path)
    trial = [] if watch_epochs == 0 else ["--trial-epochs", str(watch_epochs)]
    with settings.output.steps(f"starting {app}") as report:
        started = start_detached(settings, app, ["-s", path, *how, *trial, "--", app, *args], report)
    problem = started if isinstance(started, Failure) else change.watch(started, watch_epochs, timeout)
    if problem is None:
        assert isinstance(started, Started)
        change.show("upgraded", started, None)
    else:
        change.go_back(problem)


def _way_back(settings: Settings, job: str, run: str, app: str) -> Program:
    """What the job's run was started with; its files are there."""
    program = load_program(settings.storage, job, run)
    if program is None:
        raise ForkpointError(
            f"there would be no way back: run {run!r} of job {job!r} has no program on record, as an older release started it. "
            f"Do it by hand: `forkpoint stop {job}`, then `forkpoint run -d -s latest {app}`"
        )
    load_files(settings.storage, job, run, program)
    return program


def _check(
    settings: Settings, client: ControlClient, app: str, args: Sequence[str], allow: bool, renames: dict[str, str]
) -> str:
    """The name that APP gives its job. Ends the command if APP doesn't fit."""
    job, run = client.endpoint.job, client.endpoint.run
    found = inspected(app, args, settings, None)
    if isinstance(found, Failure):
        settings.output.failure(found.with_traceback() if settings.verbose else found)
        click.get_current_context().exit(found.exit_code)
    newest = History(settings.storage, JobPaths(job)).newest()
    if newest is None:
        raise ForkpointError(
            f"run {run!r} of job {job!r} has only just begun, so there is nothing to go on from; try again in a moment"
        )
    plan = check_program(found.graph, newest, allow_non_restored=allow, renames=renames)
    if plan.refused and not check_program(found.graph, newest, allow_non_restored=True, renames=renames).refused:
        plan = _counted(settings, client, found.graph, renames)
    if plan.refused:
        settings.output.result(*plan_shown(job, plan, {"outcome": "refused", "run": run}, ""))
        settings.output.remark(f"{app} does not fit the state of job {job}, which runs on; nothing was stopped")
        click.get_current_context().exit(failures.REFUSED)
    return found.name


def _counted(settings: Settings, client: ControlClient, graph: JobGraph, renames: dict[str, str]) -> RestorePlan:
    """The plan by a savepoint of this moment: APP has no place for some states, which may be, if they have no entries. A
    checkpoint doesn't know that."""
    settings.output.remark(
        f"looking whether states of {client.endpoint.job} that the program has no place for are in use"
    )
    opened = open_savepoint(
        wait_for_savepoint(client, client.savepoint(note="looked at before an upgrade"), "counting")
    )
    try:
        return check_program(graph, opened.savepoint, renames=renames)
    finally:
        dispose_savepoint(opened, runs=[], savepoints=[], force=True)


def _say_how_by_hand(settings: Settings, job: str, run: str, new: list[str]) -> None:
    again = f"forkpoint --state-root {shlex.quote(settings.root)} run -d -s latest"
    settings.output.remark(
        f"stopping job {job} with a savepoint. Should this command be cut short, the savepoint stands, and either version "
        f"can be started from it:\n  new: {again} {shlex.join(new)}\n  old: {again} {PREFIX}{run}"
    )


@dataclass(frozen=True)
class Change:
    """A job that was stopped with a savepoint so that another program goes on with it. ``run``: the old program's."""

    settings: Settings
    job: str
    run: str
    savepoint: str

    @property
    def history(self) -> History:
        return History(self.settings.storage, JobPaths(self.job))

    # -- the new version's first epochs

    def watch(self, started: Started, epochs: int, timeout: float) -> Failure | None:
        """Wait until the new version's trial is over: None if it went well."""
        until = time.monotonic() + timeout
        while epochs and not self._passed(started.run):
            ended = self._ended(started.run)
            if ended is not None and not self._passed(started.run):
                return Failure("JobFailed", ended, failures.JOB_FAILED, tail(Path(started.log)))
            if time.monotonic() > until:
                self._end(started)
                if self._passed(started.run):  # it came about in this very moment
                    break
                said = f"it did not commit its first {epochs} epochs within {timeout:g} s"
                return Failure("JobFailed", said, failures.JOB_FAILED, tail(Path(started.log)))
            time.sleep(_POLL_SECONDS)
        return None

    def _passed(self, run: str) -> bool:
        newest = self.history.newest()
        return newest is not None and newest.run == run and newest.kind != "start" and not newest.withheld

    def _ended(self, run: str) -> str | None:
        """Why the run goes on no more; None while it does."""
        storage, paths = self.settings.storage, JobPaths(self.job)
        endpoint = load_endpoint(storage, paths.endpoint_file(run))
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
        """End a driver that this command started: as it should be if it still listens, else by force."""
        endpoint = load_endpoint(self.settings.storage, JobPaths(self.job).endpoint_file(started.run))
        if endpoint is None:
            return
        with ControlClient(endpoint) as client, suppress(ForkpointError):
            client.cancel()
            if client.wait_gone(ENDING_SECONDS):
                return
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)  # its own session: its workers go with it

    # -- and back

    def go_back(self, problem: Failure) -> None:
        """Start the old program from the savepoint. What the new version withheld is never seen."""
        output = self.settings.output
        if problem.details is not None:
            output.remark(problem.details)
        output.remark(f"the new version failed: {problem.message}\ngoing back to the program of run {self.run}")
        with self.settings.output.steps(f"going back to run {self.run}") as report:
            back = start_detached(self.settings, self.job, ["-s", self.savepoint, f"{PREFIX}{self.run}"], report)
        if isinstance(back, Failure):
            said = (
                f"the old program did not start again either, so job {self.job!r} does not run: {back.message}\nThe savepoint "
                f"{self.savepoint} stands: forkpoint --state-root {self.settings.root} run -d -s {self.savepoint} "
                f"{PREFIX}{self.run}"
            )
            output.failure(replace(back, message=said, exit_code=failures.FAILED))
            click.get_current_context().exit(failures.FAILED)
        self.show("rolled-back", back, problem.message)
        click.get_current_context().exit(failures.JOB_FAILED)

    # -- what came of it

    def show(self, outcome: str, started: Started, failure: str | None) -> None:
        downtime_ms = self._downtime_ms(started.run)
        data: dict[str, Any] = {
            "job": self.job, "outcome": outcome, "run": started.run, "previous_run": self.run, "savepoint": self.savepoint,
            "downtime_ms": downtime_ms, "failure": failure, "pid": started.pid, "log": started.log,
        }  # fmt: skip
        what = "the new version runs" if outcome == "upgraded" else "the old version runs again"

        def show(out: TextOutput) -> None:
            out.line(f"job {self.job}, run {started.run}: {what} as process {started.pid}")
            took = "no epoch yet" if downtime_ms is None else f"{text.duration(downtime_ms)} from commit to commit"
            out.line(f"downtime: {took}")
            out.line(f"log: {started.log}")

        self.settings.output.result(data, show)

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

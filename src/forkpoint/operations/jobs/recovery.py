"""Recovers a job with a damaged newest checkpoint, and publishes the committed output of a dead run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.manifest import Manifest
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.driver.commit.skipped_records import Skipped
from forkpoint.driver.start.programs import NO_RECORD, load_program
from forkpoint.driver.start.recovery import RecoveryPlan, plan_recovery
from forkpoint.driver.start.recovery import recover as commit_recovery
from forkpoint.errors import ConfigError, ForkpointError, JobFailed, JobNotFound
from forkpoint.operations.launch.foreground import drive
from forkpoint.operations.launch.program_jobs import Announcer
from forkpoint.operations.launch.recorded import PREFIX
from forkpoint.operations.launch.request import RunRequest
from forkpoint.operations.observer import SILENT, Observer
from forkpoint.operations.roots import StateRoot
from forkpoint.protocol.registry import find_client, list_runs
from forkpoint.savepoint.catalog.listing import list_savepoints, readable


@dataclass(frozen=True)
class Recovery:
    """``plan``: the checked checkpoints and savepoints, the one to resume from, and the loss. ``start``: the manifest from which
    the job resumes; None without a recovery."""

    job: str
    plan: RecoveryPlan
    start: Manifest | None
    dry_run: bool

    @property
    def outcome(self) -> Literal["nothing-whole", "whole", "planned", "recovered"]:
        if self.plan.origin is None:
            return "nothing-whole"
        if self.plan.undamaged and not self.plan.fenced:
            return "whole"
        return "planned" if self.dry_run else "recovered"


def recover(job: str, *, dry_run: bool = False, state_root: str | None = None, observer: Observer = SILENT) -> Recovery:
    """Make a job resume from its newest undamaged checkpoint or savepoint, if its newest checkpoint is damaged.

    This discards later epochs: the job reads their input again and publishes their output again. ``dry_run``: change nothing.
    """
    storage, paths = StateRoot(state_root).storage, JobPaths(job)
    history = History(storage, paths)
    saved = readable(list_savepoints(storage, job))
    if not history.epochs() and not saved:
        raise JobNotFound(f"job {job!r} has neither checkpoints nor savepoints under {storage.url}")
    live = next((view for view in list_runs(storage, job) if view.is_live), None)
    if live is not None:
        raise ConfigError(f"job {job!r} is running (run {live.run} is {live.state}); cancel it first")
    with observer.progress(f"looking for a whole checkpoint of {job}") as report:
        plan = plan_recovery(history, saved, report)
    start = None
    if not dry_run and plan.origin is not None:
        with observer.progress(f"recovering {job}") as report:
            start = commit_recovery(history, plan, report)
    return Recovery(job, plan, start, dry_run)


@dataclass(frozen=True)
class Published:
    """A job with all its output published, up to its newest ``epoch``. ``run``: the run that committed this epoch. ``skipped``:
    the refused records."""

    job: str
    run: str
    epoch: int
    skipped: Sequence[Skipped] = ()


class _Steps(Announcer):
    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def exiting(self, message: str) -> None:
        self._observer.remark(message)


def publish(job: str, *, skip_refused: bool = False, state_root: str | None = None, observer: Observer = SILENT) -> Published:
    """Publish the committed output that a job's last run left because it was killed or gave up, without starting the job.

    This runs the recorded program in this process to get its sinks; call it on the main thread. It can be repeated.
    ``skip_refused``: write records that a sink's system refuses to files, and publish the others; otherwise raises OutputRefused.
    Raises ConfigError if the job is running, because it then publishes its output itself.
    """
    root = StateRoot(StateRoot(state_root).place)
    history = History(root.storage, JobPaths(job))
    newest = history.newest()
    if newest is None:
        raise JobNotFound(f"job {job!r} has no checkpoints under {root.storage.url}, so it has no output to publish")
    live = find_client(root.storage, job)
    if live is not None:
        live.close()
        raise ConfigError(f"job {job!r} is running (run {live.endpoint.run}), and publishes its output itself")
    skipped: list[Skipped] | None = [] if skip_refused else None
    request = RunRequest(f"{PREFIX}{_recorded_run(history, newest)}", name=job)
    ended = drive(request, _Steps(observer), state_root=root.place, work=lambda driver: driver.publish(skipped))
    error = ended.job_error or ended.program_error
    if error is not None:
        raise error
    if ended.code:
        raise JobFailed(f"job {job!r}: its program ended with exit code {ended.code} before its output was published")
    return Published(job, newest.run, newest.epoch, skipped or ())


def _recorded_run(history: History, newest: Manifest) -> str:
    """The last run with a recorded program."""
    at: Manifest | None = newest
    while at is not None:
        if load_program(history.storage, at.job, at.run) is not None:
            return at.run
        at = history.before(at.epoch)
    raise ForkpointError(
        f"job {newest.job!r}: run {newest.run} has no recorded program: {NO_RECORD}. Start its program again with `forkpoint "
        "run`: that first publishes the rest, even if it then refuses to start"
    )

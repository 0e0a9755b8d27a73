"""Recovering a job whose newest checkpoint is damaged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from forkpoint.checkpoint.manifest import Manifest
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.control.registry import list_runs
from forkpoint.driver.commit.history import History
from forkpoint.driver.start.recovery import RecoveryPlan, plan_recovery
from forkpoint.driver.start.recovery import recover as commit_recovery
from forkpoint.errors import ConfigError, JobNotFound
from forkpoint.operations.observer import SILENT, Observer
from forkpoint.operations.roots import StateRoot
from forkpoint.savepoint.catalog.listing import list_savepoints, readable


@dataclass(frozen=True)
class Recovery:
    """``plan``: what was checked, what the job resumes from, and what that loses. ``start``: the manifest from which the job
    resumes; None if nothing was done."""

    job: str
    plan: RecoveryPlan
    start: Manifest | None
    dry_run: bool

    @property
    def outcome(self) -> Literal["nothing-whole", "whole", "planned", "recovered"]:
        if self.plan.origin is None:
            return "nothing-whole"
        if self.plan.whole and not self.plan.fenced:
            return "whole"
        return "planned" if self.dry_run else "recovered"


def recover(job: str, *, dry_run: bool = False, state_root: str | None = None, observer: Observer = SILENT) -> Recovery:
    """Make a job resume from its newest whole checkpoint or savepoint, if its newest checkpoint is damaged.

    Later epochs are discarded: their input is read again, and their output published again. ``dry_run``: change nothing.
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

"""Publishing what a job has committed and a dead run left unpublished."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from forkpoint.checkpoint.manifest import Manifest
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.control.programs import NO_RECORD, load_program
from forkpoint.control.registry import find_client
from forkpoint.driver.commit.history import History
from forkpoint.driver.commit.skipping import Skipped
from forkpoint.errors import ConfigError, ForkpointError, JobFailed, JobNotFound
from forkpoint.operations.driving import Announcer
from forkpoint.operations.foreground import drive
from forkpoint.operations.observer import SILENT, Observer
from forkpoint.operations.recorded import PREFIX
from forkpoint.operations.request import RunRequest
from forkpoint.operations.roots import StateRoot


@dataclass(frozen=True)
class Published:
    """A job all of whose output up to ``epoch``, its newest one, is published. ``run``: the one that has committed that.
    ``skipped``: the records that were refused."""

    job: str
    run: str
    epoch: int
    skipped: Sequence[Skipped] = ()


class _Steps(Announcer):
    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def exiting(self, message: str) -> None:
        self._observer.remark(message)


def publish(
    job: str, *, skip_refused: bool = False, state_root: str | None = None, observer: Observer = SILENT
) -> Published:
    """Publish what a job has committed and its last run left unpublished, as it was killed or gave up, without starting the job.

    Runs the recorded program up to there, in this process; call it on the main thread. It can be repeated. ``skip_refused``:
    write records that a sink's system refuses to files, and publish the others; otherwise raises OutputRefused. Raises
    ConfigError if the job is running, as it publishes by itself then.
    """
    root = StateRoot(StateRoot(state_root).place)
    history = History(root.storage, JobPaths(job))
    newest = history.newest()
    if newest is None:
        raise JobNotFound(f"job {job!r} has no checkpoints under {root.storage.url}, so it has no output to publish")
    live = find_client(root.storage, job)
    if live is not None:
        live.close()
        raise ConfigError(f"job {job!r} is running (run {live.endpoint.run}), and publishes its output by itself")
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
    """The last run whose program is on record."""
    at: Manifest | None = newest
    while at is not None:
        if load_program(history.storage, at.job, at.run) is not None:
            return at.run
        at = history.before(at.epoch)
    raise ForkpointError(
        f"job {newest.job!r}: no program is on record for run {newest.run}: {NO_RECORD}. Start its program again with `forkpoint "
        "run`: that publishes what is left first, even if it then refuses to go on"
    )

"""Running jobs: list, savepoint, rescale, stop, cancel."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.checkpoint.unpublished import unpublished_of
from forkpoint.errors import ForkpointError, JobFailed
from forkpoint.operations.observer import SILENT, Observer
from forkpoint.operations.roots import StateRoot
from forkpoint.protocol.client import DriverGone, Pending, RunClient
from forkpoint.protocol.messages import SavepointAnswer
from forkpoint.protocol.registry import RunView, find_live, list_runs
from forkpoint.storage.places import absolute, plain_place

if TYPE_CHECKING:
    from forkpoint.protocol.endpoint import Endpoint
    from forkpoint.storage.base import Storage

ENDING_SECONDS = 60.0
REMARK_SECONDS = 20.0


@dataclass(frozen=True)
class SavepointTaken:
    """``savepoint``: its path or URL."""

    job: str
    run: str
    savepoint: str


@dataclass(frozen=True)
class Rescaled:
    """A job that runs at another parallelism from ``epoch`` on."""

    job: str
    run: str
    parallelism: int
    epoch: int


@dataclass(frozen=True)
class Stopped:
    """A run that ended with a savepoint."""

    job: str
    run: str
    savepoint: str
    drained: bool


@dataclass(frozen=True)
class Cancelled:
    """A run that ended without a savepoint."""

    job: str
    run: str


def list_jobs(*, ended: bool = False, state_root: str | None = None) -> list[RunView]:
    """Running jobs, jobs whose driver was killed, and jobs with unpublished output; with ``ended``, also all other runs. Newest
    first."""
    views = list_runs(StateRoot(state_root).existing)
    return [v for v in views if ended or v.may_be_live or (v.newest and (v.state == "lost" or v.unpublished is not None))]


def savepoint(
    job: str,
    directory: str | None = None,
    *,
    label: str | None = None,
    note: str | None = None,
    skip_unreadable: bool = False,
    self_contained: bool = False,
    state_root: str | None = None,
    observer: Observer = SILENT,
) -> SavepointTaken:
    """Take a savepoint of a job while it runs.

    The savepoint is a new directory below ``directory``, a path or URL; by default below the state root. ``skip_unreadable``:
    leave out entries that do not fit their types. ``self_contained``: do not refer to files of earlier savepoints. Raises
    JobNotFound, and JobFailed if the savepoint failed.
    """
    with find_live(StateRoot(state_root).storage, job) as client:
        pending = client.savepoint(
            _directory(directory), label, note, skip_unreadable=skip_unreadable, self_contained=self_contained
        )
        path = wait_for_savepoint(client, pending, f"savepoint of {job}", observer)
    return SavepointTaken(job, client.endpoint.run, path)


def rescale(job: str, parallelism: int, *, state_root: str | None = None, observer: Observer = SILENT) -> Rescaled:
    """Change the parallelism of a job while it runs. It builds stores while epochs run, then switches within moments.

    Raises JobNotFound, and JobFailed if the job keeps its parallelism: above its max parallelism, or during a trial.
    """
    what = f"rescaling {job} to {parallelism}"
    with find_live(StateRoot(state_root).storage, job) as client:
        pending = client.rescale(parallelism)
        with observer.progress(what):
            epoch = client.wait_epoch(pending, "rescaled", _remarks(client, what, observer))
    return Rescaled(job, client.endpoint.run, parallelism, epoch)


def stop(
    job: str,
    directory: str | None = None,
    *,
    drain: bool = False,
    skip_unreadable: bool = False,
    self_contained: bool = False,
    state_root: str | None = None,
    observer: Observer = SILENT,
) -> Stopped:
    """Stop a job with a savepoint; no epoch is committed after it. ``drain``: fire all timers and windows first. Other options:
    see ``savepoint``."""
    root = StateRoot(state_root)
    with find_live(root.storage, job) as client:
        pending = client.stop(_directory(directory), drain=drain, skip_unreadable=skip_unreadable, self_contained=self_contained)
        try:
            path = wait_for_savepoint(client, pending, f"stopping {job}", observer)
        except DriverGone as gone:
            raise _died_stopping(root.storage, client.endpoint, gone) from None
        wait_gone(client)
    return Stopped(job, client.endpoint.run, path, drain)


def _died_stopping(storage: Storage, endpoint: Endpoint, gone: DriverGone) -> JobFailed:
    """The error if a driver died during a stop, with the work that it had completed."""
    from forkpoint.savepoint.catalog.listing import list_savepoints, readable  # `forkpoint list` needs none of it

    history = History(storage, JobPaths(endpoint.job))
    newest = history.newest()
    if newest is None or newest.run != endpoint.run:
        return gone
    path = newest.metadata.get("savepoint") if newest.drained_early and not newest.withheld else None
    if path is None:
        saved = readable(list_savepoints(storage, endpoint.job))
        path = next((at for each, at in saved if (each.run, each.epoch) == (newest.run, newest.epoch)), None)
    if path is None:
        return gone
    left = unpublished_of(newest)
    return JobFailed(
        f"{gone}. Its savepoint is complete: {plain_place(str(path))}. "
        + ("Nothing is left to be published" if left is None else left.text)
    )


def cancel(job: str, *, state_root: str | None = None) -> Cancelled:
    """Cancel a job, without a savepoint. Its checkpoints stay: the next run resumes from the last one."""
    with find_live(StateRoot(state_root).storage, job) as client:
        client.cancel()
        wait_gone(client)
    return Cancelled(job, client.endpoint.run)


def wait_for_savepoint(client: RunClient, pending: Pending[SavepointAnswer], what: str, observer: Observer) -> str:
    """Wait for a requested savepoint; returns its path."""
    waiting = _remarks(client, what, observer)
    with observer.progress(what) as report:
        return plain_place(client.wait(pending, lambda progress: report(progress.done, progress.total), waiting))


def _remarks(client: RunClient, what: str, observer: Observer) -> Callable[[str], None]:
    """Reports a long epoch that delays a request, at most every ``REMARK_SECONDS``."""
    remarked = -REMARK_SECONDS

    def waiting(doing: str) -> None:
        nonlocal remarked
        now = time.monotonic()
        if now - remarked >= REMARK_SECONDS:
            remarked = now
            observer.remark(
                f"{what}: waiting for the end of {doing}. If it never ends: "
                f"`forkpoint cancel {shlex.quote(client.endpoint.job)}` discards the epoch and keeps the checkpoints"
            )

    return waiting


def wait_gone(client: RunClient) -> None:
    """Wait until the driver has ended. Raises ForkpointError after a minute."""
    if not client.wait_gone(ENDING_SECONDS):
        endpoint = client.endpoint
        doing = client.status().doing
        passed = f"{ENDING_SECONDS:.0f} s" if doing is None else f"{ENDING_SECONDS:.0f} s: it is at {doing}"
        log = f" and its log {endpoint.log}" if endpoint.log else ""
        process = f"process {endpoint.pid} on machine {endpoint.machine!r}"
        raise ForkpointError(f"job {endpoint.job!r} has not ended after {passed}; check {process}{log}")


def _directory(given: str | None) -> str | None:
    return None if given is None else absolute(given)

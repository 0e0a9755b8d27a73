"""Finds and removes leftovers of dead runs and interrupted commands below a state root.

It skips jobs with a run that may be alive, and recent files, because a run writes files before it is recorded. A job's file is a
leftover if no existing checkpoint needs it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from forkpoint.checkpoint.gc import needed_files, staged_epochs
from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.paths import JOBS, SAVEPOINT_FILE, SINKS, JobPaths, job_of, parse_mail_file
from forkpoint.driver.commit.claims import CLAIM
from forkpoint.errors import JobNotFound, NotFound, SavepointCorrupt
from forkpoint.operations.roots import StateRoot
from forkpoint.protocol.endpoint import is_endpoint
from forkpoint.protocol.registry import list_runs
from forkpoint.savepoint.catalog.listing import files_below, jobs_with_savepoints
from forkpoint.savepoint.format.directory import is_own_file, remove_partial
from forkpoint.savepoint.format.references import referred, stale
from forkpoint.storage.base import LocalStorage, Storage

Kind = Literal[
    "unfinished savepoint",
    "reference",
    "changelog",
    "snapshot",
    "source",
    "staging",
    "endpoint",
    "request",
    "sink claim",
    "temporary file",
]
DEFAULT_AGE = timedelta(hours=1)


@dataclass(frozen=True)
class Leftover:
    """A file, or the directory of an unfinished savepoint, relative to the state root. A reference is that of a savepoint which
    does not exist to files of another one, which go with it if nothing else needs them."""

    kind: Kind
    job: str | None
    path: str
    files: int
    bytes: int


@dataclass(frozen=True)
class Leftovers:
    """``skipped``: jobs that were not checked, with the reason. ``unpublished``: jobs with committed output that may be
    unpublished and is kept, with its description."""

    found: tuple[Leftover, ...]
    skipped: dict[str, str]
    unpublished: dict[str, str] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.found)


def gc(
    job: str | None = None, *, older_than: timedelta = DEFAULT_AGE, dry_run: bool = False, state_root: str | None = None
) -> Leftovers:
    """Remove the leftovers of a job's dead runs, or of all jobs', below the state root; returns them.

    Keeps files written within ``older_than``, and jobs that run, or may run elsewhere. ``dry_run``: remove nothing.
    """
    storage = StateRoot(state_root).existing
    if job is not None and not (storage.list(JobPaths(job).directory) or storage.list(JobPaths(job).savepoints)):
        raise JobNotFound(f"there is no job {job!r} under {storage.url}")
    leftovers = find_leftovers(storage, job, older_than)
    if not dry_run:
        remove_leftovers(storage, leftovers)
    return leftovers


def find_leftovers(storage: Storage, job: str | None = None, older_than: timedelta = DEFAULT_AGE) -> Leftovers:
    """The leftovers of one job or of all. Files are listed before runs, so that those of a new run are not included."""
    limit_ms = int((time.time() - older_than.total_seconds()) * 1000)
    paths = storage.list(JOBS if job is None else JobPaths(job).directory)
    partial = {name: list(_unfinished(storage, name)) for name in ([job] if job else jobs_with_savepoints(storage))}
    skipped: dict[str, str] = {}
    unpublished: dict[str, str] = {}
    for view in list_runs(storage, job):
        if view.may_be_live:
            skipped[view.job] = f"run {view.run} is {view.state}"
        elif view.unpublished is not None:
            unpublished[view.job] = view.unpublished.text
    by_job: dict[str, list[str]] = {}
    for path in paths:
        if (name := job_of(path)) is not None:
            by_job.setdefault(name, []).append(path)
    found: list[Leftover] = []
    for name in sorted({*by_job, *partial} - skipped.keys()):
        try:
            candidates = [*_of_checkpoints(storage, name, by_job.get(name, [])), *partial.get(name, [])]
        except SavepointCorrupt as error:  # unknown which files it needs
            skipped[name] = str(error)
            continue
        candidates += [("endpoint", path, [path]) for path in by_job.get(name, []) if is_endpoint(path)]
        candidates += [("request", path, [path]) for path in by_job.get(name, []) if parse_mail_file(path) is not None]
        found += [each for kind, path, files in candidates if (each := _aged(storage, kind, name, path, files, limit_ms))]
    if job is None:
        found += _claims(storage, set(by_job), limit_ms)
        found += _temporary(storage, older_than)
    return Leftovers(tuple(found), skipped, unpublished)


def remove_leftovers(storage: Storage, leftovers: Leftovers) -> None:
    """Remove the leftovers. If interrupted, a repetition finds the rest."""
    for each in leftovers.found:
        if each.kind == "temporary file":
            assert isinstance(storage, LocalStorage)
            storage.remove_temporary(each.path)
        elif each.kind == "unfinished savepoint":
            _remove_unfinished(storage, each.path)
        else:
            storage.delete(each.path)
            if each.kind == "reference":
                _remove_unfinished(storage, each.path.rsplit("/", 2)[0])


def _remove_unfinished(storage: Storage, directory: str) -> None:
    if not storage.exists(f"{directory}/{SAVEPOINT_FILE}"):  # otherwise it was completed in the meantime
        remove_partial(storage, directory)


_Candidate = tuple[Kind, str, list[str]]


def _of_checkpoints(storage: Storage, job: str, paths: list[str]) -> Iterator[_Candidate]:
    """Files that no manifest needs: of failed attempts and of epochs that were never committed."""
    history = History(storage, JobPaths(job))
    manifests = {epoch: history.load(epoch) for epoch in history.epochs()}
    needed = {path for manifest in manifests.values() for path in needed_files(manifest, manifests)}
    staged = staged_epochs(manifests.values())
    for path in paths:
        file = history.paths.parse(path)
        if file is None or file.area == "manifest" or file.area == "fence" or path in needed:
            continue
        if file.area == "staging" and file.epoch in staged:
            continue
        yield file.area, path, [path]


def _unfinished(storage: Storage, job: str) -> Iterator[_Candidate]:
    for directory, files in files_below(storage, JobPaths(job).savepoints).items():
        yield from (("reference", path, [path]) for path in stale(storage, directory))
        kept = set[str]() if SAVEPOINT_FILE in files else referred(storage, directory)
        if SAVEPOINT_FILE not in files and (unneeded := [file for file in files if is_own_file(file) and file not in kept]):
            yield "unfinished savepoint", directory, [f"{directory}/{file}" for file in unneeded]


def _aged(storage: Storage, kind: Kind, job: str | None, path: str, files: list[str], limit_ms: int) -> Leftover | None:
    """The leftover; None if it was modified recently or no longer exists."""
    try:
        if any(storage.modified_ms(file) > limit_ms for file in files):
            return None
        return Leftover(kind, job, path, len(files), sum(map(storage.size, files)))
    except NotFound:
        return None


def _claims(storage: Storage, jobs: set[str], limit_ms: int) -> Iterator[Leftover]:
    """Claims of jobs that have been deleted."""
    for path in storage.list(SINKS):
        try:
            claim = CLAIM.load(storage, path)
        except SavepointCorrupt:  # unknown owner
            continue
        if claim.job not in jobs and (each := _aged(storage, "sink claim", claim.job, path, [path], limit_ms)):
            yield each


def _temporary(storage: Storage, older_than: timedelta) -> Iterator[Leftover]:
    if isinstance(storage, LocalStorage):
        for path, size in storage.temporary_files(older_than):
            yield Leftover("temporary file", None, path, 1, size)

"""Removing what dead runs left."""

from __future__ import annotations

from datetime import timedelta

from forkpoint.checkpoint.paths import JobPaths
from forkpoint.control.leftovers import DEFAULT_AGE, Leftovers, find_leftovers, remove_leftovers
from forkpoint.errors import JobNotFound
from forkpoint.operations.roots import StateRoot


def gc(
    job: str | None = None, *, older_than: timedelta = DEFAULT_AGE, dry_run: bool = False, state_root: str | None = None
) -> Leftovers:
    """Remove what dead runs of a job, or of all jobs, left below the state root and nothing needs; return what that was.

    Keeps anything written within ``older_than``, and jobs that run, or may run elsewhere. ``dry_run``: remove nothing.
    """
    storage = StateRoot(state_root).existing
    if job is not None and not (storage.list(JobPaths(job).directory) or storage.list(JobPaths(job).savepoints)):
        raise JobNotFound(f"there is no job {job!r} under {storage.url}")
    leftovers = find_leftovers(storage, job, older_than)
    if not dry_run:
        remove_leftovers(storage, leftovers)
    return leftovers

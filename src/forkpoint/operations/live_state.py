"""State by name: that of a savepoint, or of a job's last committed epoch."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

from forkpoint.checkpoint.paths import JobPaths
from forkpoint.errors import ConfigError, SavepointNotFound
from forkpoint.operations.roots import StateRoot
from forkpoint.savepoint.catalog.listing import LATEST
from forkpoint.savepoint.catalog.naming import named_savepoint, savepoint_place
from forkpoint.savepoint.inspect.live import newest_state, while_gone
from forkpoint.state_processor import LiveState, SavepointReader, StateCollection, StateFollower
from forkpoint.storage.base import Storage

T = TypeVar("T")

JOB = "job:"
"""A name that begins with this is that of a job, even if a savepoint has it as its label."""


def open_live(job: str, *, state_root: str | None = None) -> LiveState:
    """The state of a job at its last committed epoch, while it runs or after it ended. Raises JobNotFound."""
    return newest_state(StateRoot(state_root).storage, job)


def follow_state(job: str, *, state_root: str | None = None, directory: str | None = None) -> StateFollower:
    """The state of a job for many reads, from a local copy that follows it; to be closed. ``directory``: for the copy."""
    return StateFollower(StateRoot(state_root).place, job, directory=directory)


def read_named(name: str, read: Callable[[StateCollection[Any]], T], state_root: str | None) -> T:
    """What ``read`` returns for the savepoint (path, URL, id, label or ``latest``) or the job of this name.

    A job's state is opened again if the job removes the files of that epoch meanwhile. Raises SavepointNotFound, JobNotFound
    after ``job:``, and ConfigError for the name of a job that is the label of a savepoint, too.
    """
    storage = StateRoot(state_root).storage
    job = job_of_name(storage, name)
    if job is None:
        return read(SavepointReader(named_savepoint(storage, name)))
    return while_gone(lambda: read(newest_state(storage, job)))


def job_of_name(storage: Storage, name: str) -> str | None:
    """The job that a name stands for; None if it is that of a savepoint."""
    if name.startswith(JOB) and not os.path.exists(name):
        return name.removeprefix(JOB)
    if name == LATEST or "/" in name or os.path.exists(name) or not _has_checkpoints(storage, name):
        try:
            savepoint_place(storage, name)
        except SavepointNotFound as error:
            raise SavepointNotFound(
                f"{error}. Nor is there a job of that name; `forkpoint list -a` lists jobs"
            ) from None
        return None
    try:
        savepoint_place(storage, name)
    except SavepointNotFound:
        return name
    raise ConfigError(
        f"{name!r} is a job and the label of a savepoint: write {JOB}{name} for the job, or the savepoint's id"
    )


def _has_checkpoints(storage: Storage, job: str) -> bool:
    try:
        return bool(storage.list(JobPaths(job).checkpoints))
    except ConfigError:  # cannot be the name of a job
        return False

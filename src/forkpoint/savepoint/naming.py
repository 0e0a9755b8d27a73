"""Savepoint ids, and savepoints by the names people give them: a path, a URL, an id, a label, or `latest`."""

from __future__ import annotations

import os
import time
import uuid
from dataclasses import dataclass

from forkpoint.checkpoint.manifest import Run
from forkpoint.checkpoint.savepoint_manifest import Savepoint
from forkpoint.errors import ConfigError, ForkpointError, SavepointNotFound
from forkpoint.savepoint.catalog import LATEST, Listed, jobs_with_savepoints, list_savepoints, the_one_with
from forkpoint.savepoint.reading import OpenedSavepoint, open_savepoint
from forkpoint.storage.base import Storage
from forkpoint.storage.places import absolute, plain_place


@dataclass(frozen=True)
class Found:
    """A directory below the state root that is meant to be a savepoint, and the job whose it is."""

    job: str
    path: str
    listed: Listed


def new_savepoint_id() -> str:
    """A unique id; ids sort by creation time."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:6]}"


def all_savepoints(storage: Storage, job: str | None = None) -> list[Found]:
    """What is in the default directories, of one job or of all, by job and age."""
    jobs = jobs_with_savepoints(storage) if job is None else [job]
    root = plain_place(storage.url.rstrip("/"))
    return [Found(name, f"{root}/{each.directory}", each) for name in jobs for each in list_savepoints(storage, name)]


def named_savepoint(storage: Storage, name: str) -> OpenedSavepoint:
    """Open the savepoint at a path or URL, or of this id or label below the state root; or the latest, if all are one
    job's."""
    return open_savepoint(savepoint_place(storage, name))


def savepoint_place(storage: Storage, name: str) -> str:
    """The path or URL of what ``named_savepoint`` opens. Raises SavepointNotFound, and ConfigError for a label, or
    `latest`, where savepoints of several jobs could be meant."""
    if "://" in name or "/" in name or os.sep in name or os.path.exists(name):
        return absolute(name)
    known = [(each.listed.savepoint, each) for each in all_savepoints(storage) if each.listed.savepoint is not None]
    if name == LATEST:
        matching = known
    else:
        matching = [each for each in known if each[0].id == name] or [each for each in known if each[0].label == name]
    if not matching:
        raise SavepointNotFound(
            f"there is no savepoint {name!r}: it is neither a path nor the id or label of one below {storage.url}; "
            "`forkpoint savepoints` lists those"
        )
    jobs = sorted({each.job for _, each in matching})
    if len(jobs) > 1:
        raise ConfigError(
            f"there are savepoints of the jobs {', '.join(map(repr, jobs))} for {name!r}; name the one by its id or path"
        )
    if name not in (LATEST, matching[0][0].id):
        the_one_with(matching, name)
    return max(matching, key=lambda each: (each[0].created_ms, each[0].epoch, each[0].id))[1].path


def known_savepoints(storage: Storage, runs: list[Run]) -> dict[str, tuple[Savepoint, str]]:
    """Savepoints by id with their places: those below the state root, and those elsewhere that runs started from."""
    known = {
        each.listed.savepoint.id: (each.listed.savepoint, each.path)
        for each in all_savepoints(storage)
        if each.listed.savepoint is not None
    }
    for run in runs:
        savepoint_id, path = run.parent.savepoint_id, run.parent.savepoint_path
        if savepoint_id is None or path is None or savepoint_id in known:
            continue
        try:
            opened = open_savepoint(path)
        except ForkpointError:  # gone, moved or damaged; the tree shows it as missing
            continue
        if opened.savepoint.id == savepoint_id:
            known[savepoint_id] = (opened.savepoint, plain_place(opened.url))
    return known

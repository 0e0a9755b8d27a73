"""Savepoint ids, and the lookup of savepoints by path, URL, id, label, or `latest`."""

from __future__ import annotations

import os
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forkpoint.errors import ConfigError, ForkpointError, SavepointNotFound
from forkpoint.savepoint.catalog.listing import Listed, jobs_with_savepoints, list_savepoints, matching, newest
from forkpoint.storage.places import absolute, plain_place

if TYPE_CHECKING:
    from forkpoint.checkpoint.manifest import Run
    from forkpoint.checkpoint.savepoint_manifest import Savepoint
    from forkpoint.savepoint.format.opened_savepoint import OpenedSavepoint
    from forkpoint.storage.base import Storage


@dataclass(frozen=True)
class Found:
    """A savepoint's directory in a job's default directory, with its full path."""

    job: str
    path: str
    listed: Listed


def new_savepoint_id() -> str:
    """A unique id; ids sort by creation time."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:6]}"


def all_savepoints(storage: Storage, job: str | None = None) -> list[Found]:
    """The savepoints in the default directories of one job or of all, by job and age."""
    jobs = jobs_with_savepoints(storage) if job is None else [job]
    root = plain_place(storage.url.rstrip("/"))
    return [Found(name, f"{root}/{each.directory}", each) for name in jobs for each in list_savepoints(storage, name)]


def _readable(storage: Storage) -> list[tuple[Savepoint, Found]]:
    return [(each.listed.savepoint, each) for each in all_savepoints(storage) if each.listed.savepoint is not None]


def named_savepoint(storage: Storage, name: str) -> OpenedSavepoint:
    """Open the savepoint with this path, URL, id or label; ``latest`` is the newest, if all belong to one job."""
    from forkpoint.savepoint.format.opened_savepoint import open_savepoint  # loads Arrow

    return open_savepoint(savepoint_place(storage, name))


def savepoint_place(storage: Storage, name: str) -> str:
    """The path or URL that ``named_savepoint`` opens. Raises SavepointNotFound, and ConfigError for a label or
    `latest` that matches savepoints of several jobs."""
    if "://" in name or "/" in name or os.sep in name or os.path.exists(name):
        return absolute(name)
    found = matching(_readable(storage), name)
    if not found:
        raise SavepointNotFound(
            f"there is no savepoint {name!r}: it is neither a path nor the id or label of a savepoint below {storage.url}; "
            "`forkpoint savepoints` lists them"
        )
    jobs = sorted({each.job for _, each in found})
    if len(jobs) > 1:
        raise ConfigError(f"{name!r} matches savepoints of the jobs {', '.join(map(repr, jobs))}; give an id or path")
    return newest(found, name).path


def known_savepoints(storage: Storage, runs: list[Run]) -> dict[str, tuple[Savepoint, str]]:
    """Savepoints and their locations by id: those below the state root, and those elsewhere that runs started from."""
    from forkpoint.savepoint.format.opened_savepoint import open_savepoint  # loads Arrow

    known = {savepoint.id: (savepoint, each.path) for savepoint, each in _readable(storage)}
    for run in runs:
        savepoint_id, path = run.parent.savepoint_id, run.parent.savepoint_path
        if savepoint_id is None or path is None or savepoint_id in known:
            continue
        try:
            opened = open_savepoint(path)
        except ForkpointError:  # deleted, moved or damaged; the tree shows it as missing
            continue
        if opened.savepoint.id == savepoint_id:
            known[savepoint_id] = (opened.savepoint, plain_place(opened.url))
    return known

"""The savepoints in a job's default directory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from forkpoint.checkpoint.paths import SAVEPOINT_FILE, SAVEPOINTS, JobPaths, unescape
from forkpoint.checkpoint.savepoint_manifest import Savepoint, load_savepoint
from forkpoint.errors import ConfigError, SavepointCorrupt, SavepointNotFound
from forkpoint.savepoint.label import check_label, labelled
from forkpoint.savepoint.reading import OpenedSavepoint, open_savepoint
from forkpoint.storage.base import Storage

LATEST = "latest"

T = TypeVar("T")


@dataclass(frozen=True)
class Listed:
    """One directory: a savepoint, or why it is none (damaged, or never finished: then ``unfinished``)."""

    directory: str
    savepoint: Savepoint | None
    problem: str | None = None
    unfinished: bool = False


def list_savepoints(storage: Storage, job: str) -> list[Listed]:
    """What is in the job's default directory, oldest first, what cannot be read at the end.

    ``directory`` is relative to the storage. Of each savepoint only savepoint.json is read.
    """
    return savepoints_below(storage, JobPaths(job).savepoints)


def savepoints_below(storage: Storage, directory: str) -> list[Listed]:
    """What is in the directories below one ("" is the storage's root), in the same order."""
    head = f"{directory}/" if directory else ""
    complete: dict[str, bool] = {}
    for path in storage.list(directory):
        name, _, inside = path[len(head) :].partition("/")
        if inside:
            complete[head + name] = complete.get(head + name, False) or inside == SAVEPOINT_FILE
    listed = [_listed(storage, directory, finished) for directory, finished in sorted(complete.items())]
    return sorted(listed, key=lambda each: (each.savepoint is None, each.savepoint.created_ms if each.savepoint else 0))


def _listed(storage: Storage, directory: str, finished: bool) -> Listed:
    if not finished:
        return Listed(directory, None, f"{directory} has no {SAVEPOINT_FILE}: its export did not finish", True)
    try:
        return Listed(directory, labelled(load_savepoint(storage, directory), storage, directory))
    except (SavepointCorrupt, SavepointNotFound) as error:
        return Listed(directory, None, str(error))


def jobs_with_savepoints(storage: Storage) -> list[str]:
    """The jobs that have a default directory of savepoints."""
    return sorted({unescape(path.split("/")[1]) for path in storage.list(SAVEPOINTS)})


def find_savepoint(storage: Storage, job: str, name: str = LATEST) -> OpenedSavepoint:
    """Open the savepoint of this id or label, or the latest one that can be read.

    Raises SavepointNotFound, which lists what there is, ConfigError for a label of several, and SavepointCorrupt.
    """
    listed = list_savepoints(storage, job)
    found = choose(listed, name)
    if found is None:
        there = ", ".join(each.savepoint.id for each in listed if each.savepoint is not None) or "none"
        raise SavepointNotFound(
            f"job {job!r} has no savepoint {name!r} below {storage.url}; there are: {there}. A savepoint that is "
            "elsewhere is named by its directory"
        )
    return open_savepoint(storage, found)


def choose(listed: Sequence[Listed], name: str) -> str | None:
    """The directory of the savepoint of this id, else of the one with this label; or of the newest. Pure.

    Raises ConfigError for a label of several.
    """
    readable = [(each.savepoint, each.directory) for each in listed if each.savepoint is not None]
    if name == LATEST:
        matching = readable
    else:
        matching = [each for each in readable if each[0].id == name]
        matching = matching or the_one_with([each for each in readable if each[0].label == name], name)
    newest = max(matching, key=lambda each: (each[0].created_ms, each[0].epoch, each[0].id), default=None)
    return None if newest is None else newest[1]


def the_one_with(bearers: list[tuple[Savepoint, T]], label: str) -> list[tuple[Savepoint, T]]:
    """What has the label, if it is no more than one. Older releases gave a label twice: nobody knows then which is meant."""
    if len(bearers) > 1:
        ids = ", ".join(sorted(savepoint.id for savepoint, _ in bearers))
        raise ConfigError(
            f"the label {label!r} is that of {len(bearers)} savepoints: {ids}; name the one by its id, or give the others other "
            "labels: forkpoint label ID LABEL"
        )
    return bearers


def free_label(storage: Storage, job: str, label: str) -> str:
    """The label, for another of the job's savepoints. Raises ConfigError if it can't be one, or is that of one already."""
    check_label(label)
    for bearer in bearers(storage, job, label):
        raise ConfigError(
            f"savepoint {bearer.id!r} of job {job!r} has the label {label!r} already; choose another one, or move it afterwards: "
            f"forkpoint label --force ID {label}"
        )
    return label


def bearers(storage: Storage, job: str, label: str) -> list[Savepoint]:
    """The job's savepoints with this label."""
    found = [each.savepoint for each in list_savepoints(storage, job)]
    return [savepoint for savepoint in found if savepoint is not None and savepoint.label == label]

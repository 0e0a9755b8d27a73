"""The savepoints in a job's default directory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from forkpoint.checkpoint.paths import SAVEPOINT_FILE, SAVEPOINTS, JobPaths, unescape, within
from forkpoint.checkpoint.savepoint_manifest import Savepoint, load_savepoint
from forkpoint.errors import ConfigError, SavepointCorrupt, SavepointNotFound
from forkpoint.savepoint.catalog.labels import check_label, labelled
from forkpoint.savepoint.format.references import is_reference

if TYPE_CHECKING:
    from forkpoint.savepoint.format.opened_savepoint import OpenedSavepoint
    from forkpoint.storage.base import Storage

LATEST = "latest"

T = TypeVar("T")


@dataclass(frozen=True)
class Listed:
    """A savepoint's directory; ``problem`` says why the savepoint is None: it is damaged or ``unfinished``."""

    directory: str
    savepoint: Savepoint | None
    problem: str | None = None
    unfinished: bool = False


def list_savepoints(storage: Storage, job: str) -> list[Listed]:
    """The savepoints in the job's default directory, oldest first, then the unreadable ones. Reads only savepoint.json."""
    return savepoints_below(storage, JobPaths(job).savepoints)


def savepoints_below(storage: Storage, directory: str) -> list[Listed]:
    """The savepoints in the subdirectories of a directory ("" is the storage's root), in the same order; without those that were
    deleted except for files that others refer to."""
    found = files_below(storage, directory)
    listed = [
        _listed(storage, below, SAVEPOINT_FILE in files)
        for below, files in sorted(found.items())
        if SAVEPOINT_FILE in files or not any(map(is_reference, files))
    ]
    return sorted(listed, key=lambda each: (each.savepoint is None, each.savepoint.created_ms if each.savepoint else 0))


def files_below(storage: Storage, directory: str) -> dict[str, list[str]]:
    """The files in each subdirectory of a directory, relative to the subdirectory."""
    found: dict[str, list[str]] = {}
    for path in storage.list(directory):
        name, _, inside = path.removeprefix(f"{directory}/").partition("/")
        if inside:
            found.setdefault(within(directory, name), []).append(inside)
    return found


def _listed(storage: Storage, directory: str, finished: bool) -> Listed:
    if not finished:
        return Listed(directory, None, f"{directory} has no {SAVEPOINT_FILE}: its export did not finish", True)
    try:
        return Listed(directory, labelled(load_savepoint(storage, directory), storage, directory))
    except (SavepointCorrupt, SavepointNotFound) as error:
        return Listed(directory, None, str(error))


def readable(listed: Iterable[Listed]) -> list[tuple[Savepoint, str]]:
    """The readable savepoints, with their directories."""
    return [(each.savepoint, each.directory) for each in listed if each.savepoint is not None]


def jobs_with_savepoints(storage: Storage) -> list[str]:
    """The jobs whose default directory has savepoints."""
    return sorted({unescape(path.split("/")[1]) for path in storage.list(SAVEPOINTS)})


def find_savepoint(storage: Storage, job: str, name: str = LATEST) -> OpenedSavepoint:
    """Open the savepoint with this id or label, or the latest readable savepoint.

    Raises SavepointNotFound listing the savepoints, ConfigError for an ambiguous label, and SavepointCorrupt.
    """
    listed = readable(list_savepoints(storage, job))
    found = matching(listed, name)
    if not found:
        known = ", ".join(savepoint.id for savepoint, _ in listed) or "none"
        raise SavepointNotFound(
            f"job {job!r} has no savepoint {name!r} below {storage.url}; there are: {known}. For a savepoint elsewhere, give "
            "its directory"
        )
    from forkpoint.savepoint.format.opened_savepoint import open_savepoint  # loads Arrow

    return open_savepoint(storage, newest(found, name))


def matching(savepoints: list[tuple[Savepoint, T]], name: str) -> list[tuple[Savepoint, T]]:
    """The savepoints with this id, else with this label; all for ``latest``."""
    if name == LATEST:
        return savepoints
    return [each for each in savepoints if each[0].id == name] or [each for each in savepoints if each[0].label == name]


def newest(found: list[tuple[Savepoint, T]], name: str) -> T:
    """The newest of the ``matching`` savepoints. Raises ConfigError if several have the label (older releases allowed it)."""
    if len(found) > 1 and name not in (LATEST, found[0][0].id):
        ids = ", ".join(sorted(savepoint.id for savepoint, _ in found))
        raise ConfigError(
            f"{len(found)} savepoints have the label {name!r}: {ids}; use an id, or relabel the others: forkpoint label ID LABEL"
        )
    return max(found, key=lambda each: each[0].age)[1]


def free_label(storage: Storage, job: str, label: str) -> str:
    """Returns the label, for a new savepoint of the job. Raises ConfigError if it is not valid or already in use."""
    for savepoint, _ in readable(list_savepoints(storage, job)):
        if savepoint.label == label:
            raise ConfigError(
                f"savepoint {savepoint.id!r} of job {job!r} already has the label {label!r}; choose another label, or move "
                f"it afterwards: forkpoint label --force ID {label}"
            )
    return check_label(label)

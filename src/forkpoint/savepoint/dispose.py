"""Deleting a savepoint: who still depends on it, and in which order its files go."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from forkpoint.checkpoint.manifest import Run
from forkpoint.checkpoint.paths import SAVEPOINT_FILE
from forkpoint.checkpoint.savepoint_manifest import Savepoint
from forkpoint.errors import StorageError
from forkpoint.savepoint.directory import remove_partial
from forkpoint.savepoint.reading import OpenedSavepoint


@dataclass(frozen=True)
class Dependents:
    """What stands on a savepoint: runs that started from it and have not ended, savepoints that grew from it."""

    runs: tuple[Run, ...]
    savepoints: tuple[Savepoint, ...]

    def __bool__(self) -> bool:
        return bool(self.runs or self.savepoints)

    def __str__(self) -> str:
        runs = [f"run {run.run!r} of job {run.job!r}, which has not ended" for run in self.runs]
        savepoints = [
            f"savepoint {savepoint.id!r}, {'made' if savepoint.edited else 'whose run started'} from it"
            for savepoint in self.savepoints
        ]
        return "; ".join([*runs, *savepoints])


def dependents(savepoint_id: str, runs: Iterable[Run], savepoints: Iterable[Savepoint]) -> Dependents:
    """Who depends on a savepoint, of the given records. Pure."""
    return Dependents(
        tuple(run for run in runs if run.parent.savepoint_id == savepoint_id and run.ended_ms is None),
        tuple(each for each in savepoints if each.parent.savepoint_id == savepoint_id and each.id != savepoint_id),
    )


def dispose_savepoint(
    opened: OpenedSavepoint, *, runs: Iterable[Run], savepoints: Iterable[Savepoint], force: bool = False
) -> list[str]:
    """Delete a savepoint's files and return their paths, relative to its directory; other files there stay.

    ``savepoint.json`` goes first: cut short at any point, what is left is no savepoint, and ``remove_partial`` or
    another export into the directory clears it away. Raises StorageError naming who depends on it, unless ``force``.
    """
    found = dependents(opened.savepoint.id, runs, savepoints)
    if found and not force:
        raise StorageError(
            f"savepoint {opened.savepoint.id!r} at {opened.url} is not disposed of, because of {found}; use --force to "
            "delete it nonetheless"
        )
    opened.storage.delete(opened.path(SAVEPOINT_FILE))
    listed = [file.path for state in opened.states() for file in state.files]
    for path in listed:
        opened.storage.delete(opened.path(path))
    left = remove_partial(opened.storage, opened.directory)
    head = f"{opened.directory}/" if opened.directory else ""
    return [SAVEPOINT_FILE, *listed, *(path.removeprefix(head) for path in left)]

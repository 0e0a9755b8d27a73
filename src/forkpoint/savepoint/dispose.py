"""Disposing of a savepoint: what still depends on it, and the order of deletion."""

from __future__ import annotations

from collections.abc import Iterable

from forkpoint.checkpoint.manifest import Run
from forkpoint.checkpoint.paths import SAVEPOINT_FILE
from forkpoint.checkpoint.savepoint_manifest import Savepoint
from forkpoint.errors import StorageError
from forkpoint.savepoint.directory import remove_partial
from forkpoint.savepoint.reading import OpenedSavepoint


def dependents(savepoint_id: str, runs: Iterable[Run], savepoints: Iterable[Savepoint]) -> list[str]:
    """Which records depend on a savepoint, for people: runs that started from it and have not ended, and savepoints that
    descend from it. Pure."""
    found = [
        f"run {run.run!r} of job {run.job!r}, which has not ended"
        for run in runs
        if run.parent.savepoint_id == savepoint_id and run.ended_ms is None
    ]
    found += [
        f"savepoint {each.id!r}, {'made' if each.edited else 'whose run started'} from it"
        for each in savepoints
        if each.parent.savepoint_id == savepoint_id and each.id != savepoint_id
    ]
    return found


def dispose_savepoint(
    opened: OpenedSavepoint, *, runs: Iterable[Run], savepoints: Iterable[Savepoint], force: bool = False
) -> list[str]:
    """Delete a savepoint's files and return their paths, relative to its directory; other files there stay.

    ``savepoint.json`` is deleted first: if interrupted, the rest is an unfinished savepoint, which ``remove_partial`` or
    another export into the directory removes. Raises StorageError naming its dependents, unless ``force``.
    """
    found = dependents(opened.savepoint.id, runs, savepoints)
    if found and not force:
        raise StorageError(
            f"savepoint {opened.savepoint.id!r} at {opened.url} was not disposed of, because of {'; '.join(found)}; use "
            "--force to delete it anyway"
        )
    opened.storage.delete(opened.path(SAVEPOINT_FILE))
    listed = [file.path for state in opened.states() for file in state.files]
    for path in listed:
        opened.storage.delete(opened.path(path))
    left = remove_partial(opened.storage, opened.directory)
    return [SAVEPOINT_FILE, *listed, *(path.removeprefix(f"{opened.directory}/") for path in left)]

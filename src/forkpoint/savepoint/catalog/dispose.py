"""Disposes of savepoints: finds their dependents, deletes files in a safe order, and expires scheduled savepoints."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from forkpoint.checkpoint.manifest import RUN, Run
from forkpoint.checkpoint.paths import JOBS, SAVEPOINT_FILE, parse_run_file
from forkpoint.checkpoint.savepoint_manifest import Savepoint
from forkpoint.errors import ForkpointError, StorageError
from forkpoint.savepoint.catalog.labels import is_labelled
from forkpoint.savepoint.catalog.listing import readable, savepoints_below
from forkpoint.savepoint.catalog.names import all_savepoints
from forkpoint.savepoint.format.directory import release, remove_empty, remove_partial
from forkpoint.savepoint.format.opened_savepoint import OpenedSavepoint, open_savepoint
from forkpoint.savepoint.format.references import referred
from forkpoint.storage.base import Storage

log = logging.getLogger("forkpoint")


def dependents(savepoint_id: str, runs: Iterable[Run], savepoints: Iterable[Savepoint]) -> list[str]:
    """Descriptions of a savepoint's dependents: active runs that started from it, and savepoints that descend from it. Pure."""
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
    """Delete a savepoint's files and return their paths, relative to its directory; other files in it stay.

    Files that other savepoints refer to stay until those are gone (see ``references``); so no savepoint loses files, even with
    ``force``. Deletes ``savepoint.json`` first: an interruption leaves an unfinished savepoint, which ``remove_partial`` or
    another export into the directory removes. Raises StorageError naming the dependents, unless ``force``.
    """
    found = dependents(opened.savepoint.id, runs, savepoints)
    if found and not force:
        raise StorageError(
            f"savepoint {opened.savepoint.id!r} at {opened.url} was not deleted, because of {'; '.join(found)}; use "
            "--force to delete it anyway"
        )
    opened.storage.delete(opened.path(SAVEPOINT_FILE))
    kept = referred(opened.storage, opened.directory)
    layers = (layer for file in opened.savepoint.files for layer in file.layers)
    listed = [layer.path for layer in layers if layer.savepoint is None and layer.path not in kept]
    for path in listed:
        opened.storage.delete(opened.path(path))
    left = remove_partial(opened.storage, opened.directory)
    remove_empty(opened.storage, opened.directory)
    unneeded = [*listed, *(path.removeprefix(f"{opened.directory}/") for path in left)]
    if others := list(opened.savepoint.referred):
        release(opened.storage, opened.directory, others)
    return [SAVEPOINT_FILE, *unneeded]


def dispose_claimed(opened: OpenedSavepoint, state_root: Storage, job: str) -> None:
    """Delete a savepoint that a job claimed and no longer needs, unless other jobs depend on it. Does not fail."""
    savepoint_id = opened.savepoint.id
    try:
        runs = [run for run in last_runs(state_root) if run.job != job]
        known = [each.listed.savepoint for each in all_savepoints(state_root) if each.listed.savepoint is not None]
        others = [each for each in known if each.job != job]
        if found := dependents(savepoint_id, runs, others):
            text = "job %r: the claimed savepoint %s was kept, because of %s; `forkpoint dispose` deletes it"
            log.warning(text, job, savepoint_id, "; ".join(found))
        else:
            dispose_savepoint(opened, runs=[], savepoints=[], force=True)
    except ForkpointError as error:
        log.warning("job %r: the claimed savepoint %s was not deleted: %s", job, savepoint_id, error)


@dataclass(frozen=True)
class Retention:
    """Keeps the newest ``keep_last`` savepoints, and savepoints younger than ``keep_for_ms``; without a rule, all."""

    keep_last: int | None = None
    keep_for_ms: int | None = None


def expired(savepoints: Iterable[Savepoint], retention: Retention, now_ms: int) -> list[Savepoint]:
    """The savepoints of one job that may be removed, oldest first. Pure.

    Excludes savepoints made on request or with a label or a note, and the newest.
    """
    if retention.keep_last is None and retention.keep_for_ms is None:
        return []
    ordered = sorted(savepoints, key=lambda each: each.age)
    scheduled = [each for each in ordered if each.schedule_ms is not None and not each.edited]
    ours = [each for each in scheduled if each.label is None and each.note is None]
    kept = {each.id for each in ours[-retention.keep_last :]} if retention.keep_last else set()
    if retention.keep_for_ms is not None:
        kept |= {each.id for each in ours if each.created_ms >= now_ms - retention.keep_for_ms}
    kept |= {each.id for each in (*ordered[-1:], *scheduled[-1:])}
    return [each for each in ours if each.id not in kept]


def remove_expired(
    state_root: Storage, target: Storage, directory: str, job: str, retention: Retention, now_ms: int
) -> list[str]:
    """Remove the job's expired savepoints from a directory, and return their ids.

    Unreadable savepoints stay. Deletes ``savepoint.json`` first, so an interruption leaves only files that `forkpoint gc`
    removes. Two processes may do this at the same time.
    """
    listed = readable(savepoints_below(target, directory))
    directories = {savepoint.id: below for savepoint, below in listed if savepoint.job == job}
    mine = [savepoint for savepoint, _ in listed if savepoint.job == job]
    candidates = expired(mine, retention, now_ms)
    if not candidates:
        return []
    runs = last_runs(state_root)
    known = [each.listed.savepoint for each in all_savepoints(state_root) if each.listed.savepoint is not None]
    removed = []
    for savepoint in candidates:
        if dependents(savepoint.id, runs, [*known, *mine]):
            continue
        below = directories[savepoint.id]
        try:
            opened = open_savepoint(target, below)  # again: it may have been labelled or removed since
            if opened.savepoint.id == savepoint.id and not is_labelled(opened.savepoint, target, below):
                dispose_savepoint(opened, runs=runs, savepoints=known)
                removed.append(savepoint.id)
        except ForkpointError as error:
            log.warning("job %r: scheduled savepoint %s was not removed: %s", job, savepoint.id, error)
    return removed


def last_runs(storage: Storage) -> list[Run]:
    """Each job's last run. Earlier runs have ended, even if they were killed and their end was not recorded."""
    newest: dict[str, Run] = {}
    for path in storage.list(JOBS):
        file = parse_run_file(path)
        if file is not None and file.kind == "run":
            run = RUN.load(storage, path)
            if run.job not in newest or run.generation > newest[run.job].generation:
                newest[run.job] = run
    return list(newest.values())

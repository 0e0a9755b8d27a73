"""Which of the savepoints that a schedule made are no longer wanted, and removing them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from forkpoint.checkpoint.manifest import RUN, Run
from forkpoint.checkpoint.paths import JOBS, parse_run_file
from forkpoint.checkpoint.savepoint_manifest import Savepoint
from forkpoint.errors import ForkpointError
from forkpoint.savepoint.catalog import jobs_with_savepoints, list_savepoints, savepoints_below
from forkpoint.savepoint.dispose import dependents, dispose_savepoint
from forkpoint.savepoint.label import is_labelled
from forkpoint.savepoint.reading import open_savepoint
from forkpoint.storage.base import Storage

log = logging.getLogger("forkpoint")


@dataclass(frozen=True)
class Retention:
    """Kept are the newest ``keep_last``, and those younger than ``keep_for_ms``: who fulfils either rule stays. Without a
    rule all stay."""

    keep_last: int | None = None
    keep_for_ms: int | None = None


def expired(
    savepoints: Iterable[Savepoint], retention: Retention, now_ms: int, held: Collection[str] = ()
) -> list[Savepoint]:
    """Those of one job's savepoints that may go, oldest first. Pure.

    Never one that was asked for, that people have given a label or a note, that is ``held`` (by id), or the newest.
    """
    if retention.keep_last is None and retention.keep_for_ms is None:
        return []
    ordered = sorted(savepoints, key=lambda each: (each.created_ms, each.epoch, each.id))
    scheduled = [each for each in ordered if each.schedule_ms is not None and not each.edited]
    ours = [each for each in scheduled if each.label is None and each.note is None]
    kept = {each.id for each in ours[-retention.keep_last :]} if retention.keep_last else set()
    if retention.keep_for_ms is not None:
        kept |= {each.id for each in ours if each.created_ms >= now_ms - retention.keep_for_ms}
    kept |= {each.id for each in (*ordered[-1:], *scheduled[-1:])}
    return [each for each in ours if each.id not in kept and each.id not in held]


def remove_expired(
    state_root: Storage, target: Storage, directory: str, job: str, retention: Retention, now_ms: int
) -> list[str]:
    """Remove the job's scheduled savepoints that are no longer wanted from a directory; the ids of those that are gone.

    What cannot be read, or looked at, stays. ``savepoint.json`` goes first, so nobody takes for whole what was cut short;
    `forkpoint gc` removes such rests. Two processes that do the same don't hinder each other.
    """
    listed = [each for each in savepoints_below(target, directory) if each.savepoint is not None]
    found = {each.savepoint.id: each for each in listed if each.savepoint is not None and each.savepoint.job == job}
    mine = [each.savepoint for each in found.values() if each.savepoint is not None]
    candidates = expired(mine, retention, now_ms)
    if not candidates:
        return []
    runs, known = last_runs(state_root), _known(state_root)
    gone = []
    for savepoint in candidates:
        if dependents(savepoint.id, runs, [*known, *mine]):
            continue
        place = found[savepoint.id].directory
        try:
            opened = open_savepoint(target, place)  # again: someone may have labelled it, or removed it
            if opened.savepoint.id == savepoint.id and not is_labelled(opened.savepoint, target, place):
                dispose_savepoint(opened, runs=runs, savepoints=known)
                gone.append(savepoint.id)
        except ForkpointError as error:
            log.warning("job %r: scheduled savepoint %s was not removed: %s", job, savepoint.id, error)
    return gone


def last_runs(storage: Storage) -> list[Run]:
    """Each job's last run. Earlier ones are over, also where they were killed and have no end on record."""
    newest: dict[str, Run] = {}
    for path in storage.list(JOBS):
        file = parse_run_file(path)
        if file is not None and file.kind == "run":
            run = RUN.load(storage, path)
            if run.job not in newest or run.generation > newest[run.job].generation:
                newest[run.job] = run
    return list(newest.values())


def _known(storage: Storage) -> Sequence[Savepoint]:
    """All savepoints in default directories."""
    listed = (each for job in jobs_with_savepoints(storage) for each in list_savepoints(storage, job))
    return [each.savepoint for each in listed if each.savepoint is not None]

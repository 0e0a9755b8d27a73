"""Exports a committed manifest as a savepoint: Parquet files with typed columns, then savepoint.json."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from forkpoint.checkpoint.manifest import MANIFEST, Manifest, Parent
from forkpoint.checkpoint.paths import SAVEPOINT_FILE, JobPaths
from forkpoint.checkpoint.savepoint_manifest import LeftOutState, Savepoint, SavepointOperator, needed_version
from forkpoint.errors import NotFound, SavepointCorrupt, StorageError
from forkpoint.savepoint.export.chain import StateFiles, changes_since, state_files
from forkpoint.savepoint.export.changes_task import ChangedRange, ChangedState, ExportChanges, export_changes
from forkpoint.savepoint.export.export_task import ExportedSlice, ExportSlice, StateFile, export_slice
from forkpoint.savepoint.export.increment import Increment, increment, with_changes
from forkpoint.savepoint.format.directory import NewSavepoint, release, remove_partial, written_by
from forkpoint.savepoint.format.opened_savepoint import OpenedSavepoint
from forkpoint.savepoint.format.references import refer, storage_around
from forkpoint.savepoint.format.sorting import cut_groups
from forkpoint.savepoint.format.source_logs import inline_logs
from forkpoint.savepoint.format.tasks import Progress, RunTasks, TaskRunner, no_progress
from forkpoint.savepoint.format.unreadable import SHOWN
from forkpoint.storage.base import Storage

log = logging.getLogger("forkpoint")


def export_savepoint(
    *,
    storage: Storage,
    manifest: Manifest,
    target: Storage,
    savepoint_id: str,
    run_tasks: RunTasks,
    label: str | None = None,
    note: str | None = None,
    parent: Parent | None = None,
    progress: Progress = no_progress,
    created_ms: int | None = None,
    code_version: str | None = None,
    spark_version: str | None = None,
    schedule_ms: int | None = None,
    skip_unreadable: bool = False,
    earlier: OpenedSavepoint | None = None,
) -> Savepoint:
    """Write the state at a committed manifest into the directory ``target``, and return its ``savepoint.json``.

    ``storage`` is the checkpoint storage; the files of the manifest's epoch must not be removed meanwhile. ``run_tasks``
    may run tasks anywhere that both storages' URLs can be opened. ``parent``: of the run; by default the manifest's.
    ``schedule_ms``: the interval of the schedule that requests the savepoint. ``skip_unreadable``: leave out entries that
    do not fit their types (earlier versions committed such values), and list them in ``savepoint.json``. ``earlier``: a savepoint
    of the job in the same parent directory, to whose files this one may refer; see ``increment``.

    Removes files of an earlier, unfinished export in ``target`` first, and writes ``savepoint.json`` last; without it the
    directory is not a savepoint. Raises AlreadyExists if there is a savepoint, StorageError, and SavepointCorrupt if a file
    of the checkpoint is damaged or an entry unreadable.
    """
    new = None if earlier is None else _on_top(storage, manifest, target, earlier, run_tasks, progress)
    left_out: list[LeftOutState] = []
    if new is None:
        new = NewSavepoint(target)
        left_out = _export_states(storage, manifest, new, run_tasks, progress)
    if left_out and not skip_unreadable:
        remove_partial(target)
        raise SavepointCorrupt(_unreadable(manifest, left_out))
    operators = _operators(new, manifest)
    savepoint = Savepoint(
        format_version=needed_version(operators),
        id=savepoint_id,
        job=manifest.job,
        run=manifest.run,
        epoch=manifest.epoch,
        created_ms=time.time_ns() // 1_000_000 if created_ms is None else created_ms,
        parent=manifest.parent if parent is None else parent,
        label=label,
        note=note,
        drained=manifest.drained,
        schedule_ms=schedule_ms,
        versions=written_by(spark_version),
        code_version=code_version,
        max_parallelism=manifest.max_parallelism,
        parallelism=manifest.parallelism,
        sources=inline_logs(storage, manifest.sources),
        watermarks=manifest.watermarks,
        input_watermarks=manifest.input_watermarks,
        operators=operators,
        left_out=left_out,
    )
    new.complete(savepoint)
    return savepoint


def _on_top(
    storage: Storage, manifest: Manifest, target: Storage, earlier: OpenedSavepoint, run_tasks: RunTasks, progress: Progress
) -> NewSavepoint | None:
    """The states as files of an earlier savepoint and changes; None if they are to be written as a whole."""
    saved, load = earlier.savepoint, JobPaths(manifest.job).manifest
    changes = changes_since(saved.epoch, saved.run, manifest, lambda epoch: MANIFEST.load(storage, load(epoch)))
    plan = None if changes is None or saved.job != manifest.job else increment(saved, changes, manifest)
    if plan is None:
        return None
    around, name = storage_around(target)
    needed = plan.referred(earlier.directory)
    refer(around, name, needed)
    try:
        if around.url != earlier.storage.url or not earlier.storage.exists(earlier.path(SAVEPOINT_FILE)):
            raise NotFound(f"savepoint {saved.id} has been deleted")
        new = NewSavepoint(target)
        _export_increment(storage, manifest, new, earlier, plan, run_tasks, progress)
    except BaseException as error:
        with suppress(StorageError):
            release(around, name, list(needed))
        if not isinstance(error, NotFound | SavepointCorrupt):
            raise
        log.warning("job %r: the savepoint does not refer to files of %s, but has all state: %s", manifest.job, saved.id, error)
        return None
    return new


def _export_increment(
    storage: Storage,
    manifest: Manifest,
    new: NewSavepoint,
    earlier: OpenedSavepoint,
    plan: Increment,
    run_tasks: RunTasks,
    progress: Progress,
) -> None:
    paths = JobPaths(manifest.job)
    infos = {(info.uid, info.name): info for info in manifest.states}
    changes: list[ExportChanges] = []
    for start, stop in plan.slices(manifest.parallelism):
        states = []
        for address, ranges in plan.ranges.items():
            mine = [each for each in ranges if start <= each.kg_start < stop and not each.is_full]
            files = (None if each.earlier is None else earlier.file(each.earlier) for each in mine)
            info = infos[address]
            states.append(
                ChangedState(
                    info,
                    tuple(ChangedRange(e.kg_start, e.kg_stop, f, new.path(info)) for e, f in zip(mine, files, strict=True)),
                )
            )
        urls = storage.url, new.target.url, earlier.storage.url
        changes.append(ExportChanges(start, stop, *urls, plan.changes.slice(start, stop), tuple(states)))
    whole = _plan_whole(storage, new, manifest, plan, lambda epoch: MANIFEST.load(storage, paths.manifest(epoch)))
    run = TaskRunner(run_tasks, progress, len(changes) + len(whole), manifest.parallelism)
    for task, written in zip(changes, run(export_changes, changes), strict=True):
        for state, parts in zip(task.states, written, strict=True):
            for each, part in zip(state.ranges, parts, strict=True):
                found = next(r.earlier for r in plan.ranges[state.info.uid, state.info.name] if r.kg_start == each.kg_start)
                if found is not None:
                    new.refer(state.info, with_changes(found, earlier.directory, part))
                else:
                    new.add(state.info, part.part, each.kg_start, each.kg_stop)
    if _add_written(new, whole, run(export_slice, whole)):
        raise SavepointCorrupt("some entries do not fit their types")


def _plan_whole(
    storage: Storage, new: NewSavepoint, manifest: Manifest, plan: Increment, load: Callable[[int], Manifest]
) -> list[ExportSlice]:
    """The tasks for everything that is not written as changes."""
    ranges = plan.whole()
    others = [info for info in manifest.states if (info.uid, info.name) not in plan.ranges]
    keyed = [info for info in others if not info.is_operator_state]
    if not ranges and not others:
        return []
    files = state_files(manifest, load)
    infos = {(info.uid, info.name): info for info in manifest.states}
    wanted = {each: [infos[address] for address in addresses] for each, addresses in ranges.items()}
    for each in cut_groups(manifest.max_parallelism, manifest.parallelism, files.entries) if keyed else []:
        wanted.setdefault(each, []).extend(keyed)
    tasks = []
    for (start, stop), states in wanted.items():
        share = files.entries * (stop - start) // manifest.max_parallelism
        parts = tuple(StateFile(state, new.path(state)) for state in states)
        tasks.append(ExportSlice(storage.url, new.target.url, start, stop, files.slice(start, stop), parts, share, chosen=True))
    return tasks + _operator_task(storage, new, manifest, files)


def _export_states(
    storage: Storage, manifest: Manifest, new: NewSavepoint, run_tasks: RunTasks, progress: Progress
) -> list[LeftOutState]:
    """Write the files of all states; returns the unreadable entries by state."""
    paths = JobPaths(manifest.job)
    files = state_files(manifest, lambda epoch: MANIFEST.load(storage, paths.manifest(epoch)))
    tasks = _plan(storage, new, manifest, files)
    return _add_written(new, tasks, TaskRunner(run_tasks, progress, len(tasks), manifest.parallelism)(export_slice, tasks))


def _add_written(new: NewSavepoint, tasks: Sequence[ExportSlice], results: Sequence[ExportedSlice]) -> list[LeftOutState]:
    """Record the files that tasks have written; returns the unreadable entries by state."""
    left_out: dict[tuple[str, str], LeftOutState] = {}
    for task, result in zip(tasks, results, strict=True):
        for file, part in zip(task.states, result.parts, strict=True):
            new.add(file.info, part, task.kg_start, task.kg_stop)
        for more in result.left_out:
            found = left_out.get((more.uid, more.state), more.replace(entries=0, examples=[]))
            examples = [*found.examples, *more.examples][:SHOWN]
            left_out[more.uid, more.state] = found.replace(entries=found.entries + more.entries, examples=examples)
    return list(left_out.values())


def _unreadable(manifest: Manifest, left_out: Sequence[LeftOutState]) -> str:
    lines = [
        f"  operator {state.uid!r}, state {state.state!r}, {entry.key}: {entry.why}"
        for state in left_out
        for entry in state.examples
    ]
    count = sum(state.entries for state in left_out)
    shown = "\n".join([*lines[:SHOWN], *([f"  and {count - SHOWN} more"] if count > SHOWN else [])])
    return (
        f"job {manifest.job!r}, epoch {manifest.epoch}: no savepoint was made, because {count} entries do not fit the "
        f"types of their states (earlier versions of forkpoint did not refuse them):\n{shown}\n"
        "Use --skip-unreadable (of `forkpoint savepoint` or `forkpoint stop`) to leave them out and list them in "
        "savepoint.json, or let the job overwrite or clear them first"
    )


def _plan(storage: Storage, new: NewSavepoint, manifest: Manifest, files: StateFiles) -> list[ExportSlice]:
    ranges = cut_groups(manifest.max_parallelism, manifest.parallelism, files.entries)
    # Part numbers of processing-time timers follow those of event-time timers.
    states = sorted(manifest.states, key=lambda state: state.kind == "timers-processing")
    keyed = [(state, [new.path(state) for _ in ranges]) for state in states if not state.is_operator_state]
    tasks = []
    for number, (start, stop) in enumerate(ranges):
        share = files.entries * (stop - start) // manifest.max_parallelism
        parts = tuple(StateFile(state, paths[number]) for state, paths in keyed)
        tasks.append(ExportSlice(storage.url, new.target.url, start, stop, files.slice(start, stop), parts, share))
    return tasks + _operator_task(storage, new, manifest, files)


def _operator_task(storage: Storage, new: NewSavepoint, manifest: Manifest, files: StateFiles) -> list[ExportSlice]:
    operator = tuple(StateFile(state, new.path(state)) for state in manifest.states if state.is_operator_state)
    return [ExportSlice(storage.url, new.target.url, 0, 0, files.operator_state(), operator, 0)] if operator else []


def _operators(new: NewSavepoint, manifest: Manifest) -> list[SavepointOperator]:
    """All operators of the graph, and removed operators whose state is kept."""
    names = {operator.uid: (operator.name, operator.kind) for operator in manifest.operators}
    for state in manifest.states:
        names.setdefault(state.uid, (state.uid, ""))
    return [new.operator(uid, *name, [s for s in manifest.states if s.uid == uid]) for uid, name in names.items()]

"""Exports a committed manifest as a savepoint: Parquet files with typed columns, then savepoint.json."""

from __future__ import annotations

import time
from collections.abc import Sequence

from forkpoint.checkpoint.manifest import MANIFEST, Manifest, Parent
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.checkpoint.savepoint_manifest import LeftOutState, Savepoint, SavepointOperator
from forkpoint.errors import SavepointCorrupt
from forkpoint.savepoint.export.chain import StateFiles, state_files
from forkpoint.savepoint.export.export_task import ExportSlice, StateFile, export_slice
from forkpoint.savepoint.format.directory import NewSavepoint, remove_partial, written_by
from forkpoint.savepoint.format.sorting import cut_groups
from forkpoint.savepoint.format.source_logs import inline_logs
from forkpoint.savepoint.format.tasks import Progress, RunTasks, TaskRunner, no_progress
from forkpoint.savepoint.format.unreadable import SHOWN
from forkpoint.storage.base import Storage


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
) -> Savepoint:
    """Write the state at a committed manifest into the directory ``target``, and return its ``savepoint.json``.

    ``storage`` is the checkpoint storage; the files of the manifest's epoch must not be removed meanwhile. ``run_tasks``
    may run tasks anywhere that both storages' URLs can be opened. ``parent``: of the run; by default the manifest's.
    ``schedule_ms``: the interval of the schedule that requests the savepoint. ``skip_unreadable``: leave out entries that
    do not fit their types (earlier versions committed such values), and list them in ``savepoint.json``.

    Removes files of an earlier, unfinished export in ``target`` first, and writes ``savepoint.json`` last; without it the
    directory is not a savepoint. Raises AlreadyExists if there is a savepoint, StorageError, and SavepointCorrupt if a file
    of the checkpoint is damaged or an entry unreadable.
    """
    new = NewSavepoint(target)
    left_out = _export_states(storage, manifest, new, run_tasks, progress)
    if left_out and not skip_unreadable:
        remove_partial(target)
        raise SavepointCorrupt(_unreadable(manifest, left_out))
    savepoint = Savepoint(
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
        operators=_operators(new, manifest),
        left_out=left_out,
    )
    new.complete(savepoint)
    return savepoint


def _export_states(
    storage: Storage, manifest: Manifest, new: NewSavepoint, run_tasks: RunTasks, progress: Progress
) -> list[LeftOutState]:
    """Write the files of all states; returns the unreadable entries by state."""
    paths = JobPaths(manifest.job)
    files = state_files(manifest, lambda epoch: MANIFEST.load(storage, paths.manifest(epoch)))
    tasks = _plan(storage, new, manifest, files)
    results = TaskRunner(run_tasks, progress, len(tasks), manifest.parallelism)(export_slice, tasks)
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
    operator = tuple(StateFile(state, new.path(state)) for state in states if state.is_operator_state)
    if operator:
        tasks.append(ExportSlice(storage.url, new.target.url, 0, 0, files.operator_state(), operator, 0))
    return tasks


def _operators(new: NewSavepoint, manifest: Manifest) -> list[SavepointOperator]:
    """All operators of the graph, and removed operators whose state is kept."""
    names = {operator.uid: (operator.name, operator.kind) for operator in manifest.operators}
    for state in manifest.states:
        names.setdefault(state.uid, (state.uid, ""))
    return [new.operator(uid, *name, [s for s in manifest.states if s.uid == uid]) for uid, name in names.items()]

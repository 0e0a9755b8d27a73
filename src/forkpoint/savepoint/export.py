"""From a committed manifest to a savepoint: typed Parquet files that anything can read, then savepoint.json."""

from __future__ import annotations

import time
from collections.abc import Sequence

from forkpoint.checkpoint.manifest import MANIFEST, Manifest, Parent
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.checkpoint.savepoint_manifest import LeftOutState, Savepoint, UnreadableEntry
from forkpoint.errors import SavepointCorrupt
from forkpoint.savepoint.chain import StateFiles, state_files
from forkpoint.savepoint.directory import remove_partial
from forkpoint.savepoint.export_task import ExportSlice, StateFile, export_slice
from forkpoint.savepoint.slices import cut_groups
from forkpoint.savepoint.tasks import Progress, RunTasks, no_progress
from forkpoint.savepoint.unreadable import SHOWN, LeftOut
from forkpoint.savepoint.writing import NewSavepoint, OperatorStates, written_by
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
    """Write the state at a committed manifest into the directory ``target`` and return what it holds.

    ``storage`` is the checkpoint storage; the files of the manifest's epoch must stay while this runs. ``run_tasks``
    runs a function of bytes on each argument, anywhere that both storages' URLs can be opened. ``parent`` is what the
    run came from (the manifest's, if None). ``progress`` is told tasks done and tasks in all; if it raises, the export
    ends. Files that an earlier, unfinished export left in ``target`` are removed first.

    ``schedule_ms``: how often the schedule that asks for it does. ``skip_unreadable``: leave out what does not fit its type
    (earlier versions committed such values), and list it in ``savepoint.json``.

    The directory is a savepoint only once ``savepoint.json`` is there, which is written last. Raises AlreadyExists if
    there is one already, StorageError, and SavepointCorrupt if a file of the checkpoint is damaged or an entry unreadable.
    """
    new = NewSavepoint(target)
    left_out = _export_states(storage, manifest, new, run_tasks, progress)
    if left_out and not skip_unreadable:
        remove_partial(target)
        raise SavepointCorrupt(_unreadable(manifest, left_out))
    savepoint = Savepoint(
        id=savepoint_id, job=manifest.job, run=manifest.run, epoch=manifest.epoch,
        created_ms=time.time_ns() // 1_000_000 if created_ms is None else created_ms,
        parent=manifest.parent if parent is None else parent, label=label, note=note, drained=manifest.drained,
        schedule_ms=schedule_ms, versions=written_by(spark_version), code_version=code_version,
        max_parallelism=manifest.max_parallelism, parallelism=manifest.parallelism, sources=manifest.sources,
        watermarks=manifest.watermarks, input_watermarks=manifest.input_watermarks,
        operators=new.operators(_operators(manifest)), left_out=left_out,
    )  # fmt: skip
    new.complete(savepoint)
    return savepoint


def _export_states(
    storage: Storage, manifest: Manifest, new: NewSavepoint, run_tasks: RunTasks, progress: Progress
) -> list[LeftOutState]:
    """Write the files of all states; what could not be read."""
    paths = JobPaths(manifest.job)
    files = state_files(manifest, lambda epoch: MANIFEST.load(storage, paths.manifest(epoch)))
    tasks = _plan(storage, new, manifest, files)
    results = export_slice(run_tasks, tasks, progress, parallelism=manifest.parallelism)
    for task, result in zip(tasks, results, strict=True):
        for file, part in zip(task.states, result.parts, strict=True):
            new.add(file.info, part, task.kg_start, task.kg_stop)
    return _left_out([found for result in results for found in result.left_out])


def _left_out(found: Sequence[LeftOut]) -> list[LeftOutState]:
    """What all slices left out, by state."""
    by_state: dict[tuple[str, str], list[LeftOut]] = {}
    for one in found:
        by_state.setdefault((one.uid, one.state), []).append(one)
    return [
        LeftOutState(
            uid=uid,
            state=state,
            entries=sum(one.entries for one in some),
            examples=[UnreadableEntry(key=e.key, why=e.why) for one in some for e in one.examples][:SHOWN],
        )
        for (uid, state), some in by_state.items()
    ]


def _unreadable(manifest: Manifest, left_out: Sequence[LeftOutState]) -> str:
    lines = [
        f"  operator {state.uid!r}, state {state.state!r}, {entry.key}: {entry.why}"
        for state in left_out
        for entry in state.examples
    ]
    count = sum(state.entries for state in left_out)
    more = [f"  and {count - SHOWN} more"] if count > SHOWN else []
    return "\n".join(
        [
            f"job {manifest.job!r}, epoch {manifest.epoch}: no savepoint was made, as {count} entries do not fit the types of "
            "their states (earlier versions of forkpoint did not refuse them):",
            *lines[:SHOWN],
            *more,
            "Make the savepoint with --skip-unreadable (of `forkpoint savepoint` or `forkpoint stop`): it leaves these out and "
            "lists them in savepoint.json. Or have the job overwrite or clear them first",
        ]
    )


def _plan(storage: Storage, new: NewSavepoint, manifest: Manifest, files: StateFiles) -> list[ExportSlice]:
    ranges = cut_groups(manifest.max_parallelism, manifest.parallelism, files.entries)
    # Processing time's timers are numbered behind those of event time.
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


def _operators(manifest: Manifest) -> list[OperatorStates]:
    """Every operator of the graph, and those that are gone from it and whose state is kept."""
    names = {operator.uid: (operator.name, operator.kind) for operator in manifest.operators}
    for state in manifest.states:
        names.setdefault(state.uid, (state.uid, ""))
    return [OperatorStates(uid, *name, [s for s in manifest.states if s.uid == uid]) for uid, name in names.items()]

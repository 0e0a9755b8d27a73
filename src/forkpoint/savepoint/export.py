"""From a committed manifest to a savepoint: typed Parquet files that anything can read, then savepoint.json."""

from __future__ import annotations

import json
import platform
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from forkpoint.checkpoint.manifest import MANIFEST, Manifest, Parent, SourcePosition
from forkpoint.checkpoint.paths import SAVEPOINT_FILE, JobPaths, source_file, state_part, timers_part
from forkpoint.checkpoint.savepoint_manifest import (
    SAVEPOINT,
    LeftOutState,
    Savepoint,
    SavepointFile,
    SavepointOperator,
    SavepointState,
    UnreadableEntry,
    Versions,
    save_savepoint,
)
from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import AlreadyExists, SavepointCorrupt, StorageError
from forkpoint.savepoint.chain import StateFiles, state_files
from forkpoint.savepoint.export_task import ExportSlice, StateFile, export_slice
from forkpoint.savepoint.label import LABEL_FILE
from forkpoint.savepoint.layout import layout_of
from forkpoint.savepoint.parquet import put_empty
from forkpoint.savepoint.seal import SEAL_FILE, write_seal
from forkpoint.savepoint.slices import cut_groups
from forkpoint.savepoint.tasks import Progress, RunTasks, no_progress
from forkpoint.savepoint.unreadable import SHOWN, LeftOut
from forkpoint.storage.base import LocalStorage, Storage

_OWN_FILE = re.compile(r"operators/[^/]+/[^/]+/part-\d+\.parquet|sources/[^/]+/[^/]+", re.ASCII)
_POSITION = "position.json"


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
    clear_place(target)
    paths = JobPaths(manifest.job)
    files = state_files(manifest, lambda epoch: MANIFEST.load(storage, paths.manifest(epoch)))
    slices = _plan(storage, target, manifest, files)
    results = export_slice(run_tasks, [planned.task for planned in slices], progress, parallelism=manifest.parallelism)
    parts: dict[tuple[str, str], list[SavepointFile]] = {(state.uid, state.name): [] for state in manifest.states}
    left_out = _left_out([found for result in results for found in result.left_out])
    if left_out and not skip_unreadable:
        remove_partial(target)
        raise SavepointCorrupt(_unreadable(manifest, left_out))
    for planned, result in zip(slices, results, strict=True):
        for state, part in zip(planned.states, result.parts, strict=True):
            if part is not None:
                parts[state.uid, state.name].append(part.file(planned.task.kg_start, planned.task.kg_stop))
    for state in manifest.states:
        if not parts[state.uid, state.name]:
            parts[state.uid, state.name].append(put_empty(target, _path(state, 0, len(slices)), layout_of(state)))
    for uid, position in manifest.sources.items():
        for path, data in source_files(uid, position).items():
            target.put(path, data)
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
        versions=Versions(forkpoint=forkpoint_version(), python=platform.python_version(), spark=spark_version),
        code_version=code_version,
        max_parallelism=manifest.max_parallelism,
        parallelism=manifest.parallelism,
        sources=manifest.sources,
        watermarks=manifest.watermarks,
        input_watermarks=manifest.input_watermarks,
        operators=_operators(manifest, parts),
        left_out=left_out,
    )
    write_seal(target, SAVEPOINT.dump(savepoint))
    save_savepoint(target, savepoint)
    return savepoint


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


def clear_place(target: Storage) -> None:
    """Make a directory ready for a new savepoint. Raises AlreadyExists if it holds one."""
    if target.exists(SAVEPOINT_FILE):
        raise AlreadyExists(f"{target.url} holds a savepoint already; choose another directory, or dispose of it first")
    remove_partial(target)


def remove_partial(target: Storage, directory: str = "") -> list[str]:
    """Remove what an unfinished export left in a directory, and return its paths; other files stay.

    Raises StorageError if the directory holds a savepoint, which is to be disposed of instead.
    """
    head = f"{directory.rstrip('/')}/" if directory else ""
    if target.exists(f"{head}{SAVEPOINT_FILE}"):
        raise StorageError(f"{target.url}/{directory} is a savepoint, not an unfinished one; dispose of it instead")
    check_links(target, directory)
    found = [path for path in target.list(directory) if is_own_file(path[len(head) :])]
    for path in found:
        target.delete(path)
    return found


def check_links(storage: Storage, directory: str = "") -> None:
    """Raises SavepointCorrupt if a link would take a reader, or who deletes the savepoint, out of its directory."""
    if isinstance(storage, LocalStorage) and (link := next(storage.links_out(directory.rstrip("/")), None)) is not None:
        place = f"{storage.url.rstrip('/')}/{directory}".rstrip("/")
        raise SavepointCorrupt(
            f"{place}/{link}: is a symbolic link out of the savepoint or to a directory; put the files themselves there"
        )


def is_own_file(path: str) -> bool:
    """Whether a path, relative to a savepoint's directory, is one that exports write (savepoint.json aside)."""
    return path in (SEAL_FILE, LABEL_FILE) or _OWN_FILE.fullmatch(path) is not None


def source_files(uid: str, position: SourcePosition) -> dict[str, bytes]:
    """The files below ``sources/``: for people and tools; a restore reads the same from savepoint.json."""
    files = {source_file(uid, f"log-{name}"): text.encode() for name, text in position.spark_log.items()}
    content = position.model_dump(mode="json", exclude={"spark_log"})
    return {source_file(uid, _POSITION): json.dumps(content, indent=2).encode(), **files}


@dataclass(frozen=True)
class _Planned:
    task: ExportSlice
    states: tuple[StateInfo, ...]


def _plan(storage: Storage, target: Storage, manifest: Manifest, files: StateFiles) -> list[_Planned]:
    ranges = cut_groups(manifest.max_parallelism, manifest.parallelism, files.entries)
    keyed = tuple(state for state in manifest.states if not state.is_operator_state)
    operator = tuple(state for state in manifest.states if state.is_operator_state)
    planned = []
    for number, (start, stop) in enumerate(ranges):
        share = files.entries * (stop - start) // manifest.max_parallelism
        task = ExportSlice(
            storage.url, target.url, start, stop, files.slice(start, stop), _files(keyed, number, len(ranges)), share
        )
        planned.append(_Planned(task, keyed))
    if operator:
        task = ExportSlice(storage.url, target.url, 0, 0, files.operator_state(), _files(operator, 0, 1), 0)
        planned.append(_Planned(task, operator))
    return planned


def _files(states: Sequence[StateInfo], number: int, slices: int) -> tuple[StateFile, ...]:
    return tuple(StateFile(state, _path(state, number, slices)) for state in states)


def _path(state: StateInfo, number: int, slices: int) -> str:
    """Both time domains' timers share a directory, processing time behind event time."""
    if state.kind == "timers-event":
        return timers_part(state.uid, number)
    if state.kind == "timers-processing":
        return timers_part(state.uid, slices + number)
    return state_part(state.uid, state.name, number)


def _operators(manifest: Manifest, parts: dict[tuple[str, str], list[SavepointFile]]) -> list[SavepointOperator]:
    """Every operator of the graph, and those that are gone from it and whose state is kept."""
    names = {operator.uid: (operator.name, operator.kind) for operator in manifest.operators}
    for state in manifest.states:
        names.setdefault(state.uid, (state.uid, ""))
    operators = []
    for uid, (name, kind) in names.items():
        states = [state for state in manifest.states if state.uid == uid]
        saved = [saved_state(state, parts[uid, state.name]) for state in states]
        key_type = next((state.key_type for state in states if state.key_type is not None), None)
        operators.append(SavepointOperator(uid=uid, name=name, kind=kind, key_type=key_type, states=saved))
    return operators


def saved_state(info: StateInfo, files: list[SavepointFile]) -> SavepointState:
    """A state as ``savepoint.json`` describes it."""
    entries, size = sum(file.entries for file in files), sum(file.bytes for file in files)
    return SavepointState(info=info, entries=entries, bytes=size, files=files)


def forkpoint_version() -> str:
    """The version of forkpoint that writes."""
    try:
        return version("forkpoint")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "unknown"

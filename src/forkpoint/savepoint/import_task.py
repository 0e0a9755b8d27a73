"""The tasks of a restore: from Parquet files to native snapshot files.

Where the max parallelism stays, each task makes one slice. Where it changes, or keys do, every file has keys for every
slice: then one round of tasks cuts files into runs, and another makes slices of runs (see ``runs``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from forkpoint.checkpoint.format import checksum
from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import RestoreRefused, SavepointCorrupt
from forkpoint.savepoint.entries import Moved, codec_of, redistribute
from forkpoint.savepoint.evolution import Change, changed
from forkpoint.savepoint.layout import layout_of
from forkpoint.savepoint.parquet import read_part
from forkpoint.savepoint.rows import RowCheck, of_file
from forkpoint.savepoint.runs import Run, read_runs, write_runs
from forkpoint.savepoint.tasks import FileRef, TaskOf, task
from forkpoint.state import decode_state_key, kg_of, write_snapshot
from forkpoint.state.arrow_file import as_list
from forkpoint.storage.base import Storage, open_storage

Entry = tuple[bytes, bytes]


@dataclass(frozen=True)
class SavedFile:
    """A file of a state, its rows, and the key groups that it is of."""

    file: FileRef
    entries: int
    kg_start: int
    kg_stop: int


@dataclass(frozen=True)
class MovedState:
    """A state as saved, how it is to be written, and its files (those that matter to the task).

    ``max_parallelism`` and ``parallelism`` are the savepoint's. ``change``: what becomes of its rows before they are
    written; None if nothing.
    """

    info: StateInfo
    moved: Moved
    files: tuple[SavedFile, ...]
    max_parallelism: int
    parallelism: int
    change: Change | None = None


@dataclass(frozen=True)
class Deal:
    """Operator state for one subtask: of how many subtasks the savepoint is, and how many there are now."""

    states: tuple[MovedState, ...]
    subtask: int
    saved_parallelism: int
    parallelism: int


@dataclass(frozen=True)
class ImportSlice:
    """What makes one snapshot file: keyed state by key group, or runs that were sorted out before; operator state."""

    source_url: str
    target_url: str
    path: str
    kg_start: int
    kg_stop: int
    states: tuple[MovedState, ...]
    runs: tuple[FileRef, ...]
    deal: Deal | None
    rekeyed: bool = False  # some keys were migrated


@dataclass(frozen=True)
class WrittenSnapshot:
    """``rows``: how many were read of each file of which only some key groups were wanted."""

    path: str
    entries: int
    size: int
    checksum: str
    rows: dict[str, int]


@dataclass(frozen=True)
class CutFiles:
    """Some files whose keys get new key groups; slice i begins at key group ``cuts[i]``."""

    source_url: str
    target_url: str
    states: tuple[MovedState, ...]
    cuts: tuple[int, ...]
    paths: tuple[str, ...]  # for each slice


@task(ImportSlice)
def _import_slice(plan: ImportSlice) -> WrittenSnapshot:
    source, target = open_storage(plan.source_url), open_storage(plan.target_url)
    entries: list[Entry] = []
    rows: dict[str, int] = {}
    for state in plan.states:
        for file in state.files:
            found, rows[file.file.name] = _converted(source, state, file, (plan.kg_start, plan.kg_stop))
            entries += found
    if plan.runs:
        table, keys = read_runs(target, plan.runs)
        entries += zip(as_list(keys), as_list(table.column(0)), strict=True)
    if plan.deal is not None:
        entries += _dealt(source, plan.deal)
    entries.sort()  # cheap: they come in a few runs that are in order
    data = _snapshot(entries, plan.source_url, rekeyed=plan.rekeyed)
    target.put(plan.path, data)
    return WrittenSnapshot(plan.path, len(entries), len(data), checksum(data), rows)


@task(CutFiles)
def _cut_files(files: CutFiles) -> list[Run]:
    source, target = open_storage(files.source_url), open_storage(files.target_url)
    entries = [
        entry for state in files.states for file in state.files for entry in _converted(source, state, file, None)[0]
    ]
    values = pa.array([value for _, value in entries], pa.large_binary())
    keys = [key for key, _ in entries]
    return write_runs(target, pa.table({"value": values}), keys, files.cuts, files.paths.__getitem__)


import_slice = TaskOf[ImportSlice, WrittenSnapshot](_import_slice, WrittenSnapshot)
cut_files = TaskOf[CutFiles, list[Run]](_cut_files, list[Run])


def _converted(
    source: Storage, state: MovedState, file: SavedFile, groups: tuple[int, int] | None
) -> tuple[list[Entry], int]:
    """A file's rows as store entries, and how many rows; of these key groups (as they were saved) only, if they are given."""
    saved = layout_of(state.info)
    codec = codec_of(state.info if state.change is None else state.change.target)
    data = file.file.read(source)
    rows = 0

    def checked() -> Iterator[pa.Table]:
        nonlocal rows
        check = RowCheck(saved, state.max_parallelism, state.parallelism)
        for table in read_part(data, file.file.name, saved, file.entries, groups):
            check.check(table)
            rows += table.num_rows
            yield table

    entries: list[Entry] = []
    with of_file(file.file.name):
        for table in checked() if state.change is None else changed(checked(), saved, state.change):
            entries.extend(zip(*codec.to_entries(table, state.moved), strict=True))
        entries.extend(zip(*codec.finish(state.moved), strict=True))
    if groups is None and rows != file.entries:
        raise SavepointCorrupt(
            f"{file.file.name}: has {rows} rows, {file.entries} were recorded; restore it from a copy"
        )
    return entries, rows


def _dealt(source: Storage, deal: Deal) -> Iterator[Entry]:
    for state in deal.states:
        entries = [entry for file in state.files for entry in _converted(source, state, file, None)[0]]
        keys, values = [key for key, _ in entries], [value for _, value in entries]
        if len(set(keys)) != len(keys):
            files = ", ".join(file.file.name for file in state.files)
            raise SavepointCorrupt(f"{files}: two elements of {state.info.where} have the same place; restore a copy")
        shares = redistribute(state.info.kind, keys, values, deal.subtask, deal.saved_parallelism, deal.parallelism)
        yield from zip(*shares, strict=True)


def _snapshot(entries: list[Entry], savepoint: str, *, rekeyed: bool) -> bytes:
    """Entries, in order, as a snapshot file. Two with the same key: SavepointCorrupt, or RestoreRefused if a migration of
    keys made them one; timers of one time are one timer."""
    if rekeyed:
        entries = [
            entry for entry, before in zip(entries, [None, *entries], strict=False) if entry != before or entry[1]
        ]
    try:
        return write_snapshot(entries)
    except ValueError:
        double = next((one for (one, _), (other, _) in pairwise(entries) if one == other), None)
        if double is None:
            raise
        if rekeyed:
            key = decode_state_key(double)
            raise RestoreRefused(
                "migrate_key makes one key of two that have state both, so one of the states would be lost "
                f"(state number {key.sid}, key stored as {key.key.hex()}); let it keep them apart, or drop the state first"
            ) from None
        raise SavepointCorrupt(
            f"{savepoint}: has two entries for one key (in key group {kg_of(double)}, stored as {double.hex()}); it "
            "was not written by forkpoint, or was changed since"
        ) from None

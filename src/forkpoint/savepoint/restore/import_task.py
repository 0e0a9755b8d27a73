"""The tasks of a restore: from Parquet files to snapshot files of the store.

If the key groups stay the same, each task makes one slice. If the max parallelism or the keys change, every file may have
keys for every slice: one round of tasks cuts files into runs, and another makes slices of runs (see ``runs``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from forkpoint.checkpoint.format import checksum
from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import RestoreRefused, SavepointCorrupt
from forkpoint.runtime.state.broadcast_state import unpack_entry
from forkpoint.savepoint.format.entries import EntryTarget, codec_of, redistribute
from forkpoint.savepoint.format.layout import layout_of
from forkpoint.savepoint.format.parquet import SavedFile, errors_naming
from forkpoint.savepoint.format.rows import checked_tables
from forkpoint.savepoint.format.sorting import Run, read_runs, write_runs
from forkpoint.savepoint.format.tasks import FileRef, TaskOf, task
from forkpoint.savepoint.restore.compatibility import validated
from forkpoint.savepoint.restore.evolution import Change, changed
from forkpoint.state import decode_state_key, kg_of, write_snapshot
from forkpoint.state.arrow_file import as_list
from forkpoint.storage.base import Storage, open_storage

Entry = tuple[bytes, bytes]


@dataclass(frozen=True)
class StateImport:
    """A saved state, how its entries are written, and the files that a task reads.

    ``max_parallelism`` and ``parallelism`` are the savepoint's. ``change``: how its rows change first, if they do.
    ``validator``: the pickled type of its values, if its classes may refuse some.
    """

    info: StateInfo
    target: EntryTarget
    files: tuple[SavedFile, ...]
    max_parallelism: int
    parallelism: int
    change: Change | None = None
    validator: bytes = b""


@dataclass(frozen=True)
class ImportSlice:
    """The input of one snapshot file: keyed state by key group, or sorted into runs before; operator state for one subtask
    of ``parallelism``."""

    source_url: str
    target_url: str
    path: str
    kg_start: int
    kg_stop: int
    states: tuple[StateImport, ...]
    runs: tuple[FileRef, ...]
    operator_state: tuple[StateImport, ...]
    subtask: int
    parallelism: int
    rekeyed: bool = False  # some keys were migrated, or brought into their key form


@dataclass(frozen=True)
class WrittenSnapshot:
    """``rows``: the number of rows read from each file that was read by key groups, by name."""

    path: str
    entries: int
    size: int
    checksum: str
    rows: dict[str, int]


@dataclass(frozen=True)
class CutFiles:
    """Files whose keys get new key groups; slice i begins at key group ``cuts[i]``, and its run goes to ``paths[i]``."""

    source_url: str
    target_url: str
    states: tuple[StateImport, ...]
    cuts: tuple[int, ...]
    paths: tuple[str, ...]


@task(ImportSlice)
def _import_slice(plan: ImportSlice) -> WrittenSnapshot:
    source, target = open_storage(plan.source_url), open_storage(plan.target_url)
    entries: list[Entry] = []
    rows: dict[str, int] = {}
    for state in plan.states:
        for file in state.files:
            found, rows[file.name] = _entries(source, state, file, (plan.kg_start, plan.kg_stop))
            entries += found
    if plan.runs:
        table, keys = read_runs(target, plan.runs)
        entries += zip(as_list(keys), as_list(table.column(0)), strict=True)
    entries += _redistributed(source, plan)
    entries.sort()  # cheap: they consist of a few sorted runs
    data = _snapshot(entries, plan.source_url, rekeyed=plan.rekeyed)
    target.put(plan.path, data)
    return WrittenSnapshot(plan.path, len(entries), len(data), checksum(data), rows)


@task(CutFiles)
def _cut_files(plan: CutFiles) -> list[Run]:
    source, target = open_storage(plan.source_url), open_storage(plan.target_url)
    entries = [entry for state in plan.states for entry in _all_entries(source, state)]
    values = pa.array([value for _, value in entries], pa.large_binary())
    keys = [key for key, _ in entries]
    return write_runs(target, pa.table({"value": values}), keys, plan.cuts, plan.paths.__getitem__)


import_slice = TaskOf[ImportSlice, WrittenSnapshot](_import_slice, WrittenSnapshot)
cut_files = TaskOf[CutFiles, list[Run]](_cut_files, list[Run])


def _all_entries(source: Storage, state: StateImport) -> Iterator[Entry]:
    for file in state.files:
        yield from _entries(source, state, file, None)[0]


def _entries(source: Storage, state: StateImport, file: SavedFile, groups: tuple[int, int] | None) -> tuple[list[Entry], int]:
    """A file's rows as store entries, and their number; with ``groups`` only those with these saved key groups."""
    saved = layout_of(state.info)
    target = state.info if state.change is None else state.change.target
    codec = codec_of(target)
    rows = 0

    def counted() -> Iterator[pa.Table]:
        nonlocal rows
        for table in checked_tables(source, file, saved, state.max_parallelism, state.parallelism, groups=groups):
            rows += table.num_rows
            yield table

    entries: list[Entry] = []
    with errors_naming(file.name):
        tables = counted() if state.change is None else changed(counted(), saved, state.change)
        for table in validated(tables, target, state.validator) if state.validator else tables:
            entries.extend(zip(*codec.to_entries(table, state.target), strict=True))
        entries.extend(zip(*codec.finish(state.target), strict=True))
    return entries, rows


def _redistributed(source: Storage, plan: ImportSlice) -> Iterator[Entry]:
    for state in plan.operator_state:
        entries = list(_all_entries(source, state))
        if state.info.kind == "broadcast":
            _check_apart(state.info, [unpack_entry(value)[0] for _, value in entries])
        keys, values = [key for key, _ in entries], [value for _, value in entries]
        if len(set(keys)) != len(keys):
            files = ", ".join(file.name for file in state.files)
            raise SavepointCorrupt(f"{files}: two elements of {state.info.where} have the same place; restore a copy")
        mine = redistribute(state.info.kind, keys, values, plan.subtask, state.parallelism, plan.parallelism)
        yield from zip(*mine, strict=True)


def _check_apart(info: StateInfo, keys: list[bytes]) -> None:
    """Raises RestoreRefused if two entries of a broadcast state have one key."""
    double = next((key for key, count in Counter(keys).items() if count > 1), None)
    if double is not None:
        raise RestoreRefused(
            f"{info.where}: {_ONE_KEY} (key stored as {double.hex()}); remove one of the entries from the savepoint first"
        )


_ONE_KEY = (
    "two keys that both have state become one, so one of the states would be lost: migrate_key makes one of them, or they are "
    "equal and were told apart by earlier releases, as the Decimals 2.5 and 2.50"
)


def _snapshot(entries: list[Entry], savepoint: str, *, rekeyed: bool) -> bytes:
    """Sorted entries as a snapshot file. Duplicate keys raise SavepointCorrupt, or RestoreRefused if a change of keys
    merged them; duplicate timers that it merged become one."""
    if rekeyed:
        entries = [entry for entry, before in zip(entries, [None, *entries], strict=False) if entry != before or entry[1]]
    try:
        return write_snapshot(entries)
    except ValueError:
        double = next((one for (one, _), (other, _) in pairwise(entries) if one == other), None)
        if double is None:
            raise
        if rekeyed:
            key = decode_state_key(double)
            raise RestoreRefused(
                f"{_ONE_KEY} (state number {key.sid}, key stored as {key.key.hex()}); keep the keys apart, or remove one of "
                "them from the savepoint first"
            ) from None
        raise SavepointCorrupt(
            f"{savepoint}: has two entries for one key (in key group {kg_of(double)}, stored as {double.hex()}); it "
            "was not written by forkpoint, or was changed since"
        ) from None

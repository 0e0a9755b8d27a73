"""The tasks of a restore, which convert Parquet files to snapshot files of the store.

If the key groups stay the same, each task writes one slice. If the max parallelism or the keys change, every file may have
keys of every slice: a first round of tasks splits files into runs, and a second merges runs into slices (see ``sorting``).
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
from forkpoint.savepoint.format.checks import checked_tables
from forkpoint.savepoint.format.entries import EntryTarget, codec_of, redistribute
from forkpoint.savepoint.format.layers import SavedFile
from forkpoint.savepoint.format.layout import layout_of
from forkpoint.savepoint.format.parquet import errors_naming
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
    """A saved state, the files that a task reads, and how it writes the entries.

    ``max_parallelism`` and ``parallelism`` are the savepoint's. ``change``: a change of the rows to apply first.
    ``validator``: the pickled type of the values, if their classes may refuse some.
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
    """The input of one snapshot file: keyed state, by key group or in sorted runs; operator state of one subtask of
    ``parallelism``."""

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
    rekeyed: bool = False  # some keys were migrated, or converted to their key form


@dataclass(frozen=True)
class WrittenSnapshot:
    """``rows``: the number of rows read from each file that was read by key groups, by file name."""

    path: str
    entries: int
    size: int
    checksum: str
    rows: dict[str, int]


@dataclass(frozen=True)
class CutFiles:
    """Files to split by new key groups; slice i begins at key group ``cuts[i]``, and its run goes to ``paths[i]``."""

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
    entries.sort()  # fast, as the list consists of a few sorted runs
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
    """A file's rows as store entries, and their number, of the saved key groups ``groups`` or of all."""
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
            _check_distinct(state.info, [unpack_entry(value)[0] for _, value in entries])
        keys, values = [key for key, _ in entries], [value for _, value in entries]
        if len(set(keys)) != len(keys):
            files = ", ".join(file.name for file in state.files)
            raise SavepointCorrupt(f"{files}: two elements of {state.info.where} have the same index; restore a copy")
        mine = redistribute(state.info.kind, keys, values, plan.subtask, state.parallelism, plan.parallelism)
        yield from zip(*mine, strict=True)


def _check_distinct(info: StateInfo, keys: list[bytes]) -> None:
    """Raises RestoreRefused if two entries of a broadcast state have the same key."""
    duplicate = next((key for key, count in Counter(keys).items() if count > 1), None)
    if duplicate is not None:
        raise RestoreRefused(
            f"{info.where}: {_SAME_KEY} (key stored as {duplicate.hex()}); remove one of the entries from the savepoint first"
        )


_SAME_KEY = (
    "two keys that both have state become one, so one of the states would be lost: migrate_key maps both to one key, or they "
    "are equal and earlier releases distinguished them, such as the Decimals 2.5 and 2.50"
)


def _snapshot(entries: list[Entry], savepoint: str, *, rekeyed: bool) -> bytes:
    """Sorted entries as a snapshot file; merges duplicate timers that result from a change of keys. Other duplicate keys
    raise RestoreRefused after a change of keys, else SavepointCorrupt."""
    if rekeyed:
        entries = [entry for entry, before in zip(entries, [None, *entries], strict=False) if entry != before or entry[1]]
    try:
        return write_snapshot(entries)
    except ValueError:
        duplicate = next((one for (one, _), (other, _) in pairwise(entries) if one == other), None)
        if duplicate is None:
            raise
        if rekeyed:
            key = decode_state_key(duplicate)
            raise RestoreRefused(
                f"{_SAME_KEY} (state number {key.sid}, key stored as {key.key.hex()}); keep the keys distinct, or remove one "
                "of them from the savepoint first"
            ) from None
        raise SavepointCorrupt(
            f"{savepoint}: has two entries for one key (in key group {kg_of(duplicate)}, stored as {duplicate.hex()}); it "
            "was not written by forkpoint, or was changed since"
        ) from None

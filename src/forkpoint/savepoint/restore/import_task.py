"""The tasks of a restore, which convert Parquet files to snapshot files of the store.

If the key groups stay the same, each task writes one slice. If the max parallelism or the keys change, every file may have
keys of every slice: a first round of tasks splits files into runs, and a second merges runs into slices (see ``sorting``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.checkpoint.format import checksum
from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import RestoreRefused, SavepointCorrupt
from forkpoint.runtime.state.broadcast_state import unpack_entry
from forkpoint.savepoint.format.checks import checked_tables
from forkpoint.savepoint.format.entries import Binary, Entries, EntryTarget, as_binary, codec_of, redistribute
from forkpoint.savepoint.format.layers import SavedFile
from forkpoint.savepoint.format.layout import layout_of
from forkpoint.savepoint.format.parquet import errors_naming
from forkpoint.savepoint.format.sorting import Run, read_runs, write_runs
from forkpoint.savepoint.format.tasks import FileRef, TaskOf, task
from forkpoint.savepoint.restore.compatibility import validated
from forkpoint.savepoint.restore.evolution import Change, changed
from forkpoint.state import decode_state_key, kg_of, write_snapshot_columns
from forkpoint.state.arrow_file import as_list
from forkpoint.storage.base import Storage, open_storage


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
    pieces = [as_binary(([], []))]
    rows: dict[str, int] = {}
    for state in plan.states:
        for file in state.files:
            found, rows[file.name] = _entries(source, state, file, (plan.kg_start, plan.kg_stop))
            pieces += found
    if plan.runs:
        table, keys = read_runs(target, plan.runs)
        pieces.append((keys, table.column(0).combine_chunks()))
    pieces += [as_binary(entries) for entries in _redistributed(source, plan)]
    entries = _sorted(pieces, plan.source_url, rekeyed=plan.rekeyed)
    data = write_snapshot_columns(entries)
    target.put(plan.path, data)
    return WrittenSnapshot(plan.path, len(entries[0]), len(data), checksum(data), rows)


@task(CutFiles)
def _cut_files(plan: CutFiles) -> list[Run]:
    source, target = open_storage(plan.source_url), open_storage(plan.target_url)
    pieces = [as_binary(([], [])), *(piece for state in plan.states for piece in _all_entries(source, state))]
    keys, values = (pa.concat_arrays(list(each)) for each in zip(*pieces, strict=True))
    return write_runs(target, pa.table({"value": values}), keys, plan.cuts, plan.paths.__getitem__)


import_slice = TaskOf[ImportSlice, WrittenSnapshot](_import_slice, WrittenSnapshot)
cut_files = TaskOf[CutFiles, list[Run]](_cut_files, list[Run])


def _all_entries(source: Storage, state: StateImport) -> Iterator[Binary]:
    for file in state.files:
        yield from _entries(source, state, file, None)[0]


def _entries(source: Storage, state: StateImport, file: SavedFile, groups: tuple[int, int] | None) -> tuple[list[Binary], int]:
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

    entries: list[Binary] = []
    with errors_naming(file.name):
        tables = counted() if state.change is None else changed(counted(), saved, state.change)
        tables = validated(tables, target, state.validator) if state.validator else tables
        entries.extend(codec.to_binary(table, state.target) for table in tables)
        entries.append(as_binary(codec.finish(state.target)))
    return entries, rows


def _redistributed(source: Storage, plan: ImportSlice) -> Iterator[Entries]:
    for state in plan.operator_state:
        pieces = list(_all_entries(source, state))
        keys = [key for each, _ in pieces for key in as_list(each)]
        values = [value for _, each in pieces for value in as_list(each)]
        if state.info.kind == "broadcast":
            _check_distinct(state.info, [unpack_entry(value)[0] for value in values])
        if len(set(keys)) != len(keys):
            files = ", ".join(file.name for file in state.files)
            raise SavepointCorrupt(f"{files}: two elements of {state.info.where} have the same index; restore a copy")
        yield redistribute(state.info.kind, keys, values, plan.subtask, state.parallelism, plan.parallelism)


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


def _sorted(pieces: list[Binary], savepoint: str, *, rekeyed: bool) -> Binary:
    """All entries in key order; merges duplicate timers that result from a change of keys. Other duplicate keys raise
    RestoreRefused after a change of keys, else SavepointCorrupt."""
    keys, values = (pa.concat_arrays(list(each)) for each in zip(*pieces, strict=True))
    if not _pairs(pc.less, keys).all():
        order = pc.sort_indices(keys)
        keys, values = keys.take(order), values.take(order)
    same = _pairs(pc.equal, keys)
    if rekeyed and same.any():
        empty = pc.equal(pc.binary_length(values), 0).to_numpy(zero_copy_only=False)
        kept = ~np.append(same & empty[1:] & empty[:-1], False)
        keys, values = keys.filter(pa.array(kept)), values.filter(pa.array(kept))
        same = _pairs(pc.equal, keys)
    if not same.any():
        return keys, values
    duplicate: bytes = keys[int(np.flatnonzero(same)[0])].as_py()
    if rekeyed:
        key = decode_state_key(duplicate)
        raise RestoreRefused(
            f"{_SAME_KEY} (state number {key.sid}, key stored as {key.key.hex()}); keep the keys distinct, or remove one "
            "of them from the savepoint first"
        )
    raise SavepointCorrupt(
        f"{savepoint}: has two entries for one key (in key group {kg_of(duplicate)}, stored as {duplicate.hex()}); it "
        "was not written by forkpoint, or was changed since"
    )


def _pairs(compare: Callable[[pa.Array, pa.Array], pa.Array], keys: pa.Array) -> npt.NDArray[np.bool_]:
    """The comparison of each key with the next one."""
    found: npt.NDArray[np.bool_] = compare(keys[:-1], keys[1:]).to_numpy(zero_copy_only=False)
    return found

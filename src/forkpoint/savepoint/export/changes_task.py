"""The tasks of an export that write what has changed since an earlier savepoint, as files of changes."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from forkpoint.checkpoint.states import StateInfo
from forkpoint.savepoint.export.chain import StateFiles
from forkpoint.savepoint.export.chain_reader import ChainReader, FilesOnStorage
from forkpoint.savepoint.format.entries import codec_of
from forkpoint.savepoint.format.layers import SavedFile, known_in, written
from forkpoint.savepoint.format.parquet import BLOCK_ROWS, PartWriter, WrittenPart, put_part
from forkpoint.savepoint.format.sorting import KeyGroupRange
from forkpoint.savepoint.format.tasks import TaskOf, task
from forkpoint.state import sid_range
from forkpoint.storage.base import Storage, open_storage


@dataclass(frozen=True)
class ChangedRange(KeyGroupRange):
    """Key groups of a state, their file in the earlier savepoint, if there is one, and the path of the file of changes."""

    earlier: SavedFile | None
    path: str


@dataclass(frozen=True)
class ChangedState:
    """A state, and its ranges in a slice."""

    info: StateInfo
    ranges: tuple[ChangedRange, ...]


@dataclass(frozen=True)
class ExportChanges(KeyGroupRange):
    """The changes in ``files`` of these key groups. ``earlier_url``: the storage of the earlier savepoint's files."""

    storage_url: str
    target_url: str
    earlier_url: str
    files: StateFiles
    states: tuple[ChangedState, ...]


@dataclass(frozen=True)
class WrittenChanges:
    """``part``: None without changes. ``entries``: the number of entries of the range with the changes."""

    part: WrittenPart | None
    entries: int


@task(ExportChanges)
def _export_changes(plan: ExportChanges) -> list[list[WrittenChanges]]:
    storage, target, earlier = map(open_storage, (plan.storage_url, plan.target_url, plan.earlier_url))
    reader = ChainReader(plan.files, FilesOnStorage(storage))
    changed = reader.changes(plan.kg_start, plan.kg_stop)
    return [[_write(each, state.info, changed, target, earlier) for each in state.ranges] for state in plan.states]


export_changes = TaskOf[ExportChanges, list[list[WrittenChanges]]](_export_changes, list[list[WrittenChanges]])


def _write(
    part: ChangedRange, info: StateInfo, changed: tuple[list[bytes], list[bytes | None]], target: Storage, storage: Storage
) -> WrittenChanges:
    """Write the changes of a state in a range. Without an earlier file they are all entries, in a file without marks."""
    keys, values = changed
    ranges = _ranges_of(keys, info.sid, part.kg_start, part.kg_stop)
    found = 0 if part.earlier is None else part.earlier.entries
    if not (count := sum(high - low for low, high in ranges)):
        return WrittenChanges(None, found)
    codec = codec_of(info)
    groups = np.repeat(np.arange(part.kg_start, part.kg_stop), [high - low for low, high in ranges])
    mine = [key for low, high in ranges for key in keys[low:high]]
    theirs = [value for low, high in ranges for value in values[low:high]]
    steps = range(0, count, BLOCK_ROWS)
    blocks = [codec.to_changes(*(each[at : at + BLOCK_ROWS] for each in (groups, mine, theirs))) for at in steps]  # type: ignore[arg-type]
    rows = pa.concat_tables(blocks)
    changes = codec.layout.of_changes
    removed = changes.columns(rows, "removed")[0].to_numpy()
    if part.earlier is None:
        plain = written(rows, codec.layout, codec.layout)
        return WrittenChanges(_put(target, part.path, PartWriter(codec.layout), plain), plain.num_rows)
    known = known_in(storage, codec.layout, part.earlier, rows)
    kept = rows.filter(pa.array(known | ~removed))  # what came and went since the earlier savepoint leaves no trace
    entries = found - int(known.sum()) + int((~removed).sum())
    return WrittenChanges(_put(target, part.path, PartWriter(changes), kept), entries)


def _ranges_of(keys: list[bytes], sid: int, kg_start: int, kg_stop: int) -> list[tuple[int, int]]:
    """Where the entries of a state are among sorted store keys, for each key group."""
    found: list[tuple[int, int]] = []
    for group in range(kg_start, kg_stop):
        start, stop = sid_range(group, sid)
        low = bisect_left(keys, start)
        found.append((low, bisect_left(keys, stop, low)))
    return found


def _put(target: Storage, path: str, writer: PartWriter, rows: pa.Table) -> WrittenPart | None:
    for at in range(0, rows.num_rows, BLOCK_ROWS):
        writer.write(rows.slice(at, BLOCK_ROWS))
    return put_part(target, path, writer) if rows.num_rows else None

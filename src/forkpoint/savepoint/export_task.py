"""The tasks of an export: snapshots and changes become Parquet files."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from forkpoint.checkpoint.savepoint_manifest import LeftOutState
from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import SavepointCorrupt
from forkpoint.savepoint.chain import StateFiles
from forkpoint.savepoint.entries import Codec, Entries, codec_of
from forkpoint.savepoint.parquet import PartWriter, WrittenPart, put_part
from forkpoint.savepoint.runs import key_groups
from forkpoint.savepoint.slices import steps
from forkpoint.savepoint.tasks import FileRef, TaskOf, task
from forkpoint.savepoint.unreadable import LeftOut, readable
from forkpoint.state import OPERATOR_KG, decode_operator_key, operator_range, sid_of, sid_range
from forkpoint.state.arrow_file import CHANGES, SNAPSHOT, ArrowFile, as_list
from forkpoint.state.files import in_key_order
from forkpoint.storage.base import Storage, open_storage

BLOCK_ENTRIES = 65_536
BLOCK_BYTES = 64 << 20

Columns = tuple[pa.Array, pa.Array]
"""Keys and values of entries; a null value is a delete."""


@dataclass(frozen=True)
class StateFile:
    """A state, and the path of this slice's part of it."""

    info: StateInfo
    path: str


@dataclass(frozen=True)
class ExportSlice:
    """Key groups ``kg_start`` <= kg < ``kg_stop`` of all keyed states; if they are equal, all operator state."""

    storage_url: str
    target_url: str
    kg_start: int
    kg_stop: int
    files: StateFiles
    states: tuple[StateFile, ...]
    entries: int


@dataclass(frozen=True)
class ExportedSlice:
    """For each of the slice's states its file, None without rows; and the entries that could not be read."""

    parts: list[WrittenPart | None]
    left_out: list[LeftOutState]


@task(ExportSlice)
def _export_slice(plan: ExportSlice) -> ExportedSlice:
    storage, target = open_storage(plan.storage_url), open_storage(plan.target_url)
    writers = [_StateWriter(state) for state in plan.states]
    reader = _Reader(storage, plan.files)
    if plan.kg_start == plan.kg_stop:
        _share(reader.operator_state(), writers, OPERATOR_KG, OPERATOR_KG + 1)
    else:
        for start, stop in steps(plan.kg_start, plan.kg_stop, plan.entries):
            _share(reader.keyed(start, stop), writers, start, stop)
    parts = [put_part(target, w.state.path, w.part) if w.part.rows else None for w in writers]
    return ExportedSlice(parts, [w.left_out.record(w.state.info) for w in writers if w.left_out.entries])


export_slice = TaskOf[ExportSlice, ExportedSlice](_export_slice, ExportedSlice)


class _StateWriter:
    """Writes a state's entries as blocks of rows."""

    def __init__(self, state: StateFile) -> None:
        self.state = state
        self._codec: Codec = codec_of(state.info)
        self.part = PartWriter(self._codec.layout)
        self.left_out = LeftOut()

    def write(self, groups: np.ndarray[Any, Any], keys: list[bytes], values: list[bytes]) -> None:
        if self.state.info.kind == "broadcast":  # all subtasks have the same copy: use the first one
            one = operator_range(self.state.info.sid, decode_operator_key(keys[0]).subtask)[1]
            keys = keys[: bisect_left(keys, one)]
            groups, values = groups[: len(keys)], values[: len(keys)]
        for low, high in _blocks(values):
            block = groups[low:high], keys[low:high], values[low:high]
            before = copy(self._codec)  # a list codec carries indexes over from block to block
            try:
                table = self._codec.to_table(*block)
            except SavepointCorrupt:
                self._codec = before
                table = self._codec.to_table(*readable(self.state.info, block, self.left_out))
            self.part.write(table)


def _blocks(values: list[bytes]) -> Iterator[tuple[int, int]]:
    """Ranges of at most BLOCK_ENTRIES entries and, unless a single one is larger, BLOCK_BYTES bytes."""
    sizes = np.cumsum(np.fromiter(map(len, values), np.int64, len(values)))
    low = 0
    while low < len(values):
        before = int(sizes[low - 1]) if low else 0
        high = int(np.searchsorted(sizes, before + BLOCK_BYTES, side="right"))
        high = min(max(high, low + 1), low + BLOCK_ENTRIES, len(values))
        yield low, high
        low = high


def _share(entries: Entries, writers: list[_StateWriter], kg_start: int, kg_stop: int) -> None:
    """Pass the entries of each state, in store order, to its writer. Raises SavepointCorrupt if some belong to no state."""
    keys, values = entries
    shared = 0
    for writer in writers:
        ranges: list[tuple[int, int]] = []
        for group in range(kg_start, kg_stop):
            start, stop = sid_range(group, writer.state.info.sid)
            low = bisect_left(keys, start)
            ranges.append((low, bisect_left(keys, stop, low)))
        counts = [high - low for low, high in ranges]
        count = sum(counts)
        if count:
            shared += count
            groups = np.repeat(np.arange(kg_start, kg_stop), counts)
            writer.write(groups, _joined(keys, ranges), _joined(values, ranges))
    if shared != len(keys):
        known = {writer.state.info.sid for writer in writers}
        unknown = next(sid_of(key) for key in keys if sid_of(key) not in known)
        raise SavepointCorrupt(
            f"{len(keys) - shared} stored entries belong to no state of the manifest, the first one to state number "
            f"{unknown}; nothing was exported"
        )


def _joined(items: list[bytes], ranges: list[tuple[int, int]]) -> list[bytes]:
    if len(ranges) == 1 and ranges[0] == (0, len(items)):
        return items
    return list(chain.from_iterable(items[low:high] for low, high in ranges))


class _Reader:
    """Reads each file once, decoding only the batches that are needed."""

    def __init__(self, storage: Storage, files: StateFiles) -> None:
        self._storage = storage
        self._files = files
        self._open: dict[FileRef, ArrowFile] = {}

    def keyed(self, kg_start: int, kg_stop: int) -> Entries:
        """The entries of these key groups."""
        keys: list[bytes] = []
        values: list[bytes] = []
        for base in self._files.bases:
            start, stop = max(base.kg_start, kg_start), min(base.kg_stop, kg_stop)
            if start < stop:
                files = [] if base.snapshot is None else [(base.snapshot, SNAPSHOT)]
                files += [
                    (change.file, CHANGES)
                    for change in self._files.changes
                    if change.epoch > base.epoch and change.overlaps(start, stop)
                ]
                some = _merge([piece for file, kind in files for piece in self._read(file, kind, start, stop)])
                keys += some[0]
                values += some[1]
        return keys, values

    def operator_state(self) -> Entries:
        """The operator state of all subtasks."""
        everything: list[tuple[bytes, bytes]] = []
        for base in self._files.operators:
            files = [(snapshot, SNAPSHOT) for snapshot in base.snapshots]
            files += [
                (change.file, CHANGES)
                for change in self._files.changes
                if change.subtask == base.subtask and change.epoch > base.epoch
            ]
            merged = _merge([
                _of_subtask(piece, base.subtask)
                for file, kind in files
                for piece in self._read(file, kind, OPERATOR_KG, OPERATOR_KG + 1)
            ])  # fmt: skip
            everything += zip(*merged, strict=True)
        everything.sort()
        return [key for key, _ in everything], [value for _, value in everything]

    def _read(self, ref: FileRef, kind: int, kg_start: int, kg_stop: int) -> list[Columns]:
        file = self._open.get(ref)
        if file is None:
            file = self._open[ref] = ArrowFile(ref.read(self._storage), kind, ref.name)
        found = []
        for number, block in enumerate(file.blocks):
            if block.first_kg < kg_stop and block.last_kg >= kg_start:
                keys, values = file.read_columns(number)
                if block.first_kg < kg_start or block.last_kg >= kg_stop:
                    low, high = np.searchsorted(key_groups(keys), (kg_start, kg_stop)).tolist()
                    keys, values = keys[low:high], values[low:high]
                found.append((keys, values))
        return found


def operator_state(storage: Storage, files: StateFiles) -> Entries:
    """The operator state of all subtasks, in the order of the store."""
    return _Reader(storage, files).operator_state()


def _merge(pieces: list[Columns]) -> Entries:
    """Merges a snapshot's pieces with later changes: the last value of each key wins, deleted keys are dropped."""
    if not pieces:
        return [], []
    keys, values = in_key_order(*(pa.concat_arrays(list(columns)) for columns in zip(*pieces, strict=True)))
    if values.null_count:
        keys, values = keys.filter(values.is_valid()), values.drop_null()
    return as_list(keys), as_list(values)


def _of_subtask(piece: Columns, subtask: int) -> Columns:
    mask = pa.array([decode_operator_key(key).subtask == subtask for key in as_list(piece[0])], pa.bool_())
    return piece[0].filter(mask), piece[1].filter(mask)

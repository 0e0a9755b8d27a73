"""Reads the state at a manifest by merging its files: a snapshot per key group, and the later changes.

Reads ranges of key groups, a single state, or a single key. Opens each file once, and decodes only the batches it needs.
"""

from __future__ import annotations

import mmap
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.savepoint.export.chain import EMPTY, Base, StateFiles
from forkpoint.savepoint.format.entries import Entries
from forkpoint.savepoint.format.tasks import FileRef
from forkpoint.state import OPERATOR_KG, Columns, decode_operator_key, first_kgs, in_key_order, kg_of, operator_range
from forkpoint.state.arrow_file import CHANGES, SNAPSHOT, ArrowFile, Block, as_list
from forkpoint.storage.base import LocalStorage, Storage

BLOCK_ENTRIES = 65_536
BLOCK_BYTES = 64 << 20
_IN_MEMORY = 4 << 20  # of a local file: each task reads a part of the larger ones

Wanted = tuple[FileRef, int]
"""A file and its kind, CHANGES or SNAPSHOT."""


class EntryFile(Protocol):
    """An open file: its record batches, and the keys and values of a batch."""

    @property
    def blocks(self) -> list[Block]: ...

    def read_columns(self, number: int) -> Columns: ...


class OpenFiles(Protocol):
    """Opens each file once."""

    def __call__(self, wanted: Sequence[Wanted]) -> list[EntryFile]: ...


@dataclass
class FilesOnStorage:
    """Reads whole files on demand, one after the other. It does not compare them with their SHA-256: several tasks read each
    file, and every part that is used has a checksum of its own."""

    storage: Storage
    _open: dict[FileRef, ArrowFile] = field(default_factory=dict)

    def __call__(self, wanted: Sequence[Wanted]) -> list[EntryFile]:
        for ref, kind in wanted:
            if ref not in self._open:
                self._open[ref] = ArrowFile(self._content(ref), kind, ref.name)
        return [self._open[ref] for ref, _ in wanted]

    def _content(self, ref: FileRef) -> bytes | mmap.mmap:
        if ref.path is not None and ref.size > _IN_MEMORY and isinstance(self.storage, LocalStorage):
            return self.storage.mapped(ref.path)
        return ref.content(self.storage)


@dataclass(frozen=True)
class ChainReader:
    """Reads the state in these files."""

    files: StateFiles
    open: OpenFiles

    def keyed(self, kg_start: int, kg_stop: int, sid: int | None = None) -> Entries:
        """The entries of these key groups, of state ``sid`` or of all states."""
        keys, values = self.keyed_columns(kg_start, kg_stop, sid)
        return as_list(keys), as_list(values)

    def keyed_columns(self, kg_start: int, kg_stop: int, sid: int | None = None) -> Columns:
        """``keyed`` in Arrow."""
        merged = [nothing()]
        for base in self.files.bases:
            start, stop = max(base.kg_start, kg_start), min(base.kg_stop, kg_stop)
            if start < stop:
                pieces = [piece for file in self.open(self._wanted(base, start, stop)) for piece in _read(file, start, stop)]
                merged.append(_merge(pieces if sid is None else [_of_state(piece, sid) for piece in pieces]))
        return _concat(merged)

    def changes(self, kg_start: int, kg_stop: int) -> tuple[list[bytes], list[bytes | None]]:
        """The last change of each entry of these key groups, in key order; None for removed entries."""
        wanted = [(change.file, CHANGES) for change in self.files.changes if change.overlaps(kg_start, kg_stop)]
        pieces = [piece for file in self.open(wanted) for piece in _read(file, kg_start, kg_stop)]
        keys, values = in_key_order(*_concat(pieces)) if pieces else nothing()
        return as_list(keys), as_list(values)

    def operator_state(self, sid: int | None = None) -> Entries:
        """The operator state of all subtasks in store order, of state ``sid`` or of all states."""
        entries: list[tuple[bytes, bytes]] = []
        for base in self.files.operators:
            wanted = [(snapshot, SNAPSHOT) for snapshot in base.snapshots]
            wanted += [
                (change.file, CHANGES)
                for change in self.files.changes
                if change.subtask == base.subtask and change.epoch > base.epoch
            ]
            pieces = [
                _of_subtask(piece if sid is None else _of_state(piece, sid), base.subtask)
                for file in self.open(wanted)
                for piece in _read(file, OPERATOR_KG, OPERATOR_KG + 1)
            ]
            entries += zip(*map(as_list, _merge(pieces)), strict=True)
        entries.sort()
        return [key for key, _ in entries], [value for _, value in entries]

    def between(self, start: bytes, stop: bytes) -> Entries:
        """The few entries with ``start`` <= key < ``stop``, all in the key group of ``start``."""
        merged: dict[bytes, bytes | None] = {}
        for file in self.open(self._of_group(kg_of(start))):
            for keys, values in _matches(file, start, stop):
                merged.update(zip(as_list(keys), as_list(values), strict=True))
        present = sorted((key, value) for key, value in merged.items() if value is not None)
        return [key for key, _ in present], [value for _, value in present]

    def newest(self, key: bytes, ahead: int) -> bytes | None:
        """The value of a store key in the newest file that has the key; None without a value. Opens ``ahead`` files at once."""
        wanted = self._of_group(kg_of(key))[::-1]
        for at in range(0, len(wanted), ahead):
            for file in self.open(wanted[at : at + ahead]):
                for _, values in _matches(file, key, key + b"\0"):
                    value: bytes | None = values[0].as_py()
                    return value
        return None

    def _of_group(self, group: int) -> list[Wanted]:
        """The files that may have entries of a key group, oldest first."""
        base = next((base for base in self.files.bases if base.overlaps(group, group + 1)), Base(0, 0, EMPTY, None))
        return self._wanted(base, group, group + 1)

    def _wanted(self, base: Base, start: int, stop: int) -> list[Wanted]:
        wanted = [] if base.snapshot is None else [(base.snapshot, SNAPSHOT)]
        return wanted + [
            (change.file, CHANGES) for change in self.files.changes if change.epoch > base.epoch and change.overlaps(start, stop)
        ]


def files_of(files: StateFiles) -> list[Wanted]:
    """All files, with their kinds."""
    snapshots = [base.snapshot for base in files.bases if base.snapshot is not None]
    snapshots += [snapshot for base in files.operators for snapshot in base.snapshots]
    return [(ref, SNAPSHOT) for ref in snapshots] + [(change.file, CHANGES) for change in files.changes]


def operator_state(storage: Storage, files: StateFiles) -> Entries:
    """The operator state of all subtasks, in store order."""
    return ChainReader(files, FilesOnStorage(storage)).operator_state()


def one_copy(sid: int, entries: Entries) -> Entries:
    """The first subtask's copy of broadcast state; all subtasks have the same copy."""
    keys, values = entries
    if not keys:
        return entries
    end = bisect_left(keys, operator_range(sid, decode_operator_key(keys[0]).subtask)[1])
    return keys[:end], values[:end]


def blocks(lengths: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Ranges of at most BLOCK_ENTRIES entries and, unless a single entry is larger, BLOCK_BYTES bytes, of values of these
    lengths."""
    sizes = np.cumsum(lengths)
    low = 0
    while low < len(sizes):
        before = int(sizes[low - 1]) if low else 0
        high = int(np.searchsorted(sizes, before + BLOCK_BYTES, side="right"))
        high = min(max(high, low + 1), low + BLOCK_ENTRIES, len(sizes))
        yield low, high
        low = high


def _read(file: EntryFile, kg_start: int, kg_stop: int) -> Iterator[Columns]:
    """The batches of these key groups, without entries of others."""
    for number, block in enumerate(file.blocks):
        if block.first_kg < kg_stop and block.last_kg >= kg_start:
            keys, values = file.read_columns(number)
            if block.first_kg < kg_start or block.last_kg >= kg_stop:
                low, high = np.searchsorted(first_kgs(keys), (kg_start, kg_stop)).tolist()
                keys, values = keys[low:high], values[low:high]
            yield keys, values


def _matches(file: EntryFile, start: bytes, stop: bytes) -> Iterator[Columns]:
    """The entries of a range within one key group."""
    group, blocks = kg_of(start), file.blocks
    for number in range(bisect_left(blocks, group, key=lambda block: block.last_kg), len(blocks)):
        if blocks[number].first_kg > group:
            return
        keys, values = file.read_columns(number)
        low = _insertion_point(keys, start)
        high = low
        while high < len(keys) and keys[high].as_py() < stop:  # faster than another search, as the entries are few
            high += 1
        if low < high:
            yield keys[low:high], values[low:high]
        if high < len(keys):
            return


def _insertion_point(keys: pa.Array, key: bytes) -> int:
    if not len(keys) or keys[-1].as_py() < key:
        return len(keys)
    return bisect_left(range(len(keys)), key, key=lambda index: keys[index].as_py())


def nothing() -> Columns:
    return pa.array([], pa.large_binary()), pa.array([], pa.large_binary())


def _merge(pieces: list[Columns]) -> Columns:
    """Merges a snapshot with later changes: the last value of each key wins; drops deleted keys."""
    if not pieces:
        return nothing()
    keys, values = in_key_order(*_concat(pieces))
    if values.null_count:
        keys, values = keys.filter(values.is_valid()), values.drop_null()
    return keys, values


def _concat(pieces: list[Columns]) -> Columns:
    keys, values = (pa.concat_arrays(list(columns)) for columns in zip(*pieces, strict=True))
    return keys, values


def _of_state(piece: Columns, sid: int) -> Columns:
    keys, values = piece
    mine = sids_of(keys) == sid
    if mine.all():
        return piece
    mask = pa.array(mine, pa.bool_())
    return keys.filter(mask), values.filter(mask)


def sids_of(keys: pa.Array) -> npt.NDArray[np.int64]:
    """The state id of each store key: the four bytes after the key group."""
    _, offsets, data = keys.buffers()
    starts: Any = np.frombuffer(offsets, np.int64)[keys.offset : keys.offset + len(keys)]
    if not len(keys):
        return np.zeros(0, np.int64)
    words: Any = np.ndarray((len(data) - 3,), ">u4", data, strides=(1,))  # the four bytes at each place
    found: npt.NDArray[np.int64] = words[starts + 2].astype(np.int64)
    return found


def _of_subtask(piece: Columns, subtask: int) -> Columns:
    mask = pa.array([decode_operator_key(key).subtask == subtask for key in as_list(piece[0])], pa.bool_())
    return piece[0].filter(mask), piece[1].filter(mask)

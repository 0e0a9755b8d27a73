"""Reads a subtask's share of a job's committed state: snapshots, and the changes of later epochs.

A request to an object store takes tens of milliseconds, and there are hundreds. So files are read in parallel, ahead of use.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.checkpoint.manifest import MANIFEST, ChangesRef, Manifest, SnapshotRef
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.errors import NotFound
from forkpoint.state import (
    OPERATOR_KG,
    Changes,
    Columns,
    Count,
    as_changes,
    decode_operator_key,
    first_kgs,
    in_key_order,
    read_change_columns,
    read_snapshot_columns,
)
from forkpoint.storage.base import Storage

T = TypeVar("T")
R = TypeVar("R")

NOTHING = 0  # the epoch before the first, with empty state
READERS = 16
PART_BYTES = 128 << 20
_AHEAD = 32  # epochs to read ahead
_SNAPSHOTS_AHEAD = 2
_LOAD_ROWS = 65_536


def part_bytes(memory_bytes: int | None) -> int:
    """How many bytes of changes to hold at once within a limit of memory: as columns in order they take several times as much."""
    return PART_BYTES if memory_bytes is None else min(PART_BYTES, memory_bytes // 16)


@dataclass(frozen=True)
class Share:
    """The state of one subtask: a range of key groups, and its operator state; or a part of that."""

    subtask: int
    kg_start: int
    kg_stop: int
    with_operator: bool = True

    def overlaps(self, ref: ChangesRef | SnapshotRef) -> bool:
        own = self.with_operator and ref.subtask == self.subtask
        return own or (ref.kg_start < self.kg_stop and self.kg_start < ref.kg_stop)

    def covers(self, ref: ChangesRef) -> bool:
        """Whether this file holds only entries of the subtask, which is true as long as the parallelism is unchanged."""
        return (
            self.with_operator and ref.subtask == self.subtask and self.kg_start <= ref.kg_start and ref.kg_stop <= self.kg_stop
        )

    def parts(self, number: int) -> list[Share]:
        """The share in so many parts, in key order; fewer if it has fewer key groups."""
        number = max(1, min(number, self.kg_stop - self.kg_start))
        bounds = [self.kg_start + part * (self.kg_stop - self.kg_start) // number for part in range(number + 1)]
        return [
            replace(self, kg_start=start, kg_stop=stop, with_operator=self.with_operator and stop == self.kg_stop)
            for start, stop in pairwise(bounds)
        ]


@dataclass(frozen=True)
class Bases:
    """The snapshots to rebuild a subtask's state from: the newest of each key group, if any."""

    share: Share
    epochs: tuple[int, ...]  # of the share's key groups, in order
    ranges: tuple[tuple[SnapshotRef, int, int], ...]
    operator_epoch: int
    operator_refs: tuple[SnapshotRef, ...]

    @staticmethod
    def of(manifest: Manifest, share: Share) -> Bases:
        newest: list[SnapshotRef | None] = []
        for group in range(share.kg_start, share.kg_stop):
            covering = [ref for ref in manifest.snapshots if ref.kg_start <= group < ref.kg_stop]
            newest.append(max(covering, key=lambda ref: ref.epoch, default=None))
        ranges: list[tuple[SnapshotRef, int, int]] = []
        for group, ref in enumerate(newest, share.kg_start):
            if ref is not None and ranges and ranges[-1][0] is ref:
                ranges[-1] = (ref, ranges[-1][1], group + 1)
            elif ref is not None:
                ranges.append((ref, group, group + 1))
        own = [ref for ref in manifest.snapshots if share.with_operator and ref.subtask == share.subtask]
        epochs = tuple(NOTHING if ref is None else ref.epoch for ref in newest)
        # A subtask without a snapshot is new since the last rescaling, and had no operator state before it.
        operator_epoch = max((ref.epoch for ref in own), default=min(epochs, default=NOTHING))
        # A rescaling divides a reference into two references to the same file.
        operator_refs = tuple({ref.path: ref for ref in own if ref.epoch == operator_epoch}.values())
        return Bases(share, epochs, tuple(ranges), operator_epoch, operator_refs)

    @property
    def oldest(self) -> int:
        return min((*self.epochs, self.operator_epoch))


def columns_of(storage: Storage, ref: ChangesRef) -> Columns:
    """The changes of one stage and subtask in one epoch."""
    inline = ref.inline_data()
    name = ref.path or f"changes of stage {ref.stage}, subtask {ref.subtask} in the manifest"
    return read_change_columns(storage.read(ref.path) if inline is None and ref.path else inline or b"", name)


@dataclass(frozen=True)
class _Step:
    """An epoch, and a subtask's share of its changes, stage by stage."""

    manifest: Manifest
    changes: Sequence[Columns]


@dataclass(frozen=True)
class CommittedState:
    """A subtask's part of the state below a state root. ``part_bytes``: about how many bytes of changes are in memory at once."""

    storage: Storage
    paths: JobPaths
    share: Share
    part_bytes: int = PART_BYTES

    def manifest(self, epoch: int) -> Manifest:
        return MANIFEST.load(self.storage, self.paths.manifest(epoch))

    def after(self, version: int, committed: int) -> Iterator[Changes]:
        """The changes of each epoch after a version; ends before ``committed`` if the state of the next epoch is not based on the
        previous epoch, or its files are gone."""
        with ThreadPoolExecutor(READERS) as pool:
            try:
                for step in _in_parallel(pool, self._step, range(version + 1, committed + 1)):
                    epoch = step.manifest.epoch
                    restored = any(ref.epoch == epoch for ref in step.manifest.snapshots)
                    if restored or step.manifest.epoch_before != epoch - 1:
                        return
                    yield as_changes(*_joined(step.changes))
            except NotFound:
                return
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def entries(self, manifest: Manifest, count: Count | None = None) -> Iterator[Columns]:
        """All entries as of an epoch, in key order, in chunks that a store can load; ``count`` counts them.

        The changes of a large state do not fit into memory, so its key groups are read one part after the other.
        """
        # Changes are about as large as the snapshot at most; of each part, all change files are read again.
        size = sum(ref.bytes for ref in manifest.snapshots if self.share.overlaps(ref))
        for part in self.share.parts(-(-size // self.part_bytes)):
            yield from replace(self, share=part)._entries(manifest, count)

    def _entries(self, manifest: Manifest, count: Count | None) -> Iterator[Columns]:
        bases = Bases.of(manifest, self.share)
        with ThreadPoolExecutor(READERS) as pool:
            try:
                steps = self._steps(pool, manifest, bases)
                changed = in_key_order(*_joined([part for step in steps for part in step.changes]))
                for columns in map(_present, _overlaid(self._snapshots(pool, bases), changed)):
                    if count is not None:
                        count.add(*columns)
                    yield columns
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    # -- changes

    def _steps(self, pool: Executor, newest: Manifest, bases: Bases) -> list[_Step]:
        """The epochs after the snapshots, oldest first, at most back to the job's first state. An epoch is nearly always based on
        the epoch with the previous number, so these are read without waiting for the manifest of the later epoch."""
        if newest.epoch <= bases.oldest:
            return []
        ahead: dict[int, Future[_Step]] = {}
        steps = [_Step(newest, self._changes(newest, bases))]
        while True:
            step = steps[-1].manifest
            before = step.epoch_before
            if before is None or before <= bases.oldest or not step.states:
                if step.kind == "start" and not step.states and self.storage.exists(self.paths.fence(step.epoch)):
                    # The leader has replaced a removed manifest by a fence; this is not the job's first state.
                    raise NotFound(f"the manifest of epoch {step.epoch} was removed: its job has gone on since")
                return steps[::-1]
            for epoch in range(before, max(bases.oldest, before - _AHEAD), -1):
                if epoch not in ahead:
                    ahead[epoch] = pool.submit(self._step, epoch, bases)
            steps.append(ahead.pop(before).result())

    def _step(self, epoch: int, bases: Bases | None = None) -> _Step:
        manifest = self.manifest(epoch)
        return _Step(manifest, self._changes(manifest, bases))

    def _changes(self, manifest: Manifest, bases: Bases | None) -> list[Columns]:
        """This subtask's changes of an epoch, without the changes that ``bases`` contain."""
        refs = sorted((r for r in manifest.changes if self.share.overlaps(r)), key=lambda r: (r.stage, r.subtask))
        parts = []
        for ref in refs:
            columns = columns_of(self.storage, ref)
            uniform = bases is None or len({*bases.epochs, bases.operator_epoch}) == 1
            parts.append(columns if uniform and self.share.covers(ref) else self._owned(columns, bases, manifest.epoch))
        return parts

    def _owned(self, columns: Columns, bases: Bases | None, epoch: int) -> Columns:
        keys, values = columns
        kgs, share = first_kgs(keys), self.share
        own = (kgs >= share.kg_start) & (kgs < share.kg_stop)
        if bases is not None and own.any():
            own[own] = np.array(bases.epochs)[kgs[own] - share.kg_start] < epoch
        if self.share.with_operator and (bases is None or bases.operator_epoch < epoch):
            own |= _operator_entries(keys, kgs, share.subtask)
        return keys.filter(pa.array(own)), values.filter(pa.array(own))

    # -- snapshots

    def _snapshots(self, pool: Executor, bases: Bases) -> Iterator[Columns]:
        """The entries of the snapshots, in key order."""
        refs = [ref for ref, _, _ in bases.ranges] + list(bases.operator_refs)
        files = _in_parallel(pool, lambda ref: self.storage.read(ref.path), refs, _SNAPSHOTS_AHEAD)
        for ref, start, stop in bases.ranges:
            yield from read_snapshot_columns(next(files), start, stop, ref.path)
        operator = []
        for ref in bases.operator_refs:
            for keys, values in read_snapshot_columns(next(files), OPERATOR_KG, OPERATOR_KG + 1, ref.path):
                own = pa.array(_operator_entries(keys, first_kgs(keys), self.share.subtask))
                operator.append((keys.filter(own), values.filter(own)))
        yield in_key_order(*_joined(operator))


def _operator_entries(keys: pa.Array, kgs: npt.NDArray[np.int64], subtask: int) -> npt.NDArray[np.bool_]:
    """The mask of the keys of a subtask's operator state. They are few, because operator state is small."""
    found: npt.NDArray[np.bool_] = kgs == OPERATOR_KG
    for index in np.flatnonzero(found):
        found[index] = decode_operator_key(keys[int(index)].as_py()).subtask == subtask
    return found


def _in_parallel(pool: Executor, fn: Callable[[T], R], items: Iterable[T], number: int = _AHEAD) -> Iterator[R]:
    """``map(fn, items)``, with ``number`` items ahead."""
    ahead: deque[Future[R]] = deque()
    for item in items:
        ahead.append(pool.submit(fn, item))
        if len(ahead) >= number:
            yield ahead.popleft().result()
    while ahead:
        yield ahead.popleft().result()


def _joined(parts: Sequence[Columns]) -> Columns:
    none = pa.array([], pa.large_binary())
    return pa.concat_arrays([none, *(k for k, _ in parts)]), pa.concat_arrays([none, *(v for _, v in parts)])


def _overlaid(base: Iterator[Columns], changed: Columns) -> Iterator[Columns]:
    """Entries with changes on top of them, both in key order, in larger chunks."""
    keys, values = changed
    done = 0
    for chunk in _larger(base):
        last = chunk[0][-1].as_py()
        until = bisect_right(range(len(keys)), last, done, key=lambda index: keys[index].as_py())
        changes = (keys.slice(done, until - done), values.slice(done, until - done))
        yield in_key_order(*_joined([chunk, changes])) if until > done else chunk
        done = until
    for start in range(done, len(keys), _LOAD_ROWS):
        yield keys.slice(start, _LOAD_ROWS), values.slice(start, _LOAD_ROWS)


def _larger(chunks: Iterator[Columns]) -> Iterator[Columns]:
    """Fewer chunks, none of them empty, because the store writes each chunk in a separate transaction."""
    held: list[Columns] = []
    rows = 0
    for chunk in chunks:
        held.append(chunk)
        rows += len(chunk[0])
        if rows >= _LOAD_ROWS or sum(v.nbytes for _, v in held) > 8 << 20:
            yield _joined(held)
            held, rows = [], 0
    if rows:
        yield _joined(held)


def _present(columns: Columns) -> Columns:
    """The entries without deletes."""
    keys, values = columns
    if values.null_count:
        present = values.is_valid()
        keys, values = keys.filter(present), values.filter(present)
    return keys, values

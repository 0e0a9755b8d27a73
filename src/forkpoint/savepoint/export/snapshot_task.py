"""The tasks that write a snapshot: each merges the last snapshot of some key groups with the changes since."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from forkpoint.checkpoint.format import checksum
from forkpoint.checkpoint.manifest import Manifest, SnapshotRef
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.savepoint.export.chain import StateFiles
from forkpoint.savepoint.export.chain_reader import ChainReader, FilesOnStorage
from forkpoint.savepoint.format.entries import as_binary
from forkpoint.savepoint.format.sorting import ENTRIES_PER_PART, MAX_SLICES, KeyGroupRange, steps
from forkpoint.savepoint.format.tasks import TaskOf, task
from forkpoint.state import Amount, Count, key_group_range
from forkpoint.state.arrow_file import SNAPSHOT, ArrowFileWriter
from forkpoint.storage.base import open_storage


@dataclass(frozen=True)
class SnapshotSlice(KeyGroupRange):
    """Key groups of a subtask at an epoch. ``operator``: the files of its operator state, which one of its slices has."""

    storage_url: str
    job: str
    epoch: int
    subtask: int
    files: StateFiles
    entries: int
    operator: StateFiles | None


@dataclass(frozen=True)
class WrittenSnapshot:
    """``counted``: the size of each state in it, by sid."""

    attempt: str
    path: str
    entries: int
    bytes: int
    checksum: str
    counted: dict[int, Amount] = field(default_factory=dict)

    def ref(self, of: SnapshotSlice) -> SnapshotRef:
        return SnapshotRef(
            subtask=of.subtask,
            attempt=self.attempt,
            epoch=of.epoch,
            kg_start=of.kg_start,
            kg_stop=of.kg_stop,
            path=self.path,
            entries=self.entries,
            bytes=self.bytes,
            checksum=self.checksum,
        )


@task(SnapshotSlice)
def _write_slice(plan: SnapshotSlice) -> WrittenSnapshot:
    storage, writer, count = open_storage(plan.storage_url), ArrowFileWriter(SNAPSHOT), Count()
    reader = ChainReader(plan.files, FilesOnStorage(storage))
    for start, stop in steps(plan.kg_start, plan.kg_stop, plan.entries) if plan.kg_start < plan.kg_stop else ():
        columns = reader.keyed_columns(start, stop)
        count.add(*columns)
        writer.write(*columns)
    if plan.operator is not None:
        columns = as_binary(ChainReader(plan.operator, FilesOnStorage(storage)).operator_state())
        count.add(*columns)
        writer.write(*columns)
    data, attempt = writer.finish(), uuid.uuid4().hex[:16]
    path = JobPaths(plan.job).snapshot(plan.epoch, plan.subtask, attempt)
    storage.put(path, data)
    return WrittenSnapshot(attempt, path, count.entries, len(data), checksum(data), count.amounts)


write_slice = TaskOf[SnapshotSlice, WrittenSnapshot](_write_slice, WrittenSnapshot)


def slices(storage_url: str, manifest: Manifest, files: StateFiles, subtasks: Sequence[int]) -> Iterator[SnapshotSlice]:
    """The tasks for the snapshots of these subtasks, in their order. Several files keep each task short and its memory small."""
    most = max(1, MAX_SLICES // manifest.parallelism)
    operator = files.operator_state()
    for subtask in subtasks:
        start, stop = key_group_range(subtask, manifest.parallelism, manifest.max_parallelism)
        share = files.entries * (stop - start) // manifest.max_parallelism
        count = max(1, min(most, stop - start, -(-share // ENTRIES_PER_PART)))
        for number in range(count):
            low, high = (start + each * (stop - start) // count for each in (number, number + 1))
            yield SnapshotSlice(
                low,
                high,
                storage_url,
                manifest.job,
                manifest.epoch,
                subtask,
                files.slice(low, high),
                share // count,
                _of_subtask(operator, subtask) if number == 0 else None,
            )


def _of_subtask(operator: StateFiles, subtask: int) -> StateFiles:
    own = tuple(base for base in operator.operators if base.subtask == subtask)
    return replace(operator, operators=own, changes=tuple(c for c in operator.changes if own and c.subtask == subtask))

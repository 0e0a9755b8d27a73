"""Snapshots of large state, made beside the epochs: a merge of a subtask's last snapshot with the changes since then.

The merge reads only files of a committed epoch, which is pinned meanwhile, and writes files under names of its own. They count
once the manifest of a later epoch of the same attempt names them, as the snapshot of the epoch that they are of. If something
comes before that (the driver dies, a task runs twice, the job is rescaled, a newer run leads), they are garbage.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from forkpoint import logs
from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.manifest import Manifest, SnapshotRef
from forkpoint.errors import JobFailed
from forkpoint.runtime.exchange.control import CommitRow
from forkpoint.savepoint.export.chain import state_files
from forkpoint.savepoint.export.snapshot_task import SnapshotSlice, WrittenSnapshot, slices, write_slice
from forkpoint.savepoint.format.tasks import RunTasks, encode
from forkpoint.state import Amounts, sum_amounts

log = logging.getLogger("forkpoint")

LARGE_BYTES = 2 << 20
"""Of a subtask's state: reading less from its store takes an epoch some tenths of a second."""


class Throttled(Protocol):
    """See ``background.throttled``."""

    def __call__(self, manifest: Manifest, *, over: Callable[[], bool]) -> RunTasks: ...


def is_large(manifest: Manifest) -> bool:
    """Whether snapshots take too long to be a part of an epoch."""
    known = manifest.amounts
    size = sum(each.bytes for each in known) if known is not None else sum(each.bytes for each in manifest.snapshots)
    return size > LARGE_BYTES * manifest.parallelism


@dataclass
class Merge:
    """The snapshots of some subtasks at ``manifest``. ``since``: epochs and bytes of changes since their last snapshots, then.
    ``written``: once it is complete; empty if it has failed. ``grown``: by the epochs after ``manifest``."""

    manifest: Manifest
    since: Mapping[int, tuple[int, int]]
    written: list[tuple[SnapshotSlice, WrittenSnapshot]] | None = None
    grown: list[tuple[int, Amounts]] = field(default_factory=list)

    @property
    def refs(self) -> list[SnapshotRef]:
        return [written.ref(plan) for plan, written in self.written or ()]

    def counted(self) -> dict[int, Amounts]:
        """The size of each subtask's states as of the last epoch that ``grown`` knows."""
        parts: dict[int, list[Amounts]] = {}
        for plan, written in self.written or ():
            parts.setdefault(plan.subtask, []).append(written.counted)
        for subtask, grown in self.grown:
            if subtask in parts:
                parts[subtask].append(grown)
        return {subtask: sum_amounts(each) for subtask, each in parts.items()}

    def rest(self, subtask: int, since: tuple[int, int]) -> tuple[int, int]:
        """``since``, of now, without what the snapshots have."""
        epochs, size = self.since.get(subtask, (0, 0))
        return since[0] - epochs, since[1] - size


@dataclass
class Snapshots:
    """The snapshots of one attempt that are made beside its epochs, one merge at a time. Not thread-safe. ``failed``: the last
    merge has, perhaps because a file is damaged, so the next snapshots are to be made within an epoch, from the stores."""

    history: History
    throttled: Throttled
    _merge: Merge | None = None
    failed: bool = False
    _over: bool = False

    @property
    def in_progress(self) -> bool:
        """Whether a merge runs, or is not yet in a manifest: no older state may be overtaken by a newer snapshot."""
        return self._merge is not None

    def pinned(self) -> set[int]:
        """Epochs whose files, and whose snapshots that no manifest names, are needed."""
        merge = self._merge
        return set() if merge is None else {merge.manifest.epoch}

    def begin(self, manifest: Manifest, since: Mapping[int, tuple[int, int]], subtasks: Sequence[int]) -> None:
        """Begin a merge of this committed epoch for these subtasks, unless there is one."""
        if self._merge is not None or not subtasks:
            return
        merge = self._merge = Merge(manifest, {subtask: since[subtask] for subtask in subtasks})

        def work() -> None:
            try:
                merge.written = self._written(manifest, subtasks)
            except Exception as error:
                if not self._over:
                    log.warning("job %r: an epoch will make a snapshot instead of a merge: %s", manifest.job, error)
                merge.written = []

        threading.Thread(target=logs.carried(work), name="forkpoint-snapshots", daemon=True).start()

    def _written(self, manifest: Manifest, subtasks: Sequence[int]) -> list[tuple[SnapshotSlice, WrittenSnapshot]]:
        files = state_files(manifest, self._load)
        plans = list(slices(self.history.storage.url, manifest, files, subtasks))
        run = self.throttled(manifest, over=lambda: self._over)
        return list(zip(plans, map(write_slice.open, run(write_slice.run, list(map(encode, plans)))), strict=True))

    def _load(self, epoch: int) -> Manifest:
        if self._over:
            raise JobFailed("the attempt is over")
        return self.history.load(epoch)

    def made(self) -> Merge | None:
        """A complete merge, for the next manifest."""
        merge = self._merge
        if merge is None or merge.written is None:
            return None
        if not merge.written:
            self._merge, self.failed = None, True
            return None
        return merge

    def committed(self, rows: Iterable[CommitRow], made: Merge | None) -> None:
        """After the commit of an epoch, with a merge in its manifest or none."""
        rows = list(rows)
        if made is not None:
            self._merge = None
        if any(row.snapshot is not None for row in rows):
            self.failed = False
        if (merge := self._merge) is not None:
            merge.grown += [(row.subtask, row.changes.grown) for row in rows if row.changes is not None]

    def close(self) -> None:
        """After the attempt. It does not wait for a task that runs, whose file is garbage."""
        self._over = True

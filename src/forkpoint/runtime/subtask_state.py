"""The local store of one subtask and how it catches up with committed epochs: the one way state gets anywhere.

The next epoch, a task that moved, a retry, a restart, a rescale and an export all come through ``catch_up``: from what the
store has to a committed version, over the changes of the epochs between or from snapshots. Nothing is ever rolled back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from forkpoint.errors import NotFound, StorageError
from forkpoint.runtime.epoch import EpochContext
from forkpoint.snapshot.manifest import MANIFEST, ChangesRef, Manifest, SnapshotRef
from forkpoint.snapshot.paths import JobPaths
from forkpoint.snapshot.storage import Storage
from forkpoint.state import OPERATOR_KG, Changes, Store, decode_operator_key, kg_of, read_changes, read_snapshot


@dataclass(frozen=True)
class Share:
    """What one subtask owns: a range of key groups, and its own operator state."""

    subtask: int
    kg_start: int
    kg_stop: int

    def overlaps(self, ref: ChangesRef | SnapshotRef) -> bool:
        return ref.subtask == self.subtask or (ref.kg_start < self.kg_stop and self.kg_start < ref.kg_stop)

    def covers(self, ref: ChangesRef) -> bool:
        """Whether all that this file holds is the subtask's own: always so while the parallelism stays the same."""
        return ref.subtask == self.subtask and self.kg_start <= ref.kg_start and ref.kg_stop <= self.kg_stop

    def owns(self, key: bytes) -> bool:
        group = kg_of(key)
        if group == OPERATOR_KG:
            return decode_operator_key(key).subtask == self.subtask
        return self.kg_start <= group < self.kg_stop


def read_manifest(storage: Storage, paths: JobPaths, epoch: int) -> Manifest:
    return MANIFEST.load(storage, paths.manifest(epoch))


def changes_of(storage: Storage, ref: ChangesRef) -> Changes:
    inline = ref.inline_data()
    name = ref.path or f"changes of stage {ref.stage}, subtask {ref.subtask} in the manifest"
    return read_changes(storage.read(ref.path) if inline is None and ref.path else inline or b"", name)


class SubtaskState:
    """A store, and what this process wrote in the last epoch in case it is accepted."""

    def __init__(self, store: Store, storage: Storage, paths: JobPaths, share: Share) -> None:
        self.store = store
        self._storage = storage
        self._paths = paths
        self._share = share
        self._pending: dict[int, tuple[str, Changes]] = {}
        self._pending_epoch = 0

    def keep(self, epoch: int, stage: int, attempt: str, changes: Changes) -> None:
        """Remember what an attempt wrote; if the manifest names it, it need not be read back."""
        if epoch != self._pending_epoch:
            self._pending, self._pending_epoch = {}, epoch
        self._pending[stage] = (attempt, changes)

    def catch_up(self, context: EpochContext) -> None:
        version = self.store.version
        if version == context.committed:
            return
        if version == context.committed - 1 and version > 0 and self._pending_epoch == context.committed:
            suffix = f"-{self._share.subtask}"
            accepted = {int(k.removesuffix(suffix)): a for k, a in context.previous.items() if k.endswith(suffix)}
            if accepted == {stage: attempt for stage, (attempt, _) in self._pending.items() if stage in accepted}:
                merged = merge(self._pending[stage][1] for stage in sorted(accepted))
                self.store.apply(merged, context.committed, version)
                return
        manifest = read_manifest(self._storage, self._paths, context.committed)
        if not (0 < version < context.committed and self._follow(version, context.committed)):
            self._rebuild(manifest)

    def _follow(self, version: int, committed: int) -> bool:
        """Apply the epochs in between; False if one of them has been cleaned up."""
        try:
            for epoch in range(version + 1, committed + 1):
                manifest = read_manifest(self._storage, self._paths, epoch)
                if manifest.kind == "start" and any(s.epoch == epoch for s in manifest.snapshots):
                    return False  # state was brought in from elsewhere
                self.store.apply(self._changes(manifest, {}), epoch, epoch - 1)
        except NotFound:
            return False
        return True

    def _rebuild(self, manifest: Manifest) -> None:
        self.store.clear()
        refs = [ref for ref in manifest.snapshots if self._share.overlaps(ref)]
        base = min((ref.epoch for ref in refs), default=first_epoch(self._storage, self._paths) - 1)
        ahead = {ref: ref.epoch for ref in refs if ref.epoch > base}
        self.store.load(self._snapshots(refs), base) if refs and base > 0 else None
        version = base if refs and base > 0 else 0
        for epoch in range(base + 1, manifest.epoch + 1):
            step = manifest if epoch == manifest.epoch else read_manifest(self._storage, self._paths, epoch)
            self.store.apply(self._changes(step, ahead), epoch, version)
            version = epoch
        if version == 0:
            self.store.apply(Changes([], []), manifest.epoch, 0)

    def _snapshots(self, refs: list[SnapshotRef]) -> Iterator[Changes]:
        share = self._share
        for ref in sorted(refs, key=lambda r: r.kg_start):
            data = self._storage.read(ref.path)
            yield from read_snapshot(data, max(ref.kg_start, share.kg_start), min(ref.kg_stop, share.kg_stop), ref.path)
        for ref in refs:
            if ref.subtask == share.subtask:
                for chunk in read_snapshot(self._storage.read(ref.path), OPERATOR_KG, OPERATOR_KG + 1, ref.path):
                    yield self._mine(chunk)

    def _changes(self, manifest: Manifest, ahead: dict[SnapshotRef, int]) -> Changes:
        """This subtask's changes of an epoch, without those that a newer snapshot already has."""
        newer = [ref for ref, epoch in ahead.items() if epoch >= manifest.epoch]
        parts = []
        for ref in sorted(manifest.changes, key=lambda r: r.stage):
            if self._share.covers(ref) and not newer:
                parts.append(changes_of(self._storage, ref))
            elif self._share.overlaps(ref):
                parts.append(self._mine(changes_of(self._storage, ref), newer))
        return merge(parts)

    def _mine(self, changes: Changes, newer: Iterable[SnapshotRef] = ()) -> Changes:
        owns = self._share.owns
        skipped = [(r.kg_start, r.kg_stop, r.subtask) for r in newer]

        def wanted(key: bytes) -> bool:
            if not owns(key):
                return False
            group = kg_of(key)
            return not any(
                a <= group < b or (group == OPERATOR_KG and decode_operator_key(key).subtask == s)
                for a, b, s in skipped
            )

        kept = [i for i, key in enumerate(changes.keys) if wanted(key)]
        if len(kept) == len(changes):
            return changes
        return Changes([changes.keys[i] for i in kept], [changes.values[i] for i in kept])


def merge(parts: Iterable[Changes]) -> Changes:
    """Several stages' changes as one; they never touch the same keys."""
    parts = list(parts)
    if len(parts) == 1:
        return parts[0]
    return Changes([k for p in parts for k in p.keys], [v for p in parts for v in p.values])


def first_epoch(storage: Storage, paths: JobPaths) -> int:
    """The oldest epoch whose manifest is still there."""
    names = storage.list(paths.checkpoints)
    found = [parsed.epoch for name in names if (parsed := paths.parse(name)) is not None]
    if not found:
        raise StorageError(f"{storage.url}: no checkpoint of job {paths.job!r} under {paths.checkpoints}")
    return int(np.min(found))

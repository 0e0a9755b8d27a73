"""The local store of one subtask, and how it catches up with committed epochs.

The next epoch, a moved task, a retry, a restart, a rescale and an export all use ``catch_up``: it brings the store to a
committed version, by the changes of the epochs between or from snapshots. A store is never rolled back.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from forkpoint.checkpoint.manifest import MANIFEST, ChangesRef, Manifest, SnapshotRef
from forkpoint.checkpoint.paths import JobPaths, recovery_hint
from forkpoint.errors import NotFound, SavepointCorrupt, StorageError
from forkpoint.runtime.exchange.control import CatchUp, CatchUpKind, EpochContext
from forkpoint.state import (
    OPERATOR_KG,
    Changes,
    HostChanges,
    Store,
    WriteBackStore,
    decode_operator_key,
    kg_of,
    read_changes,
    read_snapshot,
)
from forkpoint.storage.base import Storage


@dataclass(frozen=True)
class Share:
    """What one subtask owns: a range of key groups, and its own operator state."""

    subtask: int
    kg_start: int
    kg_stop: int

    def overlaps(self, ref: ChangesRef | SnapshotRef) -> bool:
        return ref.subtask == self.subtask or (ref.kg_start < self.kg_stop and self.kg_start < ref.kg_stop)

    def covers(self, ref: ChangesRef) -> bool:
        """Whether this file holds only the subtask's own entries: always true while the parallelism stays the same."""
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
    """A store, and the changes that this process wrote in the last epoch, in case they are accepted. ``host``: those of all
    processes of the host, if there are several."""

    def __init__(
        self, store: Store, storage: Storage, paths: JobPaths, share: Share, host: HostChanges | None = None
    ) -> None:
        self.store = store
        self._storage = storage
        self._paths = paths
        self._share = share
        self._host = host
        self._pending: dict[int, tuple[str, Changes]] = {}
        self._pending_epoch = 0

    def keep(self, epoch: int, stage: int, attempt: str, changes: Changes) -> None:
        """Remember an attempt's changes; if the manifest names it, they need not be read back."""
        if epoch != self._pending_epoch:
            self._pending, self._pending_epoch = {}, epoch
        self._pending[stage] = (attempt, changes)

    def offer(self, epoch: int, stage: int, attempt: str, changelog: bytes) -> None:
        """Leave an attempt's changes, as a changelog, to the other processes of the host."""
        if self._host is not None:
            self._host.write(epoch, stage, attempt, changelog)

    def catch_up(self, context: EpochContext) -> CatchUp | None:
        """Bring the store to the committed epoch; None if it is there already."""
        version, began = self.store.version, time.perf_counter()
        if version == context.committed:
            return None
        return self._caught_up(self._catch_up(context, version), context.committed - version, began)

    def prepare(self, epoch: int) -> CatchUp | None:
        """``catch_up`` of a store that no task uses yet; None if it is at this epoch, or beyond it."""
        version, began = self.store.version, time.perf_counter()
        if version >= epoch:
            return None
        return self._caught_up(self._read(version, epoch), epoch - version, began)

    def _caught_up(self, by: CatchUpKind, epochs: int, began: float) -> CatchUp:
        return CatchUp(self._share.subtask, by, epochs, round((time.perf_counter() - began) * 1000))

    def _catch_up(self, context: EpochContext, version: int) -> CatchUpKind:
        if version > context.committed:  # a rollback would corrupt the state of the newer epoch's task
            raise StorageError(
                f"job {self._paths.job!r}, subtask {self._share.subtask}: its local store has reached epoch {version}; this "
                f"task begins at epoch {context.committed}, so it is a leftover of an abandoned attempt"
            )
        accepted = self._accepted(context)
        if self._host is not None and accepted:
            self._host.accept(context.committed, accepted)
        mine = {stage: attempt for stage, (attempt, _) in self._pending.items()}
        if 0 < version == context.committed - 1 == self._pending_epoch - 1 and accepted == mine:
            merged = merge(self._pending[stage][1] for stage in sorted(accepted))
            self.store.apply(merged, context.committed, version)
            return "memory"
        version = self._follow_host(version, context.committed)
        if version == context.committed:
            return "host"
        try:
            by = self._read(version, context.committed)
        except (SavepointCorrupt, NotFound) as error:
            job = self._paths.job
            raise SavepointCorrupt(
                f"job {job!r}: cannot read the state of epoch {context.committed}: {error}\n{recovery_hint(job)}"
            ) from error
        if isinstance(self.store, WriteBackStore):
            self.store.flush()  # so that no other process has to read it too
        return by

    def _follow_host(self, version: int, committed: int) -> int:
        """Apply what other processes have left on this host; returns the version that the store has then."""
        while self._host is not None and 0 < version < committed:
            parts = self._host.read(version + 1)
            if parts is None:
                current = self.store.version
                if current == version:
                    break
                version = current  # another process has written it to the store meanwhile, and removed the files
            else:
                self.store.apply(merge(parts), version + 1, version)
                version += 1
        return version

    def _read(self, version: int, committed: int) -> CatchUpKind:
        """Bring the store from its version to a later, committed one with what is on storage."""
        manifest = read_manifest(self._storage, self._paths, committed)
        if version > 0 and self._follow(version, committed):
            return "changes"
        self._rebuild(manifest)
        return "rebuild"

    def _accepted(self, context: EpochContext) -> dict[int, str]:
        """The attempts of this subtask that the committed manifest names, by stage."""
        suffix = f"-{self._share.subtask}"
        found = {int(k.removesuffix(suffix)): attempt for k, attempt in context.previous.items() if k.endswith(suffix)}
        return {stage: attempt for stage, attempt in found.items() if stage > 0}

    def _follow(self, version: int, committed: int) -> bool:
        """Apply the changes of the epochs between; False if they are incomplete."""
        try:
            for epoch in range(version + 1, committed + 1):
                manifest = read_manifest(self._storage, self._paths, epoch)
                if manifest.epoch_before != epoch - 1 or any(ref.epoch == epoch for ref in manifest.snapshots):
                    return False  # its state comes from a restore, not from the previous epoch
                self.store.apply(self._changes(manifest, None), epoch, epoch - 1)
        except NotFound:
            return False
        return True

    def _rebuild(self, manifest: Manifest) -> None:
        """Fill the store from the newest snapshots and the changes after them."""
        self.store.clear()
        bases = Bases.of(manifest, self._share)
        steps = self._steps(manifest, bases.oldest)
        if bases.oldest > NOTHING:
            self.store.load(self._snapshots(bases), bases.oldest)
            for step in steps:
                self.store.apply(self._changes(step, bases), step.epoch, self.store.version)
            return
        # Some key groups have no snapshot yet, so there is no common version to start from.
        parts = [*self._snapshots(bases), *(self._changes(step, bases) for step in steps)]
        self.store.apply(merge(parts), manifest.epoch, 0)

    def _steps(self, manifest: Manifest, oldest: int) -> list[Manifest]:
        """The manifests after an epoch, oldest first, at most back to the job's first state."""
        steps: list[Manifest] = []
        step = manifest
        while step.epoch > oldest:
            steps.append(step)
            before = step.epoch_before
            if before is None or before <= oldest or not step.states:
                break
            step = read_manifest(self._storage, self._paths, before)
        return steps[::-1]

    def _snapshots(self, bases: Bases) -> Iterator[Changes]:
        for ref, start, stop in bases.ranges:
            yield from read_snapshot(self._storage.read(ref.path), start, stop, ref.path)
        for ref in bases.operator_refs:
            for chunk in read_snapshot(self._storage.read(ref.path), OPERATOR_KG, OPERATOR_KG + 1, ref.path):
                yield self._mine(chunk, None)

    def _changes(self, manifest: Manifest, bases: Bases | None) -> Changes:
        """This subtask's changes of an epoch, without those that ``bases`` contain."""
        parts = []
        for ref in sorted(manifest.changes, key=lambda r: (r.stage, r.subtask)):
            if self._share.covers(ref) and (bases is None or bases.oldest == bases.newest):
                parts.append(changes_of(self._storage, ref))
            elif self._share.overlaps(ref):
                after = None if bases is None else (bases, manifest.epoch)
                parts.append(self._mine(changes_of(self._storage, ref), after))
        return merge(parts)

    def _mine(self, changes: Changes, after: tuple[Bases, int] | None) -> Changes:
        share = self._share

        def wanted(key: bytes) -> bool:
            return share.owns(key) and (after is None or after[1] > after[0].epoch_of(kg_of(key)))

        kept = [i for i, key in enumerate(changes.keys) if wanted(key)]
        if len(kept) == len(changes):
            return changes
        return Changes([changes.keys[i] for i in kept], [changes.values[i] for i in kept])


NOTHING = 0  # the epoch before the first, with empty state


@dataclass(frozen=True)
class Bases:
    """What a subtask's state is rebuilt from: the newest snapshot of each key group, or nothing."""

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
        mine = [ref for ref in manifest.snapshots if ref.subtask == share.subtask]
        epochs = tuple(NOTHING if ref is None else ref.epoch for ref in newest)
        # A subtask without a snapshot of its own is new since the last rescaling, and had no operator state before it.
        operator_epoch = max((ref.epoch for ref in mine), default=min(epochs, default=NOTHING))
        operator_refs = tuple(ref for ref in mine if ref.epoch == operator_epoch)
        return Bases(share, epochs, tuple(ranges), operator_epoch, operator_refs)

    @property
    def oldest(self) -> int:
        return min((*self.epochs, self.operator_epoch))

    @property
    def newest(self) -> int:
        return max((*self.epochs, self.operator_epoch))

    def epoch_of(self, group: int) -> int:
        return self.operator_epoch if group == OPERATOR_KG else self.epochs[group - self.share.kg_start]


def merge(parts: Iterable[Changes]) -> Changes:
    """The changes of several stages, which never change the same keys, as one."""
    parts = list(parts)
    if len(parts) == 1:
        return parts[0]
    return Changes([k for p in parts for k in p.keys], [v for p in parts for v in p.values])

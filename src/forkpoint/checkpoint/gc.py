"""Which files of a job are garbage: a pure plan, complete before anything is deleted.

A retained manifest keeps its own file, its snapshots, and the manifests and changes of every epoch after the oldest of
its snapshots up to its own: that is what its state is made of. Of a job without state that is its own file alone. Retained
are the newest `num_retained` manifests and the pinned ones. Of the epochs that are committed, everything else goes; of
later ones, nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from forkpoint.checkpoint.manifest import Manifest, SnapshotRef
from forkpoint.checkpoint.paths import EpochFile, JobPaths
from forkpoint.errors import ConfigError, StorageError

DEFAULT_RETAINED = 10


@dataclass(frozen=True, slots=True)
class GcPlan:
    """What to remove, in this order, and the epochs that stay restorable.

    Manifests go first and newest first: cut off at any point, none on the list outlives a file that it needs. The next
    plan has what is then left over. A manifest that stays only because a retained one needs its changes can have lost
    its own snapshots: restore from `retained`, or from what has all its `needed_files`.
    """

    manifests: tuple[str, ...]
    files: tuple[str, ...]
    retained: tuple[int, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        return self.manifests + self.files


def plan_gc(
    job: str,
    manifests: Iterable[Manifest],
    files: Iterable[str],
    *,
    num_retained: int = DEFAULT_RETAINED,
    pinned: Collection[int] = (),
    protected: Collection[str] = (),
) -> GcPlan:
    """Find the garbage among `files`, the paths listed below the job's directory.

    `manifests` are all of the job's manifests on storage. `pinned` are epochs that someone still needs, such as a
    savepoint in the making. `protected` are paths that others refer to, such as a run forked from a checkpoint of this
    job. Files that are not of an epoch (job.json, runs, anything unknown) never go.

    Raises ConfigError if `num_retained` is less than 1, and StorageError if `files` has a committed manifest that
    `manifests` lacks, since what it needs is then unknown.
    """
    if num_retained < 1:
        raise ConfigError(f"retained checkpoints: {num_retained}; at least 1 must stay, or the job could not recover")
    paths = JobPaths(job)
    history = _by_epoch(job, manifests)
    files = list(files)
    fences = {file.epoch for path in files if (file := paths.parse(path)) is not None and file.area == "fence"}
    if not history:
        return GcPlan((), (), ())
    newest = max(history)
    retained = sorted({*sorted(history)[-num_retained:], *(epoch for epoch in pinned if epoch in history)})
    needed = set(protected)
    for epoch in retained:
        needed |= needed_files(history[epoch], history)

    old_manifests: list[tuple[int, str]] = []
    garbage: list[str] = []
    for path in files:
        file = paths.parse(path)
        if file is None or not _settled(file, newest):
            continue
        if file.area == "fence" or (file.area == "manifest" and file.epoch in fences):
            continue  # what is left of them stays for good
        if file.area == "manifest" and file.epoch not in history:
            raise StorageError(
                f"manifest {path} is on storage and was not read, so what it needs is unknown and nothing is deleted; "
                f"repair it or move it away"
            )
        # What a sink staged is named in its committables only, which are opaque, and it must be there when the epoch's
        # commit is repeated after a restore; so it stays as long as its epoch can be restored.
        if path in needed or (file.area == "staging" and file.epoch in retained):
            continue
        if file.area == "manifest":
            old_manifests.append((file.epoch, path))
        else:
            garbage.append(path)
    newest_first = tuple(path for _, path in sorted(old_manifests, reverse=True))
    return GcPlan(newest_first, tuple(sorted(garbage)), tuple(retained))


def needed_files(manifest: Manifest, history: Mapping[int, Manifest]) -> frozenset[str]:
    """Every file that the state at `manifest` is made of, its own included. `history` is the job's, by epoch."""
    paths = JobPaths(manifest.job)
    base = _base_epoch(manifest, history)
    needed = {paths.manifest(manifest.epoch)}
    needed.update(snapshot.path for snapshot in manifest.snapshots)
    for epoch, other in history.items():
        if base < epoch <= manifest.epoch:
            needed.add(paths.manifest(epoch))
            needed.update(changes.path for changes in other.changes if changes.path is not None)
    return frozenset(needed)


def _base_epoch(manifest: Manifest, history: Mapping[int, Manifest]) -> int:
    """The epoch after which all changes are needed: the oldest snapshot's, or, if some key group has no snapshot yet
    (subtasks need not take their first ones together), the one before the last that had no state at all; -1 if none had."""
    if not _cover(manifest.snapshots, manifest.max_parallelism):
        before: Manifest | None = manifest
        while before is not None and before.states:  # along its own chain: a stale run's manifest may lie between
            before = None if before.epoch_before is None else history.get(before.epoch_before)
        return -1 if before is None else before.epoch - 1
    return min(snapshot.epoch for snapshot in manifest.snapshots)


def _cover(snapshots: Iterable[SnapshotRef], max_parallelism: int) -> bool:
    reached = 0
    for start, stop in sorted((snapshot.kg_start, snapshot.kg_stop) for snapshot in snapshots):
        if start > reached:
            return False
        reached = max(reached, stop)
    return reached >= max_parallelism


def _settled(file: EpochFile, newest: int) -> bool:
    """Whether no epoch still running can come to refer to `file`. Running is `newest` + 1; a snapshot that it takes is
    of the state it starts from, so its epoch can be `newest`."""
    return file.epoch < newest if file.area == "snapshot" else file.epoch <= newest


def _by_epoch(job: str, manifests: Iterable[Manifest]) -> dict[int, Manifest]:
    history: dict[int, Manifest] = {}
    for manifest in manifests:
        if manifest.job != job:
            raise StorageError(f"the manifest of epoch {manifest.epoch} is of job {manifest.job!r}, not of {job!r}")
        history[manifest.epoch] = manifest
    return history

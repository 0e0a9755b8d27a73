"""Plans garbage collection: finds the files of a job that can be removed. Pure; the plan is complete before any deletion.

The plan retains the newest `num_retained` manifests and the pinned ones. Each keeps the files of its state: itself, its
snapshots, and the manifests and changes of every epoch after its oldest snapshot up to its own; without state, only itself. All
other files of committed epochs are garbage; files of later epochs never are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forkpoint.checkpoint.paths import JobPaths
from forkpoint.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from forkpoint.checkpoint.manifest import Manifest, SnapshotRef


MOST_EPOCHS = 4000
"""Epochs whose changes are kept for the next savepoint: each collection looks at all manifests."""


@dataclass(frozen=True, slots=True)
class GcPlan:
    """The files to remove, in this order, and the epochs that can still be restored.

    Manifests are removed first, newest first: after an interruption, no remaining manifest on the list has lost a file that it
    needs, and the next plan has the rest. A manifest that is kept only because a retained one needs its changes may have lost its
    own snapshots: restore from `retained`, or from a manifest that has all its `needed_files`.
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
    num_retained: int = 10,
    pinned: Collection[int] = (),
    protected: Collection[str] = (),
    since: Collection[int] = (),
) -> GcPlan:
    """Find the garbage among `files`, the paths listed below the job's directory.

    `manifests` are all of the job's manifests on storage. `pinned` are epochs in use, for example by a savepoint that is
    being written. `protected` are paths in use elsewhere, for example by a run forked from a checkpoint of this job. The changes
    after the first of the epochs `since` for which they are not `many_changes` stay for the next savepoint. Files
    that are not of an epoch (job.json, runs, unknown ones) are never removed.

    Raises ConfigError if `num_retained` is less than 1, and StorageError if `files` has a committed manifest that
    `manifests` lacks, since its needed files are then unknown.
    """
    if num_retained < 1:
        raise ConfigError(f"retained checkpoints: {num_retained}; at least 1 must stay, or the job could not recover")
    paths = JobPaths(job)
    history = {manifest.epoch: manifest for manifest in manifests}
    for epoch, manifest in history.items():
        if manifest.job != job:
            raise StorageError(f"the manifest of epoch {epoch} is of job {manifest.job!r}, not of {job!r}")
    if not history:
        return GcPlan((), (), ())
    parsed = [(path, file) for path in files if (file := paths.parse(path)) is not None]
    fences = {file.epoch for _, file in parsed if file.area == "fence"}
    newest = max(history)
    retained = sorted({*sorted(history)[-num_retained:], *(epoch for epoch in pinned if epoch in history)})
    needed = set(protected).union(*(_own_needed_files(history[epoch]) for epoch in retained))
    spans = [(_base_epoch(history[epoch], history), epoch) for epoch in retained]
    base = next((epoch for epoch in sorted(since) if not many_changes(history, epoch)), None)
    if base is not None:
        needed.add(paths.manifest(base))
        spans.append((base, newest))
    needed.update(_changes_of(spans, history))
    staged = staged_epochs(history[epoch] for epoch in retained)
    old_manifests: list[str] = []
    garbage: list[str] = []
    for path, file in parsed:
        # The running epoch, newest + 1, may still refer to files of later epochs, and to snapshots of the state that it starts
        # from; a later one to snapshots of a pinned epoch.
        if file.epoch > newest or (file.area == "snapshot" and (file.epoch == newest or file.epoch in pinned)):
            continue
        if file.area == "fence" or (file.area == "manifest" and file.epoch in fences):
            continue  # a fenced name stays taken for good
        if file.area == "manifest" and file.epoch not in history:
            raise StorageError(
                f"manifest {path} is on storage but was not read, so the files it needs are unknown and nothing is deleted; "
                "repair it or move it away"
            )
        # Staged files, which only a sink's opaque committables name, are needed to publish an epoch again after a restore.
        if path in needed or (file.area == "staging" and file.epoch in staged):
            continue
        if file.area == "manifest":
            old_manifests.append(path)
        else:
            garbage.append(path)
    newest_first = tuple(sorted(old_manifests, reverse=True))
    return GcPlan(newest_first, tuple(sorted(garbage)), tuple(retained))


def many_changes(history: Mapping[int, Manifest], since: int) -> bool:
    """Whether the changes after an epoch are more than half as large as the state, or of very many epochs."""
    later = [manifest for epoch, manifest in history.items() if epoch > since]
    written = sum(changes.bytes for manifest in later for changes in manifest.changes)
    state = sum(snapshot.bytes for snapshot in history[max(history)].snapshots)
    return len(later) > MOST_EPOCHS or written * 2 > state


def needed_files(manifest: Manifest, history: Mapping[int, Manifest]) -> frozenset[str]:
    """Every file of the state at `manifest`, including the manifest. `history`: the job's manifests by epoch."""
    spans = [(_base_epoch(manifest, history), manifest.epoch)]
    return frozenset((*_own_needed_files(manifest), *_changes_of(spans, history)))


def _own_needed_files(manifest: Manifest) -> Iterator[str]:
    yield JobPaths(manifest.job).manifest(manifest.epoch)
    yield from (snapshot.path for snapshot in manifest.snapshots)
    yield from _logs(manifest)


def _changes_of(spans: Collection[tuple[int, int]], history: Mapping[int, Manifest]) -> Iterator[str]:
    """The manifests and changes of the epochs after the first of a span, up to its last; each once, though spans overlap."""
    for epoch, manifest in history.items():
        if any(base < epoch <= until for base, until in spans):
            yield JobPaths(manifest.job).manifest(epoch)
            yield from (changes.path for changes in manifest.changes if changes.path is not None)


def staged_epochs(manifests: Iterable[Manifest]) -> frozenset[int]:
    """The epochs whose staged output a restore of any of these manifests may publish."""
    return frozenset(epoch for m in manifests for epoch in range(m.staged_from or m.epoch, m.epoch + 1))


def own_files(manifest: Manifest) -> frozenset[str]:
    """The files that `manifest` names: its epoch's changes, its snapshots, and the logs of its sources."""
    changes = (ref.path for ref in manifest.changes if ref.path is not None)
    return frozenset((*changes, *(snapshot.path for snapshot in manifest.snapshots), *_logs(manifest)))


def _logs(manifest: Manifest) -> Iterator[str]:
    return (log.path for position in manifest.sources.values() for log in position.spark_log_files.values())


def _base_epoch(manifest: Manifest, history: Mapping[int, Manifest]) -> int:
    """The epoch after which all changes are needed: that of the oldest snapshot. If some key group has no snapshot yet (subtasks
    may take their first ones at different epochs): the epoch before the last one without state, or -1."""
    if not _cover(manifest.snapshots, manifest.max_parallelism):
        before: Manifest | None = manifest
        while before is not None and before.states:  # a stale run's manifests may be in between
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

"""Finds the files that hold the state at a manifest: a snapshot per key group, and the later changes. Reads only manifests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from forkpoint.checkpoint.manifest import Manifest, SnapshotRef
from forkpoint.errors import NotFound, StorageError
from forkpoint.savepoint.format.sorting import KeyGroupRange
from forkpoint.savepoint.format.tasks import FileRef

EMPTY = -1  # the epoch before the first, when there is no state


@dataclass(frozen=True)
class Base(KeyGroupRange):
    """The snapshot of ``epoch`` that these key groups start from, if any."""

    epoch: int
    snapshot: FileRef | None


@dataclass(frozen=True)
class ChangesFile(KeyGroupRange):
    """The changes of a subtask and stage in an epoch."""

    epoch: int
    subtask: int
    file: FileRef


@dataclass(frozen=True)
class OperatorBase:
    """The snapshots of ``epoch`` that a subtask's operator state starts from, if any."""

    subtask: int
    epoch: int
    snapshots: tuple[FileRef, ...]


@dataclass(frozen=True)
class StateFiles:
    """All files of the state at one manifest; changes in the order of their epochs."""

    bases: tuple[Base, ...]
    operators: tuple[OperatorBase, ...]
    changes: tuple[ChangesFile, ...]
    entries: int

    def slice(self, kg_start: int, kg_stop: int) -> StateFiles:
        """The files of the keyed state of these key groups."""
        bases = tuple(
            Base(max(b.kg_start, kg_start), min(b.kg_stop, kg_stop), b.epoch, b.snapshot)
            for b in self.bases
            if b.overlaps(kg_start, kg_stop)
        )
        oldest = min((base.epoch for base in bases), default=EMPTY)
        changes = tuple(c for c in self.changes if c.epoch > oldest and c.overlaps(kg_start, kg_stop))
        return StateFiles(bases, (), changes, 0)

    def operator_state(self) -> StateFiles:
        """The files of operator state."""
        epochs = {base.subtask: base.epoch for base in self.operators}
        changes = tuple(c for c in self.changes if c.epoch > epochs.get(c.subtask, EMPTY))
        return StateFiles((), self.operators, changes, 0)


def changes_since(epoch: int, run: str, manifest: Manifest, load: Callable[[int], Manifest]) -> StateFiles | None:
    """The changes of keyed state between a committed epoch of ``run`` and ``manifest``; None if they are not all there, or not
    all that has changed: a run that starts may convert the state that it restores."""
    manifests: list[Manifest] = []
    if epoch > manifest.epoch:
        return None
    while manifest.epoch > epoch:
        manifests.append(manifest)
        converted = manifest.kind == "start" and any(ref.epoch == manifest.epoch for ref in manifest.snapshots)
        before = manifest.epoch_before
        if converted or before is None or before < epoch:
            return None
        try:
            manifest = load(before)
        except NotFound:
            return None
    if manifest.run != run:
        return None
    return StateFiles((), (), _changes(manifests[::-1]), sum(ref.entries for each in manifests for ref in each.changes))


def state_files(manifest: Manifest, load: Callable[[int], Manifest]) -> StateFiles:
    """The files of the state at a committed manifest. ``load`` reads the manifest of an earlier epoch of the job.

    Raises StorageError if a required manifest is missing.
    """
    bases = _bases(manifest)
    operators = _operator_bases(manifest.snapshots)
    oldest = min([*(base.epoch for base in bases), *(base.epoch for base in operators)])
    manifests = _manifests_after(oldest, manifest, load)
    known = {base.subtask for base in operators}
    changed = {ref.subtask for each in manifests for ref in each.changes} - known
    operators += tuple(OperatorBase(subtask, EMPTY, ()) for subtask in sorted(changed))
    entries = sum(ref.entries for ref in manifest.snapshots) + sum(ref.entries for each in manifests for ref in each.changes)
    return StateFiles(bases, operators, _changes(manifests), entries)


def _changes(manifests: Sequence[Manifest]) -> tuple[ChangesFile, ...]:
    changes: list[ChangesFile] = []
    for each in manifests:
        for ref in sorted(each.changes, key=lambda ref: (ref.stage, ref.subtask)):
            name = ref.path or f"changes of stage {ref.stage}, subtask {ref.subtask} in the manifest of epoch {each.epoch}"
            file = FileRef(name, ref.path, ref.inline_data(), ref.bytes, ref.checksum)
            changes.append(ChangesFile(ref.kg_start, ref.kg_stop, each.epoch, ref.subtask, file))
    return tuple(changes)


def _manifests_after(oldest: int, newest: Manifest, load: Callable[[int], Manifest]) -> list[Manifest]:
    """The manifests after epoch ``oldest``, oldest first; all that have state if ``oldest`` is EMPTY."""
    found: list[Manifest] = []
    manifest = newest
    while manifest.epoch > oldest:
        found.append(manifest)
        before = manifest.epoch_before
        if before is None or before <= oldest or not manifest.states:
            break  # snapshots hold all restored state; a job without states has no earlier changes
        try:
            manifest = load(before)
        except NotFound as error:
            raise StorageError(
                f"job {newest.job!r}: the state of epoch {newest.epoch} needs the changes of epoch "
                f"{before}, whose manifest is missing ({error}); take a savepoint of a newer epoch"
            ) from error
    return found[::-1]


def _bases(manifest: Manifest) -> tuple[Base, ...]:
    """The newest snapshot of each key group, in ranges."""
    refs = manifest.snapshots
    borders = {0, manifest.max_parallelism}
    borders |= {border for ref in refs for border in (ref.kg_start, ref.kg_stop) if border <= manifest.max_parallelism}
    bases: list[Base] = []
    for start, stop in pairwise(sorted(borders)):
        covering = [ref for ref in refs if ref.kg_start <= start and stop <= ref.kg_stop]
        newest = max(covering, key=lambda ref: ref.epoch, default=None)
        base = Base(start, stop, EMPTY if newest is None else newest.epoch, None if newest is None else _file(newest))
        last = bases[-1] if bases else None
        if last is not None and (last.epoch, last.snapshot) == (base.epoch, base.snapshot):
            bases[-1] = Base(last.kg_start, stop, base.epoch, base.snapshot)
        else:
            bases.append(base)
    return tuple(bases)


def _operator_bases(refs: Sequence[SnapshotRef]) -> tuple[OperatorBase, ...]:
    """A subtask's operator state is in its newest snapshot; after a restore, in one of several snapshots of one epoch."""
    newest: dict[int, int] = {}
    for ref in refs:
        newest[ref.subtask] = max(ref.epoch, newest.get(ref.subtask, EMPTY))
    return tuple(
        OperatorBase(subtask, epoch, tuple(_file(ref) for ref in refs if ref.subtask == subtask and ref.epoch == epoch))
        for subtask, epoch in sorted(newest.items())
    )


def _file(ref: SnapshotRef) -> FileRef:
    return FileRef(ref.path, ref.path, None, ref.bytes, ref.checksum)

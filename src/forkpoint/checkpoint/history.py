"""Reads, commits and removes a job's manifests on storage. A commit fences all older runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from forkpoint.checkpoint.gc import own_files, plan_gc
from forkpoint.checkpoint.manifest import MANIFEST, RUN, Manifest, SourcePosition
from forkpoint.checkpoint.paths import MAX_EPOCH, JobPaths, recovery_hint
from forkpoint.errors import AlreadyExists, NotFound, SavepointCorrupt, StaleGeneration

if TYPE_CHECKING:
    from forkpoint.storage.base import Storage

NEWEST_TRIES = 10
READERS = 16
LIST_ALL_EVERY = 50  # collections
REMOVED_AT_ONCE = 100  # files: a sync waits for what has been removed, too


@dataclass
class KnownFiles:
    """The known files of epochs, except manifests. It has all files of epochs before ``epoch``, except those that tasks have
    written after the end of their epoch. ``collections``: the number of garbage collections so far."""

    paths: set[str] = field(default_factory=set)
    epoch: int = 0
    collections: int = 0


@dataclass(frozen=True)
class History:
    """``outlines``: a cache of manifests for garbage collection, by epoch, because reading all of them each time would take
    seconds on an object store. A manifest never changes until it is removed."""

    storage: Storage
    paths: JobPaths
    outlines: dict[int, Manifest] = field(default_factory=dict, compare=False, repr=False)
    known: KnownFiles = field(default_factory=KnownFiles, compare=False, repr=False)

    def epochs(self) -> list[int]:
        """The epochs with a manifest, oldest first, without fences (manifests that only reserve an epoch)."""
        return self._epochs(self.storage.list(self.paths.checkpoints))

    def _epochs(self, checkpoints: Iterable[str]) -> list[int]:
        files = [p for name in checkpoints if (p := self.paths.parse(name)) is not None]
        fences = {p.epoch for p in files if p.area == "fence"}
        return sorted(p.epoch for p in files if p.area == "manifest" and p.epoch not in fences)

    def load(self, epoch: int) -> Manifest:
        return MANIFEST.load(self.storage, self.paths.manifest(epoch))

    def newest(self) -> Manifest | None:
        for _ in range(NEWEST_TRIES - 1):
            with suppress(NotFound):  # its run has since committed a newer manifest and removed this one
                return self._newest()
        return self._newest()

    def newest_run(self) -> str | None:
        """The run with the last commit."""
        newest = self.newest()
        return None if newest is None else newest.run

    def _newest(self) -> Manifest | None:
        epochs = self.epochs()
        if not epochs:
            return None
        try:
            return self.load(epochs[-1])
        except SavepointCorrupt as error:
            raise SavepointCorrupt(f"{error}\n{recovery_hint(self.paths.job)}") from error

    def before(self, epoch: int) -> Manifest | None:
        """The last manifest before an epoch."""
        epochs = [known for known in self.epochs() if known < epoch]
        return self.load(epochs[-1]) if epochs else None

    def commit(self, manifest: Manifest, after: int | None = None) -> None:
        """The commit point. Raises StaleGeneration if another run has committed this epoch or a later one.

        An epoch's manifest can be created only once, so if two drivers commit the same epoch, one fails. Because a run starts by
        committing an epoch, an older run that wakes up later finds its next epoch taken, for good (`fence`). An epoch can still
        be free by mistake: it was garbage-collected during the restore of a new run, or somebody removed files. The newest
        manifest always exists, so a commit counts only if no other manifest follows ``after``, the epoch that it continues from
        (by default the previous epoch).
        """
        path = self.paths.manifest(manifest.epoch)
        data = MANIFEST.dump(manifest)
        try:
            self.storage.create(path, data)
        except AlreadyExists:
            other = self._load_or_newest(manifest.epoch)
            if other != manifest:  # otherwise storage repeated our own request because its response was lost
                raise self.stale(manifest, other) from None
        since = manifest.epoch - 1 if after is None else after
        checkpoints = self._checkpoints_from(since)
        self._check_not_gone(manifest, checkpoints)
        self._must_be_newest(manifest, since, checkpoints)
        self.outlines[manifest.epoch] = outline = _outline(manifest)
        # A new layout may write snapshots of an epoch after the listing of that epoch.
        self.known.paths.update(own_files(outline))

    def must_be_newest(self, manifest: Manifest, after: int | None = None) -> None:
        """Raise StaleGeneration if another run has committed after the epoch that ``manifest`` continues from. Only the newest
        run may publish output, remove staged output and collect garbage."""
        since = manifest.epoch - 1 if after is None else after
        self._must_be_newest(manifest, since, self._checkpoints_from(since))

    def _checkpoints_from(self, epoch: int) -> list[str]:
        """The manifests and fences of this and later epochs: every commit asks, and there are hundreds of earlier ones."""
        return self.storage.list(self.paths.checkpoints, self.paths.checkpoints_from(epoch))

    def _must_be_newest(self, manifest: Manifest, since: int, checkpoints: Iterable[str]) -> None:
        others = [epoch for epoch in self._epochs(checkpoints) if epoch > since and epoch != manifest.epoch]
        if others:
            raise self.stale(manifest, self._load_or_newest(others[-1]))

    def _check_not_gone(self, manifest: Manifest, checkpoints: Iterable[str]) -> None:
        """Raise SavepointCorrupt if no earlier manifest or fence exists. The first epoch of a run keeps one for good, so the
        state root was removed, or another directory is mounted there."""

        def has_earlier(found: Iterable[str]) -> bool:
            return any(file is not None and file.epoch < manifest.epoch for file in map(self.paths.parse, found))

        if manifest.kind == "start" or has_earlier(checkpoints) or has_earlier(self.storage.list(self.paths.checkpoints)):
            return
        self.storage.delete(self.paths.manifest(manifest.epoch))  # it refers to missing files
        raise self.gone()

    def gone(self) -> SavepointCorrupt:
        """The error of a run whose checkpoints are missing."""
        return SavepointCorrupt(
            f"job {self.paths.job!r}: its checkpoints at {self.storage.url} are gone: the state root was removed while the job "
            "ran, or is no longer mounted. Put it back and start the job again, or start it from a savepoint"
        )

    def _load_or_newest(self, epoch: int) -> Manifest:
        """An epoch's manifest, or the newest one if another run has removed that."""
        try:
            return self.load(epoch)
        except NotFound:
            newest = self.newest()
            if newest is None:
                raise
            return newest

    def stale(self, mine: Manifest, other: Manifest) -> StaleGeneration:
        """The error of the run of ``mine`` after another run committed ``other``; it describes both runs."""
        theirs, ours = self._describe(other), self._describe(mine)
        committed = f"has committed epoch {other.epoch}"
        if other.generation > mine.generation:
            text = f"{theirs} is newer and {committed}; this run, {ours}, has been replaced and ends"
        elif other.generation == mine.generation:
            text = f"{theirs} started at the same moment and {committed} first; this run, {ours}, ends"
        else:
            text = (
                f"{theirs} is older, still runs, and {committed} while this newer run, {ours}, was starting; cancel the older "
                "one where it runs, then start this one again"
            )
        return StaleGeneration(f"job {mine.job!r}: {text}")

    def _describe(self, manifest: Manifest) -> str:
        """A description of a manifest's run, from its record."""
        record = RUN.load_if_whole(self.storage, self.paths.run_file(manifest.run))
        details = [f"generation {manifest.generation}"]
        if record is not None and record.pid is not None:
            details.append(f"process {record.pid} on machine {record.machine!r}")
        if record is not None:
            details.append(f"started {datetime.fromtimestamp(record.started_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC")
        return f"run {manifest.run!r} ({', '.join(details)})"

    def collect_garbage(
        self,
        run: str,
        num_retained: int,
        pinned: Collection[int],
        since: Collection[int] = (),
        until: int = MAX_EPOCH,
        pause: Callable[[], object] = lambda: None,
    ) -> None:
        """Remove files that no retained checkpoint needs; see ``plan_gc``. Raises StaleGeneration unless ``run`` is the job's
        newest: any other run does not know the pinned epochs. ``until``: the newest epoch when these were asked for; later ones,
        which another thread may commit meanwhile, are left alone. ``pause``: called between parts of what is removed.

        It lists only files written since the last collection. The first, and every ``LIST_ALL_EVERY``-th, collection lists all
        files, to find those of tasks that outlived their epoch.
        """
        self._list_data()
        checkpoints = self.storage.list(self.paths.checkpoints)
        manifests = self._outlines(self._epochs(checkpoints))
        files = [*self.known.paths, *checkpoints]
        known = [manifest for epoch, manifest in manifests.items() if epoch <= until]
        plan = plan_gc(self.paths.job, known, files, num_retained=num_retained, pinned=pinned, since=since)
        newest = manifests[max(manifests)]
        if newest.run != run:
            mine = max((m for m in manifests.values() if m.run == run), key=lambda m: m.epoch, default=newest)
            raise self.stale(mine, newest)
        by_path = {self.paths.manifest(epoch): manifest for epoch, manifest in manifests.items()}
        for number, path in enumerate(plan.manifests):
            if number and number % REMOVED_AT_ONCE == 0:
                pause()
            self.remove(by_path[path])
        for at in range(0, len(plan.files), REMOVED_AT_ONCE):
            if at:
                pause()
            self.storage.delete_all(list(plan.files[at : at + REMOVED_AT_ONCE]))
        self.known.paths.difference_update(plan.files)

    def _list_data(self) -> None:
        """Update ``known``; another thread may commit meanwhile."""
        known, epoch = self.known, max(self.outlines, default=0)
        everything = known.collections % LIST_ALL_EVERY == 0
        before, found = set(known.paths), set[str]()
        for directory, earlier in self.paths.data_from(known.epoch).items():
            found.update(self.storage.list(directory, "" if everything else earlier))
        if everything:
            known.paths.difference_update(before - found)
        known.paths.update(found)
        known.epoch = epoch
        known.collections += 1

    def _outlines(self, epochs: Sequence[int]) -> dict[int, Manifest]:
        with ThreadPoolExecutor(READERS) as pool:
            unknown = [epoch for epoch in epochs if epoch not in self.outlines]
            self.outlines.update(zip(unknown, map(_outline, pool.map(self.load, unknown)), strict=True))
        for epoch in self.outlines.keys() - set(epochs):
            if epoch < max(epochs):
                del self.outlines[epoch]
        return {epoch: self.outlines[epoch] for epoch in epochs}

    def remove(self, manifest: Manifest) -> None:
        """Remove a manifest that no checkpoint needs. A fence replaces the manifest of a run's first epoch for good, because an
        older run may wake up at any time. It has a few hundred bytes, and listings do not show it as a checkpoint."""
        path = self.paths.manifest(manifest.epoch)
        self.outlines.pop(manifest.epoch, None)
        if manifest.kind != "start":
            self.storage.delete(path)
            return
        self.storage.put(self.paths.fence(manifest.epoch), b"")
        fence = Manifest(
            job=manifest.job,
            run=manifest.run,
            generation=manifest.generation,
            epoch=manifest.epoch,
            kind="start",
            created_ms=manifest.created_ms,
            processing_time_ms=manifest.processing_time_ms,
            parallelism=manifest.parallelism,
            max_parallelism=manifest.max_parallelism,
            parent=manifest.parent,
        )
        self.storage.put(path, MANIFEST.dump(fence))


def _outline(manifest: Manifest) -> Manifest:
    """A manifest reduced to the parts that garbage collection needs, which are few."""
    logs = {uid: position for uid, position in manifest.sources.items() if position.spark_log_files}
    return manifest.replace(
        changes=[ref for ref in manifest.changes if ref.path is not None],
        sources={uid: SourcePosition(kind=p.kind, spark_log_files=p.spark_log_files) for uid, p in logs.items()},
        watermarks={},
        input_watermarks={},
        operators=[],
        sinks={},
        unpublished={},
    )

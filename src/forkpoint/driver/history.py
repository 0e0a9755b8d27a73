"""A job's manifests on storage: finding the newest, and the first one of a run, which fences all older runs."""

from __future__ import annotations

from dataclasses import dataclass

from forkpoint.errors import AlreadyExists, StaleGeneration
from forkpoint.snapshot.manifest import MANIFEST, Manifest
from forkpoint.snapshot.paths import JobPaths
from forkpoint.snapshot.storage import Storage


@dataclass(frozen=True)
class History:
    storage: Storage
    paths: JobPaths

    def epochs(self) -> list[int]:
        """The epochs whose manifests are there, oldest first."""
        names = self.storage.list(self.paths.checkpoints)
        return sorted(p.epoch for name in names if (p := self.paths.parse(name)) is not None and p.area == "manifest")

    def load(self, epoch: int) -> Manifest:
        return MANIFEST.load(self.storage, self.paths.manifest(epoch))

    def newest(self) -> Manifest | None:
        epochs = self.epochs()
        return self.load(epochs[-1]) if epochs else None

    def before(self, epoch: int) -> Manifest | None:
        """The last manifest before an epoch."""
        epochs = [known for known in self.epochs() if known < epoch]
        return self.load(epochs[-1]) if epochs else None

    def commit(self, manifest: Manifest) -> None:
        """The commit point. Raises StaleGeneration if another run has taken this epoch.

        An epoch's name can be taken only once, so of two drivers at the same epoch one fails here; and since a run
        begins by taking an epoch for itself, an older one that wakes up later finds its next epoch taken.
        """
        path = self.paths.manifest(manifest.epoch)
        data = MANIFEST.dump(manifest)
        try:
            self.storage.create(path, data)
        except AlreadyExists:
            other = self.load(manifest.epoch)
            if other == manifest:
                return  # the answer to our own request was lost, and the request repeated
            raise StaleGeneration(
                f"job {manifest.job!r}: epoch {manifest.epoch} was committed by run {other.run!r} (generation "
                f"{other.generation}); this run {manifest.run!r} (generation {manifest.generation}) has been replaced and ends"
            ) from None

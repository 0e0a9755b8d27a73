"""The newest committed state of a job, from outside of the job: which manifest, and which files.

Nothing is pinned: a reader that dies would keep files forever, and no driver should have to know its readers. A job cleans up
every few epochs, and keeps what its newest checkpoint needs, which is nearly all that the one before needed. So a reader copies
files before it decodes them, and begins again with the newest manifest if some are gone.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from forkpoint.checkpoint.manifest import MANIFEST, Manifest
from forkpoint.checkpoint.paths import JOBS, JobPaths, job_of, recovery_hint
from forkpoint.errors import EpochGone, JobNotFound, NotFound, SavepointCorrupt
from forkpoint.savepoint.export.chain import StateFiles, state_files
from forkpoint.storage.base import Storage

READERS = 16
_AHEAD = 32  # manifests that are read at once


def epoch_gone(job: str, epoch: int) -> EpochGone:
    """The error for files of an epoch that the job has removed."""
    return EpochGone(f"job {job!r}: the files of epoch {epoch} are gone, because the job has gone on since; open its state again")


class CommittedEpochs:
    """The manifests of a job, each read once. Not for several threads."""

    def __init__(self, storage: Storage, job: str) -> None:
        self.storage = storage
        self.paths = JobPaths(job)
        self._known: dict[int, Manifest] = {}
        self._epochs: list[int] = []

    def newest_epoch(self) -> int:
        """The job's last committed epoch. Raises JobNotFound, which lists the jobs that there are."""
        parsed = [file for path in self.storage.list(self.paths.checkpoints) if (file := self.paths.parse(path))]
        fences = {file.epoch for file in parsed if file.area == "fence"}
        self._epochs = sorted(file.epoch for file in parsed if file.area == "manifest" and file.epoch not in fences)
        if not self._epochs:
            raise self._not_found()
        return self._epochs[-1]

    def _not_found(self) -> JobNotFound:
        job, url = self.paths.job, self.storage.url
        known = sorted({name for path in self.storage.list(JOBS) if (name := job_of(path)) is not None})
        if job in known:
            return JobNotFound(f"job {job!r} under {url} has not committed an epoch yet")
        listed = f"; there are {', '.join(map(repr, known))}" if known else "; there are none yet"
        return JobNotFound(f"there is no job {job!r} under {url}{listed}")

    def load(self, epoch: int) -> Manifest:
        """The manifest of one of the epochs that ``newest_epoch`` has found. Raises EpochGone, and SavepointCorrupt."""
        try:
            manifest = MANIFEST.load(self.storage, self.paths.manifest(epoch))
        except NotFound:
            raise epoch_gone(self.paths.job, epoch) from None
        except SavepointCorrupt as error:
            raise SavepointCorrupt(f"{error}\n{recovery_hint(self.paths.job)}") from error
        # What replaces the manifest of a run's first epoch when that is removed has no states, as if the job had had none yet.
        if manifest.kind == "start" and not manifest.states and self.storage.exists(self.paths.fence(epoch)):
            raise epoch_gone(self.paths.job, epoch)
        return manifest

    def files(self, manifest: Manifest) -> StateFiles:
        """The files of the state at a manifest. Raises EpochGone if the job has removed some of the manifests."""
        needed: dict[int, Manifest] = {manifest.epoch: manifest}
        others = (known for known in self._known.values() if known.incarnation != manifest.incarnation)
        if next(others, None) is not None:  # another job of that name, in place of the one before
            self._known = {}
        self._known[manifest.epoch] = manifest
        oldest = min((ref.epoch for ref in manifest.snapshots), default=0)

        def load(epoch: int) -> Manifest:
            if epoch not in self._known:
                self._read_ahead(epoch, oldest)
            needed[epoch] = self._known[epoch] if epoch in self._known else self.load(epoch)
            return needed[epoch]

        found = state_files(manifest, load)
        self._known = needed
        return found

    def _read_ahead(self, epoch: int, oldest: int) -> None:
        """Read this manifest and those before it that will be needed, at the same time."""
        wanted = [each for each in self._epochs if oldest < each <= epoch and each not in self._known][-_AHEAD:]
        with ThreadPoolExecutor(READERS) as pool:
            for each, reading in [(each, pool.submit(self.load, each)) for each in wanted]:
                with suppress(EpochGone, SavepointCorrupt):  # raised if it is needed
                    self._known[each] = reading.result()

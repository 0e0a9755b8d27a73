"""Finds the manifest and files of a job's newest committed state, from outside the job.

Readers do not pin files: a reader that dies would keep them forever, and a driver should not have to know its readers. A job
removes files every few epochs, but keeps those its newest checkpoint needs, which includes most files of the previous one. So
a reader copies files before it decodes them, and retries with the newest manifest if some are gone.
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
_READ_AHEAD = 32  # manifests


def epoch_gone(job: str, epoch: int) -> EpochGone:
    """The error if a job has removed the files of an epoch."""
    return EpochGone(f"job {job!r}: the job has moved on and removed the files of epoch {epoch}; open its state again")


class CommittedEpochs:
    """Reads a job's manifests, each once. Not thread-safe."""

    def __init__(self, storage: Storage, job: str) -> None:
        self.storage = storage
        self.paths = JobPaths(job)
        self._known: dict[int, Manifest] = {}
        self._epochs: list[int] = []

    def newest_epoch(self) -> int:
        """The job's last committed epoch. Raises JobNotFound, which lists the known jobs."""
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
        """The manifest of an epoch that ``newest_epoch`` found. Raises EpochGone, and SavepointCorrupt."""
        try:
            manifest = MANIFEST.load(self.storage, self.paths.manifest(epoch))
        except NotFound:
            raise epoch_gone(self.paths.job, epoch) from None
        except SavepointCorrupt as error:
            raise SavepointCorrupt(f"{error}\n{recovery_hint(self.paths.job)}") from error
        # Removing a run's first epoch replaces its manifest by one without states, which looks like a job without state.
        if manifest.kind == "start" and not manifest.states and self.storage.exists(self.paths.fence(epoch)):
            raise epoch_gone(self.paths.job, epoch)
        return manifest

    def files(self, manifest: Manifest) -> StateFiles:
        """The files of the state at a manifest. Raises EpochGone if the job has removed some manifests."""
        needed: dict[int, Manifest] = {manifest.epoch: manifest}
        if any(known.incarnation != manifest.incarnation for known in self._known.values()):  # a new job of the same name
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
        """Read this manifest and earlier manifests that will be needed, in parallel."""
        wanted = [each for each in self._epochs if oldest < each <= epoch and each not in self._known][-_READ_AHEAD:]
        with ThreadPoolExecutor(READERS) as pool:
            for each, future in [(each, pool.submit(self.load, each)) for each in wanted]:
                with suppress(EpochGone, SavepointCorrupt):  # ``load`` raises it if the manifest is needed
                    self._known[each] = future.result()

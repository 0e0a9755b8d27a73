"""Scheduled savepoints of a running job, and their retention."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.manifest import JOB, Manifest
from forkpoint.driver.run.requests import SavepointRequest
from forkpoint.errors import ForkpointError
from forkpoint.graph.options import SavepointSchedule
from forkpoint.savepoint.catalog.dispose import Retention, remove_expired
from forkpoint.savepoint.catalog.listing import readable, savepoints_below
from forkpoint.storage.base import Storage, open_storage

log = logging.getLogger("forkpoint")


@dataclass
class Schedule:
    """One run's schedule. The driver's loop polls it; the thread that made a savepoint then removes the expired ones.

    The interval counts from the job's last scheduled savepoint, of any run, so frequent restarts don't prevent savepoints.
    It makes none if the job has committed no epoch since.
    """

    schedule: SavepointSchedule
    history: History
    run: str
    directory: str | None
    now_ms: Callable[[], int]
    _last: tuple[int, int] | None = None  # time and epoch
    _making: Future[str] | None = None

    def due(self, manifest: Manifest) -> SavepointRequest | None:
        """The savepoint to make now, if any."""
        if self._making is not None and not self._making.done():
            return None
        last_ms, epoch = self._last or self._newest(manifest)
        now_ms = self.now_ms()
        if now_ms < last_ms:  # the clock was set back: start a new interval
            self._last = last_ms, epoch = now_ms, epoch
        if now_ms < last_ms + self.schedule.interval_ms or manifest.epoch == epoch:
            return None
        self._last = now_ms, manifest.epoch
        request = SavepointRequest(self.directory, schedule_ms=self.schedule.interval_ms)
        request.done.add_done_callback(self._made)
        self._making = request.done
        return request

    def _newest(self, manifest: Manifest) -> tuple[int, int]:
        """Time and epoch of the last scheduled savepoint; without one, the time of the job's start and -1."""
        times = [(self._began_ms(), -1)]
        try:
            storage, directory = self._directory()
            found = [savepoint for savepoint, _ in readable(savepoints_below(storage, directory))]
        except ForkpointError as error:
            log.warning("job %r: its scheduled savepoints cannot be listed: %s", manifest.job, error)
            found = []
        times += [(s.created_ms, s.epoch) for s in found if s.job == manifest.job and s.schedule_ms is not None]
        self._last = max(times[1:], default=times[0])
        return self._last

    def _began_ms(self) -> int:
        try:
            return JOB.load(self.history.storage, self.history.paths.job_file).created_ms
        except ForkpointError:
            return self.now_ms()

    def _made(self, done: Future[str]) -> None:
        job = self.history.paths.job
        if (error := done.exception()) is not None:
            log.warning("job %r: its scheduled savepoint failed, the schedule continues: %s", job, error)
            return
        log.info("job %r: scheduled savepoint %s", job, done.result())
        try:
            removed = self.remove_expired()
        except Exception:
            log.exception("job %r: expired scheduled savepoints were not removed; the next savepoint retries", job)
        else:
            for savepoint in removed:
                log.info("job %r: scheduled savepoint %s has expired and was removed", job, savepoint)

    def remove_expired(self) -> list[str]:
        """Remove expired savepoints, if this is the job's newest run."""
        newest = self.history.newest()
        if newest is None or newest.run != self.run:
            return []
        retention = Retention(self.schedule.keep_last, self.schedule.keep_for_ms)
        storage, directory = self._directory()
        job = self.history.paths.job
        return remove_expired(self.history.storage, storage, directory, job, retention, self.now_ms())

    def _directory(self) -> tuple[Storage, str]:
        if self.directory is None:
            return self.history.storage, self.history.paths.savepoints
        return open_storage(self.directory), ""

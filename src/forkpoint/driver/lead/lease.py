"""Renews a run's lease until the run ends, on its own thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from forkpoint.checkpoint.lease import LEASE, LEASE_MS, Lease
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.errors import StorageError
from forkpoint.storage.base import Storage

log = logging.getLogger("forkpoint")

RENEWALS_PER_TTL = 3


class LeaseKeeper:
    """``epoch``: the run's newest committed epoch."""

    def __init__(self, storage: Storage, paths: JobPaths, run: str, epoch: Callable[[], int], ttl_ms: int = LEASE_MS) -> None:
        self._storage, self._paths, self._run = storage, paths, run
        self._epoch = epoch
        self._ttl_ms = ttl_ms
        self._renewals = 0
        self._reachable = True
        self._started = False
        self._successor: str | None = None
        self._lock = threading.Lock()  # of a renewal
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"forkpoint-lease-{paths.job}", daemon=True)

    def start(self) -> None:
        if not self._started:
            self._started = True
            self._thread.start()

    def hand_to(self, successor: str | None) -> None:
        """Name the next leader at once; None: this run continues."""
        self._successor = successor
        self._renew()

    def close(self) -> None:
        """Call this once the run's end is recorded: without a lease, a standby reads the record."""
        if not self._started:
            return
        self._closing.set()
        self._thread.join()
        try:
            self._storage.delete(self._paths.lease_file(self._run))
        except StorageError as error:
            log.debug("job %r: the lease of run %s was not removed: %s", self._paths.job, self._run, error)

    def _keep(self) -> None:
        while True:
            self._renew()
            if self._closing.wait(self._ttl_ms / RENEWALS_PER_TTL / 1000):
                return

    def _renew(self) -> None:
        with self._lock:
            lease = Lease(
                job=self._paths.job,
                run=self._run,
                renewals=self._renewals,
                ttl_ms=self._ttl_ms,
                epoch=self._epoch(),
                successor=self._successor,
            )
            try:
                self._storage.put(self._paths.lease_file(self._run), LEASE.dump(lease))
                self._renewals += 1
                self._reachable = True
            except StorageError as error:
                if self._reachable:
                    job = self._paths.job
                    log.warning("job %r: the lease was not renewed; a standby takes over unless epochs commit: %s", job, error)
                self._reachable = False

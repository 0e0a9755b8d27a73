"""A standby waits until the job's leader dies or ends.

It never compares clocks of hosts: it measures with its own clock how long it has seen neither a renewal of the leader's lease nor
a commit. If it is wrong and the leader lives, the standby's start manifest fences the leader, as any newer run's does.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.lease import LEASE, LEASE_MS, Lease
from forkpoint.checkpoint.manifest import RUN, Manifest, Run
from forkpoint.errors import JobFailed, StorageError

log = logging.getLogger("forkpoint")

POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Watch:
    """The known state of the leader. ``since``: its last sign of life, in seconds of this host's monotonic clock. ``epoch``: its
    newest epoch, checked only while the lease is overdue. ``successor``: the run to which it hands the job over."""

    leader: str
    since: float
    renewals: int | None = None
    ttl_ms: int = LEASE_MS
    epoch: int | None = None
    successor: str | None = None

    def overdue(self, now: float) -> bool:
        """Whether a renewal is missing."""
        return now - self.since > self.ttl_ms / 2000

    def expired(self, now: float) -> bool:
        return now - self.since > self.ttl_ms / 1000


def after_lease(watch: Watch, lease: Lease | None, now: float) -> Watch:
    """The watch after a check of the leader's lease."""
    if lease is None or lease.renewals == watch.renewals:
        return watch
    return Watch(watch.leader, now, lease.renewals, lease.ttl_ms, successor=lease.successor)


def after_commit(watch: Watch, newest: Manifest, now: float) -> Watch:
    """The watch after a check of the job's newest manifest. A leader that commits is alive, even if it cannot write its lease."""
    if newest.run != watch.leader:  # another standby leads
        return Watch(newest.run, now)
    if watch.epoch is None or newest.epoch == watch.epoch:  # the first check does not tell the time of the commit
        return replace(watch, epoch=newest.epoch)
    return replace(watch, since=now, epoch=newest.epoch)


@dataclass(frozen=True)
class LeaderEnded:
    """The leader has ended for good, according to its record, so the standby has no job to take over."""

    record: Run

    def outcome(self) -> Literal["finished", "stopped", "cancelled"]:
        """The leader's outcome. Raises JobFailed if it has failed."""
        record = self.record
        how = f"job {record.job!r}: run {record.run}, which this one stood by for, has ended ({record.outcome})"
        if record.outcome not in ("finished", "stopped", "cancelled"):
            raise JobFailed(f"{how}: {record.reason}")
        log.warning("%s; this run ends, too", how)
        return record.outcome


@dataclass(frozen=True)
class HandedOver:
    """The leader has handed its job over to another version, from which this program must not take over."""

    job: str
    leader: str
    successor: str

    def outcome(self) -> Literal["stopped"]:
        log.warning(
            "job %r: run %s, which this one stood by for, has handed the job over to run %s; this run ends, too. Start a "
            "standby of the new version",
            self.job,
            self.leader,
            self.successor,
        )
        return "stopped"


@dataclass(frozen=True)
class TakeOver:
    """This run takes over from ``leader``, and from no other run; None: the job never ran."""

    leader: str | None


Over = LeaderEnded | HandedOver


def ended(record: Run | None) -> LeaderEnded | None:
    """None if another driver may continue the job: the leader was killed or lost its engine."""
    over = record is not None and record.outcome is not None and not record.engine_lost
    return LeaderEnded(record) if over and record is not None else None


class Standby:
    """Calls ``follow`` with the leader's newest epochs, to keep local stores up to date."""

    def __init__(self, history: History, follow: Callable[[int], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._history = history
        self._follow = follow
        self._clock = clock

    def wait(self, cancelled: Callable[[float], bool]) -> Over | TakeOver | None:
        """Wait until the leader is gone; None if this run is ``cancelled`` (which waits for the given seconds). A run leads at
        once if the job never ran or its last run has already ended."""
        watch: Watch | None = None
        while not cancelled(POLL_SECONDS if watch is not None else 0):
            try:
                if watch is None:
                    newest = self._history.newest()
                    if newest is None or self._record(newest.run) is not None:
                        return TakeOver(None if newest is None else newest.run)
                    watch = Watch(newest.run, self._clock())
                    log.info("job %r: standing by for run %s", self._history.paths.job, newest.run)
                lease = LEASE.load_if_whole(self._history.storage, self._history.paths.lease_file(watch.leader))
                watch = after_lease(watch, lease, self._clock())
                if lease is not None:
                    self._follow(lease.epoch)
                if lease is not None and not watch.overdue(self._clock()):
                    continue
                newest = self._history.newest()
                if newest is not None and self._was_handed_over(watch, newest.run):
                    return HandedOver(newest.job, watch.leader, newest.run)
                watch = watch if newest is None else after_commit(watch, newest, self._clock())
                record = self._record(watch.leader)
                if (over := ended(record)) is not None:
                    return over
                if record is not None or watch.expired(self._clock()):
                    silent_s = self._clock() - watch.since
                    silent = f"has given no sign of life for {silent_s:.1f} s"
                    why = silent if record is None else "has lost its engine"
                    log.warning("job %r: run %s %s; this run takes over", self._history.paths.job, watch.leader, why)
                    return TakeOver(watch.leader)
            except StorageError as error:  # without storage, the leader's state is unknown
                log.warning("job %r: the standby cannot read its leader's state: %s", self._history.paths.job, error)
                watch = None if watch is None else replace(watch, since=self._clock(), epoch=None)
        return None

    def _was_handed_over(self, watch: Watch, run: str) -> bool:
        """Whether the leader handed the job over to ``run``, rather than being replaced because it seemed dead. Its lease names
        the successor; it removes the lease only after it has recorded its end."""
        if run == watch.leader:
            return False
        lease = LEASE.load_if_whole(self._history.storage, self._history.paths.lease_file(watch.leader))
        if run == watch.successor or (lease is not None and lease.successor == run):
            return True
        record = self._record(watch.leader)
        return record is not None and record.outcome in ("stopped", "finished", "cancelled")

    def _record(self, run: str) -> Run | None:
        """The record of a run that has ended; None if it has not."""
        record = RUN.load_if_whole(self._history.storage, self._history.paths.run_file(run))
        return None if record is None or record.outcome is None else record

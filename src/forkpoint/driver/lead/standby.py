"""A standby waits beside the run that leads the job, until that dies or ends.

It never compares clocks: it measures, on its own, for how long it has seen neither a renewal of the leader's lease nor a commit.
If it is wrong and the leader lives, the leader ends: the standby's start manifest fences it, as any newer run's does.
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
    """What is known of the leader. ``since``: when it last gave a sign of life, in seconds of this host's monotonic clock.
    ``epoch``: its newest one when that was last looked at, since the lease has been overdue. ``successor``: the run that it hands
    the job over to."""

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


def seen(watch: Watch, lease: Lease | None, now: float) -> Watch:
    """The watch after a look at the leader's lease."""
    if lease is None or lease.renewals == watch.renewals:
        return watch
    return Watch(watch.leader, now, lease.renewals, lease.ttl_ms, successor=lease.successor)


def after_commit(watch: Watch, newest: Manifest, now: float) -> Watch:
    """The watch after a look at the job's newest manifest. A leader that commits lives, even if its lease cannot be written."""
    if newest.run != watch.leader:  # another standby leads
        return Watch(newest.run, now)
    if watch.epoch is None or newest.epoch == watch.epoch:  # the first look does not tell when that was
        return replace(watch, epoch=newest.epoch)
    return replace(watch, since=now, epoch=newest.epoch)


@dataclass(frozen=True)
class LeaderEnded:
    """The leader's record: it has ended for good, so there is nothing to take over."""

    record: Run

    def outcome(self) -> Literal["finished", "stopped", "cancelled"]:
        """How it ended. Raises JobFailed if it has failed."""
        record = self.record
        how = f"job {record.job!r}: run {record.run}, which this one stood by for, has ended ({record.outcome})"
        if record.outcome not in ("finished", "stopped", "cancelled"):
            raise JobFailed(f"{how}: {record.reason}")
        log.warning("%s; this run ends, too", how)
        return record.outcome


@dataclass(frozen=True)
class HandedOver:
    """The leader has handed its job over to another version: this program must not take over from that."""

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
    """This run is to lead the job next, in place of ``leader`` and of no other; None: the job never ran."""

    leader: str | None


Over = LeaderEnded | HandedOver


def ended(record: Run | None) -> LeaderEnded | None:
    """None if a new driver may go on with the job: the leader was killed, or lost its engine."""
    over = record is not None and record.outcome is not None and not record.engine_lost
    return LeaderEnded(record) if over and record is not None else None


class Standby:
    """``follow`` is called with the leader's newest epochs, to keep local stores up to date."""

    def __init__(self, history: History, follow: Callable[[int], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._history = history
        self._follow = follow
        self._clock = clock

    def wait(self, cancelled: Callable[[float], bool]) -> Over | TakeOver | None:
        """Wait until the leader is gone; None if this run is ``cancelled`` (which waits for so many seconds).

        A job without a leader is led at once: one that never ran, and one whose last run ended before this one looked.
        """
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
                watch = seen(watch, lease, self._clock())
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
            except StorageError as error:  # what can't be seen can't be judged
                log.warning("job %r: the standby cannot look after its leader: %s", self._history.paths.job, error)
                watch = None if watch is None else replace(watch, since=self._clock(), epoch=None)
        return None

    def _was_handed_over(self, watch: Watch, run: str) -> bool:
        """Whether the leader let this run take its place, rather than being replaced as it seemed dead. It says so in its lease,
        which it removes only after it has recorded its end."""
        if run == watch.leader:
            return False
        lease = LEASE.load_if_whole(self._history.storage, self._history.paths.lease_file(watch.leader))
        if run == watch.successor or (lease is not None and lease.successor == run):
            return True
        record = self._record(watch.leader)
        return record is not None and record.outcome in ("stopped", "finished", "cancelled")

    def _record(self, run: str) -> Run | None:
        """The run's record if that has an end."""
        record = RUN.load_if_whole(self._history.storage, self._history.paths.run_file(run))
        return None if record is None or record.outcome is None else record

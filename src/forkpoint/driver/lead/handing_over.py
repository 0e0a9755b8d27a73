"""Hands a running job over to another run, such as that of a new version, whose stores follow the job's epochs.

The leader stops between two epochs, with all its output published, and names the successor in its lease. The successor's start
manifest then fences it, as that of any newer run does. Until the successor commits it, the job belongs to the leader, which
continues if the successor takes too long.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from types import TracebackType
from typing import Self

from forkpoint import logs
from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.lease import LEASE
from forkpoint.checkpoint.manifest import RUN, Manifest
from forkpoint.driver.lead.lease import LeaseKeeper
from forkpoint.driver.lead.standby import Watch, after_commit, after_lease
from forkpoint.driver.run.requests import HandOverRequest
from forkpoint.errors import ConfigError, ForkpointError, JobFailed, StorageError

log = logging.getLogger("forkpoint")

HOLD_SECONDS = 10.0
ROLLBACK_EPOCHS = 100  # for this many epochs, the files of the replaced run's last epoch are kept for a savepoint of it
LOOK_SECONDS = 0.05
POLL_SECONDS = 0.1
MAX_WAIT_SECONDS = 3600.0
CLOSE_SECONDS = 1.0  # a catch-up round below this time leaves little work for the first epoch
CLOSER = 0.7  # a round that takes more than this share of the previous one does not get closer to the job


class HandOver:
    """The leader's side of a hand-off. For the driver's thread."""

    def __init__(self, history: History, lease: LeaseKeeper) -> None:
        self._history = history
        self._lease = lease
        self._request: HandOverRequest | None = None

    @property
    def wanted(self) -> bool:
        return self._request is not None

    def begin(self, request: HandOverRequest) -> None:
        """Hand over once nothing else is in progress."""
        if self._request is None:
            self._request = request
            return
        request.done.set_exception(
            ConfigError(f"job {self._history.paths.job!r} is already being handed over to run {self._request.successor}")
        )

    def hand_over(self, manifest: Manifest, paused: Callable[[float], bool]) -> bool:
        """Offer the job to the successor from this epoch on; returns whether it took over. ``paused`` waits for the given seconds
        and returns whether the run was cancelled. Raises StaleGeneration if a third run leads the job."""
        request, self._request = self._request, None
        assert request is not None
        self._lease.hand_to(request.successor)
        until = time.monotonic() + HOLD_SECONDS
        while time.monotonic() < until and not paused(LOOK_SECONDS):
            newest = self._newest()
            if newest is None or newest.run == manifest.run:
                continue
            if newest.run != request.successor:
                raise self._history.stale(manifest, newest)
            request.done.set_result(manifest.epoch)
            log.info("job %r: run %s continues from epoch %d", manifest.job, newest.run, manifest.epoch)
            return True
        self._lease.hand_to(None)
        late = f"run {request.successor} has not taken over job {manifest.job!r} within {HOLD_SECONDS:g} s"
        log.warning("%s; run %s continues", late, manifest.run)
        request.done.set_exception(JobFailed(f"{late}; run {manifest.run} continues"))
        return False

    def close(self, error: BaseException) -> None:
        """The run has ended."""
        if self._request is not None:
            self._request.done.set_exception(error)

    def _newest(self) -> Manifest | None:
        try:
            return self._history.newest()
        except StorageError as error:  # the next attempt may succeed; otherwise the next commit tells
            log.debug("job %r: %s", self._history.paths.job, error)
            return None


class Successor:
    """The successor's side of a hand-off: waits until run ``leader`` hands the job over. ``abandoned``: whether the hand-off was
    given up."""

    def __init__(
        self,
        history: History,
        run: str,
        leader: str,
        follow: Callable[[int], None],
        clock: Callable[[], float] = time.monotonic,
        abandoned: Callable[[], bool] = lambda: False,
    ) -> None:
        self._history = history
        self._run = run
        self._leader = leader
        self._follow = follow
        self._clock = clock
        self._abandoned = abandoned

    def wait(self, cancelled: Callable[[float], bool]) -> None:
        """Wait until the leader names this run, or until ``cancelled`` (which waits for the given seconds). Raises JobFailed once
        the leader can no longer hand over: only a standby takes over from a killed driver."""
        paths, began = self._history.paths, self._clock()
        watch = Watch(self._leader, began)
        while not cancelled(POLL_SECONDS):
            if self._clock() - began > MAX_WAIT_SECONDS:
                raise self._failed(f"has not handed the job over within {MAX_WAIT_SECONDS / 60:.0f} minutes")
            try:
                lease = LEASE.load_if_whole(self._history.storage, paths.lease_file(self._leader))
                watch = after_lease(watch, lease, self._clock())
                if watch.successor == self._run:
                    return
                if lease is None or watch.overdue(self._clock()):
                    watch = self._check_leader(watch)
            except StorageError as error:  # without storage, the leader's state is unknown
                log.warning("job %r: the state of its leader, run %s, cannot be read: %s", paths.job, self._leader, error)
                watch, lease = replace(watch, since=self._clock(), epoch=None), None
            if self._abandoned():
                raise self._failed("continues: the upgrade that started this run was killed before it requested the hand-off")
            if lease is not None:
                self._follow(lease.epoch)

    def _check_leader(self, watch: Watch) -> Watch:
        """Update the watch from commits and the leader's record. Raises JobFailed if that run no longer leads."""
        newest = self._history.newest()
        if newest is not None:
            watch = after_commit(watch, newest, self._clock())
        if watch.leader != self._leader:
            raise self._failed(f"has been replaced by run {watch.leader}")
        record = RUN.load_if_whole(self._history.storage, self._history.paths.run_file(self._leader))
        if record is not None and record.outcome is not None:
            raise self._failed(f"has ended ({record.outcome})")
        if watch.expired(self._clock()):
            raise self._failed(f"has given no sign of life for {self._clock() - watch.since:.1f} s")
        return watch

    def _failed(self, why: str) -> JobFailed:
        return JobFailed(f"job {self._history.paths.job!r}: run {self._leader}, which this one was to replace, {why}")


def is_close(took_seconds: float, last_seconds: float) -> bool:
    """Whether stores have caught up with the job as far as possible, given the time of the last round and the one before."""
    return took_seconds < CLOSE_SECONDS or took_seconds > CLOSER * last_seconds


class Follower:
    """Calls ``prepare`` with the leader's newest manifests, one at a time, on its own thread. After each round that has caught up
    with the job, it calls ``on_close`` with the epoch there; ``follow`` raises the errors of ``on_close``."""

    def __init__(
        self, history: History, prepare: Callable[[Manifest], None], on_close: Callable[[int], None] = lambda epoch: None
    ) -> None:
        self._history = history
        self._prepare = prepare
        self._on_close = on_close
        self._prepared = 0
        self._took = math.inf
        self._thread = ThreadPoolExecutor(1, "forkpoint-prepare")
        self._round: Future[None] | None = None
        self._error: Exception | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._thread.shutdown()

    def follow(self, epoch: int) -> None:
        """Begin a round up to this epoch, unless a round is running."""
        if self._error is not None:
            raise self._error
        if epoch > self._prepared and (self._round is None or self._round.done()):
            self._prepared = epoch
            self._round = self._thread.submit(logs.carried(self._try), epoch)

    def _try(self, epoch: int) -> None:
        began = time.monotonic()
        try:
            self._prepare(self._history.load(epoch))
        except ForkpointError as error:  # the leader has removed this manifest: a newer one exists
            log.debug("job %r: stores of epoch %d were not prepared: %s", self._history.paths.job, epoch, error)
            return
        except Exception:
            log.exception("job %r: stores of epoch %d were not prepared", self._history.paths.job, epoch)
            return
        last, self._took = self._took, time.monotonic() - began
        if is_close(self._took, last):
            try:
                self._on_close(epoch)
            except Exception as error:
                self._error = error

"""Replaces a job's program in two ways: a hand-off while both run, or a stop before the new one starts."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.manifest import RUN, Manifest
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.driver.lead.succession import NotInPlace
from forkpoint.driver.start.recovery import go_back
from forkpoint.errors import ForkpointError, JobFailed, NotFound
from forkpoint.graph.options import RestoreOptions
from forkpoint.operations.jobs.running import wait_for_savepoint, wait_gone
from forkpoint.operations.launch.detached import FAILED, JOB_FAILED, Started, last_error, start_detached, tail
from forkpoint.operations.launch.failed import DriverFailed
from forkpoint.operations.launch.recorded import PREFIX
from forkpoint.operations.launch.request import RunRequest
from forkpoint.operations.observer import Observer
from forkpoint.operations.roots import StateRoot
from forkpoint.protocol.client import Pending, RunClient, Unreachable
from forkpoint.protocol.endpoint import ENDPOINT
from forkpoint.protocol.http import over_http
from forkpoint.protocol.messages import SavepointAnswer
from forkpoint.protocol.registry import client_of, probe

ENDING_SECONDS = 5.0
_POLL_SECONDS = 0.1

Outcome = Literal["upgraded", "rolled-back"]


@dataclass(frozen=True)
class Upgraded:
    """A job that continues in ``run``: of the new program or, after a rollback, of the old one; this is ``previous_run`` itself
    if it was never stopped. ``savepoint``: the final state of the old program; None after a rollback without a savepoint.
    ``downtime_ms``: from commit to commit; None before the first commit. ``failure``: the reason for a rollback."""

    job: str
    outcome: Outcome
    run: str
    previous_run: str
    savepoint: str | None
    downtime_ms: int | None
    failure: str | None
    pid: int
    log: str | None


class NotHandedOver(ForkpointError):
    """The running job cannot be handed over to this program."""


class _Cancelled(Exception):
    """A user has cancelled the new version during its trial."""


@contextmanager
def _pipe() -> Iterator[int]:
    """The read end of a pipe whose other end closes when this process dies or leaves the block."""
    reading, writing = os.pipe()
    try:
        yield reading
    finally:
        os.close(reading)
        os.close(writing)


@dataclass(frozen=True)
class Replacement:
    """The replacement of ``run``'s program by that of ``request``. ``epochs``: the epochs of its trial, within
    ``timeout_seconds``."""

    root: StateRoot
    job: str
    run: str
    request: RunRequest
    epochs: int
    timeout_seconds: float
    verbose: bool
    observer: Observer

    @property
    def history(self) -> History:
        return History(self.root.storage, JobPaths(self.job))

    # -- handing over

    def hand_over(self, old: RunClient) -> Upgraded:
        """Start the new program while the old one runs, and hand over once its stores have caught up with the job.

        Until then the old program is not affected. Raises NotHandedOver if the program or the old driver does not support a
        hand-off, DriverFailed if the old program does not start again.
        """
        with _pipe() as while_open:
            return self._hand_over(old, while_open)

    def _hand_over(self, old: RunClient, while_open: int) -> Upgraded:
        try:
            started = self._start(replace(self.request, succeeds=self.run), while_open)
        except DriverFailed as problem:
            if problem.code == NotInPlace.__name__:
                raise NotHandedOver(str(problem).splitlines()[0]) from None
            return self._never_stopped(old, problem)
        last: Manifest | None = None
        try:
            endpoint = ENDPOINT.load(self.root.storage, JobPaths(self.job).endpoint_file(started.run))
            with client_of(self.root.storage, endpoint) as new:
                try:
                    last = self._switch(old, new, started)
                    saving = self._save(new, started, last)
                    downtime_ms = self._watch(started, last)
                except Unreachable:
                    ended = self._ended(started) or "its driver does not answer"
                    raise (self._failed if last is None else self._trial_failure)(started, ended) from None
                path = self._saved(new, saving, started)
        except DriverFailed as problem:
            return self._never_stopped(old, problem) if last is None else self._go_back(last, problem)
        except _Cancelled:
            assert last is not None
            go_back(self.history, started.run, last.epoch, f"the version that followed run {self.run} was cancelled")
            raise self._not_running(started, "") from None
        except KeyboardInterrupt:
            if self._succeeded(started.run) is not None:
                remark = f"run {started.run} of the new version continues; run {self.run} has handed the job over to it"
                self.observer.remark(remark)
            raise
        finally:
            if last is None and self._succeeded(started.run) is None:
                self._end(started)
        wait_gone(old)
        return self._result("upgraded", started, path, downtime_ms)

    def _switch(self, old: RunClient, new: RunClient, started: Started) -> Manifest:
        """Wait until the new run has caught up, then request the hand-off; returns the old run's last manifest."""
        until = time.monotonic() + self.timeout_seconds
        with self.observer.steps(f"preparing run {started.run}") as report:
            while not (status := new.status()).caught_up:
                if status.state == "ended":
                    raise self._failed(started, status.failure or "it ended before it had caught up with the job")
                if time.monotonic() > until:
                    doing = f"is at: {status.doing}" if status.doing else f"has come to epoch {status.epoch}"
                    raise self._failed(
                        started,
                        f"it has not caught up with the job within {self.timeout_seconds:g} s, but {doing}. If it waits for room "
                        "in the cluster, use --stop-first; if its functions take long to open, give it more time with --timeout",
                    )
                report("building stores, opening functions" if status.epoch == 0 else f"its stores are at epoch {status.epoch}")
                time.sleep(_POLL_SECONDS)
        try:
            pending = old.hand_over(started.run)
        except Unreachable:
            raise
        except ForkpointError as error:  # a driver of an earlier release
            raise NotHandedOver(f"run {self.run} cannot hand the job over: {error}") from None
        try:
            return self.history.load(old.wait_epoch(pending, "handed over"))
        except ForkpointError as error:
            epoch = self._succeeded(started.run)
            if epoch is None:
                raise self._failed(started, str(error)) from None
            return self.history.load(epoch)

    def _save(self, new: RunClient, started: Started, last: Manifest) -> Pending[SavepointAnswer]:
        """Request the savepoint of the old version's last epoch. Raises DriverFailed if the new one has already failed."""
        try:
            return new.savepoint(note=f"the last epoch of run {self.run}", epoch=last.epoch)
        except Unreachable:
            raise
        except ForkpointError:  # an ended driver still answers for a moment, but takes no requests
            self._watch(started, last)
            raise

    def _saved(self, new: RunClient, saving: Pending[SavepointAnswer], started: Started) -> str:
        """The savepoint of the old version's last epoch. Raises JobFailed if the new version, whose output is already published,
        ends before the savepoint is complete."""
        try:
            return wait_for_savepoint(new, saving, f"saving the last state of run {self.run}", self.observer)
        except (JobFailed, Unreachable):
            if (ended := self._ended(started)) is None:
                raise
            raise JobFailed(
                f"job {self.job!r}: run {started.run} of the new version passed its trial and published its output, and then: "
                f"{ended}. There is no savepoint of the last epoch of run {self.run}. To resume the new version: "
                f"{self._start_command(started.run)}"
            ) from None

    def _succeeded(self, run: str) -> int | None:
        """The epoch from which the run leads the job; None if it does not lead."""
        newest = self.history.newest()
        if newest is None or newest.run != run:
            return None
        first = next(m for m in map(self._loaded, self.history.epochs()) if m is not None and m.run == run)
        return first.parent.epoch

    def _never_stopped(self, old: RunClient, problem: DriverFailed) -> Upgraded:
        """The new version failed while the old one led the job. Raises JobFailed if the old one has ended, too."""
        if problem.log_tail is not None:
            self.observer.remark(problem.log_tail)
        endpoint = old.endpoint
        if probe(self.root.storage, endpoint) is None:
            raise JobFailed(
                f"job {self.job!r}: run {self.run} ended while the new version was being prepared: {problem}. Resume it with: "
                f"{self._start_command(self.run)}"
            )
        self.observer.remark(f"the new version failed: {problem}\nrun {self.run} was never stopped")
        return Upgraded(self.job, "rolled-back", self.run, self.run, None, 0, str(problem), endpoint.pid, endpoint.log)

    def _go_back(self, last: Manifest, problem: DriverFailed) -> Upgraded:
        assert problem.run is not None
        undone = go_back(self.history, problem.run, last.epoch, f"the version that followed run {self.run} has failed")
        return self._restart(RestoreOptions(), last, None, problem, undone.run)

    # -- stopping first

    def stop_and_start(self, old: RunClient) -> Upgraded:
        """Stop the old program with a savepoint and start the new one from it. Raises DriverFailed if the new program fails and
        the old one does not start again."""
        self.observer.remark(self._by_hand())
        path = wait_for_savepoint(old, old.stop(), f"stopping {self.job}", self.observer)
        self.observer.remark(f"job {self.job} is stopped; its savepoint is {path}")
        wait_gone(old)
        newest = self.history.newest()
        assert newest is not None
        try:
            restore = replace(self.request.restore, savepoint=path)
            started = self._start(replace(self.request, restore=restore, predecessor=(self.job, self.run)))
            downtime_ms = self._watch(started, newest)
        except DriverFailed as problem:
            return self._restart(RestoreOptions(path), newest, path, problem, self._undone(problem))
        except _Cancelled:
            raise self._not_running(started, f"-s {path} ") from None
        return self._result("upgraded", started, path, downtime_ms)

    def _undone(self, problem: DriverFailed) -> str | None:
        """The run that the old program succeeds in a rollback: its own, or the new version's. Raises JobFailed if another run has
        led the job since, which must not be rolled back."""
        newest = self.history.newest_run()
        if newest not in (self.run, problem.run):
            raise JobFailed(
                f"the new version failed, and the old one was not started again because run {newest} has led job {self.job!r} "
                f"since: {problem}"
            )
        return newest

    def _by_hand(self) -> str:
        command = f"forkpoint --state-root {shlex.quote(self.root.place)} run -d -s latest"
        request = self.request
        new = [*request.options, request.app, *(["--", *request.arguments] if request.arguments else [])]
        return (
            f"stopping job {self.job} with a savepoint. If this command is interrupted, the savepoint stays, and you can start "
            f"either version from it:\n  new: {command} {shlex.join(new)}\n  old: {command} {PREFIX}{self.run}"
        )

    # -- both

    def _start(self, request: RunRequest, while_open: int | None = None) -> Started:
        with self.observer.steps(f"starting {request.app}") as report:
            request = replace(request, trial_epochs=self.epochs or None)
            started = start_detached(self.root, request, report, verbose=self.verbose, while_open=while_open)
        if started.failure is not None:
            self._end(started)
            raise self._failed(started, started.failure)
        return started

    def _watch(self, started: Started, last: Manifest) -> int | None:
        """Wait until the new version's trial is over; returns the time from ``last`` to the next commit, in ms. Raises
        DriverFailed if the version failed, _Cancelled if a user has cancelled it."""
        until = time.monotonic() + self.timeout_seconds
        downtime_ms = self._downtime_ms(started.run, last)
        while self.epochs and not self._passed(started.run):
            ended = self._ended(started)
            if ended is not None and not self._passed(started.run):
                raise self._trial_failure(started, ended)
            if time.monotonic() > until:
                self._end(started)
                if self._passed(started.run):  # in the meantime
                    break
                late = f"it did not commit its first {self.epochs} epochs within {self.timeout_seconds:g} s"
                raise self._failed(started, late)
            time.sleep(_POLL_SECONDS)
            if downtime_ms is None:  # as early as possible: the first epochs may be removed later
                downtime_ms = self._downtime_ms(started.run, last)
        return self._downtime_ms(started.run, last) if downtime_ms is None else downtime_ms

    def _not_running(self, started: Started, source: str) -> JobFailed:
        """The error if a user has cancelled the new version, which is not rolled back."""
        return JobFailed(
            f"run {started.run} of the new version was cancelled during its trial, so job {self.job!r} does not run, and nothing "
            f"of the new version remains. To start the old one: {self._start_command(self.run, source)}"
        )

    def _start_command(self, run: str, source: str = "") -> str:
        """The command that starts the program of a run. ``source``: its option for what to restore."""
        return f"forkpoint --state-root {self.root.place} run -d {source}{PREFIX}{run}"

    def _passed(self, run: str) -> bool:
        newest = self.history.newest()
        return newest is not None and newest.run == run and newest.is_final

    def _ended(self, started: Started) -> str | None:
        """Why the run has ended; None while it runs."""
        storage, paths, run = self.root.storage, JobPaths(self.job), started.run
        endpoint = ENDPOINT.load_if_whole(storage, paths.endpoint_file(run))
        if endpoint is not None and probe(storage, endpoint) is not None:
            return None
        record = RUN.load_if_whole(storage, paths.run_file(run))
        if record is None:
            return self._last_error(started) or "it ended before its first epoch"
        if record.outcome is None:
            return "its driver was killed" if endpoint is not None else None
        return record.reason or f"it was {record.outcome} before its first epochs were committed"

    def _trial_failure(self, started: Started, ended: str) -> DriverFailed | _Cancelled:
        """The exception for a run that led the job and ended during its trial."""
        record = RUN.load_if_whole(self.root.storage, JobPaths(self.job).run_file(started.run))
        return _Cancelled() if record is not None and record.outcome == "cancelled" else self._failed(started, ended)

    def _last_error(self, started: Started) -> str | None:
        """The error in its log, which it writes after it has withdrawn its endpoint."""
        until = time.monotonic() + ENDING_SECONDS
        while (error := last_error(Path(started.log))) is None and time.monotonic() < until:
            time.sleep(_POLL_SECONDS)
        return error

    def _end(self, started: Started) -> None:
        """End a driver that this operation started: cancel it if it answers, otherwise kill it."""
        endpoint = ENDPOINT.load_if_whole(self.root.storage, JobPaths(self.job).endpoint_file(started.run))
        if endpoint is None:
            return
        with over_http(endpoint) as client, suppress(ForkpointError):
            client.cancel()
            if client.wait_gone(ENDING_SECONDS):
                return
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)  # with its workers: it has its own session

    def _restart(
        self, restore: RestoreOptions, last: Manifest, savepoint: str | None, problem: DriverFailed, after: str | None
    ) -> Upgraded:
        """Start the old program again, as the successor of run ``after``. The new version's withheld output is never
        published."""
        if problem.log_tail is not None:
            self.observer.remark(problem.log_tail)
        self.observer.remark(f"the new version failed: {problem}\nrolling back to the program of run {self.run}")
        rescaled_to = last.parallelism if last.rescaled else None  # a savepoint does not have it
        old = RunRequest(f"{PREFIX}{self.run}", restore=restore, parallelism=rescaled_to, predecessor=(self.job, after))
        try:
            with self.observer.steps(f"rolling back to run {self.run}") as report:
                started = start_detached(self.root, old, report, verbose=self.verbose, called=self.job)
        except DriverFailed as failed:
            kept = "Its checkpoint" if savepoint is None else "The savepoint"
            source = "" if savepoint is None else f"-s {savepoint} "
            message = (
                f"the old program did not start again either, so job {self.job!r} is not running: {failed}\n{kept} stays; "
                f"resume with: {self._start_command(self.run, source)}"
            )
            raise DriverFailed(message, failed.code, FAILED, failed.log_tail) from None
        downtime_ms = self._downtime_ms(started.run, last)
        return self._result("rolled-back", started, savepoint, downtime_ms, str(problem))

    def _result(
        self, outcome: Outcome, started: Started, savepoint: str | None, downtime_ms: int | None, failure: str | None = None
    ) -> Upgraded:
        return Upgraded(self.job, outcome, started.run, self.run, savepoint, downtime_ms, failure, started.pid, started.log)

    def _downtime_ms(self, run: str, last: Manifest) -> int | None:
        """From the old program's last epoch to the run's first; None if that is missing."""
        mine = (self._loaded(epoch) for epoch in self.history.epochs() if epoch > last.epoch)
        first = next((m for m in mine if m is not None and m.run == run and m.kind != "start"), None)
        return None if first is None else max(0, first.created_ms - last.created_ms)

    def _loaded(self, epoch: int) -> Manifest | None:
        """The manifest; None if it was removed in the meantime."""
        try:
            return self.history.load(epoch)
        except NotFound:
            return None

    def _failed(self, started: Started, message: str) -> DriverFailed:
        return DriverFailed(message, "JobFailed", JOB_FAILED, tail(Path(started.log)), started.run)

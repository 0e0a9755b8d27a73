"""A job's driver: runs epochs, handles requests, restarts after failures."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from msgspec.structs import replace

from forkpoint import logs
from forkpoint.checkpoint.manifest import Manifest, SourcePosition
from forkpoint.driver.commit.measurements import states_of
from forkpoint.driver.commit.publisher import clean_sinks
from forkpoint.driver.commit.skipped_records import Skipped
from forkpoint.driver.lead.handing_over import ROLLBACK_EPOCHS
from forkpoint.driver.lead.standby import HandedOver, LeaderEnded
from forkpoint.driver.lead.succession import Led
from forkpoint.driver.observe.events import AttemptStarted, Listener, Outcome, RunEnded, Steps
from forkpoint.driver.observe.journal import Journal
from forkpoint.driver.observe.metrics import JobMetrics
from forkpoint.driver.observe.status import Status
from forkpoint.driver.run.assembly import Run, assemble
from forkpoint.driver.run.epochs import EpochRunner, wall_clock_ms
from forkpoint.driver.run.executor import Executor, Streams
from forkpoint.driver.run.requests import (
    CancelRequest,
    HandOverRequest,
    Request,
    RescaleRequest,
    SavepointRequest,
    interrupt_until_over,
)
from forkpoint.driver.run.stop import Result, Stopping
from forkpoint.driver.run.timing import IDLE_WAIT_MS, Pace, short_turns
from forkpoint.driver.savepoints.background import throttled
from forkpoint.driver.savepoints.snapshots import Snapshots
from forkpoint.driver.scale.rescaling import Switched
from forkpoint.driver.start.preflight import check_hosts, check_sinks
from forkpoint.errors import (
    ConfigError,
    EngineLost,
    JobFailed,
    SavepointCorrupt,
    StaleGeneration,
    StorageError,
    SystemUnavailable,
)
from forkpoint.runtime.exchange.control import JobSpec
from forkpoint.savepoint.format.source_logs import inline_logs
from forkpoint.storage.base import Storage
from forkpoint.types.lookup import Program, values_of

log = logging.getLogger("forkpoint")


class JobDriver:
    """One run of a job, from start to end. ``run()`` blocks; other threads may call all other methods."""

    def __init__(
        self,
        run: Run,
        storage: Storage,
        executor: Executor,
        *,
        now_ms: Callable[[], int] = wall_clock_ms,
        steps: Steps | None = None,
        listeners: Sequence[Listener] = (),
    ) -> None:
        parts = assemble(run, storage, executor, now_ms, steps, listeners, lambda: self.abandoned())
        self.request, self.parts = run, parts
        self.job, self.run_id, self.graph, self.options = run.job, run.id, parts.graph, run.options
        self.executor, self.history, self.starter, self.now_ms = executor, parts.history, parts.starter, now_ms
        self.parallelism = run.parallelism  # of the current attempt
        self.standby = False
        self.over = threading.Event()  # set once the run has ended and released its resources
        self.on_stuck: Callable[[], None] = lambda: None  # called when a cancelled run does not end
        self.on_leading: Callable[[], None] = lambda: None  # called when a standby takes over
        self.abandoned: Callable[[], bool] = lambda: False  # whether the hand-off that this run waits for was given up
        self._lock = threading.RLock()  # held while an epoch runs
        self._closing = False
        self._trial = run.trial
        self._runner: EpochRunner | None = None
        self._unsettled: str | None = None  # why a cancelled run may leave its last epoch unpublished
        self._rollback_epoch: int | None = None  # the last epoch of the run that this one succeeded
        self._stopping = Stopping(run.id, run.job, parts.savepoints, self._settle)
        if run.standby or run.succeeds is not None:
            self.stand_by()

    def stand_by(self) -> None:
        """Make this run a standby of the run that leads the job. Call this before ``run()``."""
        if self.request.restore.savepoint is not None:
            raise ConfigError(
                f"job {self.job!r}: a standby resumes from the checkpoint of the run that it replaces; start it without a "
                f"savepoint to restore ({self.request.restore.savepoint})"
            )
        self.standby = True

    # -- called from other threads

    def savepoint(
        self,
        directory: str | None = None,
        label: str | None = None,
        note: str | None = None,
        *,
        stop: bool = False,
        drain: bool = False,
        skip_unreadable: bool = False,
        epoch: int | None = None,
        self_contained: bool = False,
    ) -> SavepointRequest:
        """Request a savepoint of the last committed epoch, or of ``epoch``. With ``stop``, the run commits no further epoch."""
        skip, own = skip_unreadable, self_contained
        request = SavepointRequest(directory, label, note, stop, drain, skip_unreadable=skip, epoch=epoch, self_contained=own)
        self._enqueue(request)
        return request

    def rescale(self, parallelism: int) -> RescaleRequest:
        """Request another parallelism, without a restart."""
        request = RescaleRequest(parallelism)
        if self._on_trial:
            request.done.set_exception(ConfigError(f"job {self.job!r} is on trial; it can be rescaled once that is over"))
        else:
            self._enqueue(request)
        return request

    def hand_over(self, successor: str) -> HandOverRequest:
        """Request a hand-off to the run ``successor``, which is waiting for it."""
        request = HandOverRequest(successor)
        self._enqueue(request)
        return request

    def cancel(self) -> CancelRequest:
        """Request the end of the job without a savepoint; the driver abandons a running epoch."""
        request = CancelRequest()
        self._enqueue(request)
        interrupt = partial(
            interrupt_until_over,
            self.executor,
            self.over,
            starting=lambda: self.parts.status.status.state in ("starting", "standby"),
            stuck=lambda: self.on_stuck(),
        )
        threading.Thread(target=interrupt, name=f"forkpoint-cancel-{self.job}", daemon=True).start()
        return request

    def record_cancelled(self) -> None:
        """Record the cancellation on behalf of a stuck driver thread."""
        self.parts.records.end("cancelled", f"ended by force, at {self.doing()}", self.now_ms())

    @property
    def epoch_ms(self) -> int:
        """How long the current epoch has been running; 0 between epochs."""
        began_ms = self._runner.epoch_began_ms if self._runner is not None else None
        return self.now_ms() - began_ms if began_ms is not None else 0

    def doing(self) -> str:
        """The run's current activity, for people: "epoch 7, for 12.3 s, in operator 'x' (spin, app.py:7)"."""
        runner, status = self._runner, self.parts.status.status
        if runner is not None and (passed_ms := self.epoch_ms):
            step = f"epoch {runner.manifest.epoch + 1}, for {passed_ms / 1000:.1f} s"
        elif status.state == "starting":
            step = f"starting, for {(self.now_ms() - status.started_ms) / 1000:.1f} s"
        else:
            return status.state
        activity = self.executor.activity()
        return step if activity is None else f"{step}, {activity}"

    def _enqueue(self, request: Request) -> None:
        if self._closing:
            request.done.set_exception(JobFailed(f"job {self.job!r} has ended and no longer accepts requests"))
        else:
            self.parts.inbox.put(request)

    def status(self) -> Status:
        runner = self._runner
        ignored, problems = ({}, {}) if runner is None else (runner.planner.ignored(), runner.planner.problems())
        return replace(
            self.parts.status.status,
            ignored_files=ignored,
            publishing_problem=self.parts.publisher.problem,
            reading_problems=problems,
        )

    def journal(self) -> Journal:
        """The run's latest epochs, failures and savepoints."""
        return self.parts.journal.journal

    @property
    def manifest(self) -> Manifest | None:
        """The last committed manifest; None before the first attempt."""
        return None if self._runner is None else self._runner.manifest

    def metrics(self) -> JobMetrics:
        return self.parts.metrics.metrics

    # -- the run

    def run(self) -> Result:
        """Restore the job and run it to its end. Raises the final error once the restart strategy has given up."""
        with logs.within(self), values_of(Program(allow_pickle=self.options.allow_pickle)), short_turns():
            return self._run_to_end(self._run)

    def publish(self, skipped: list[Skipped] | None = None) -> Result:
        """Publish the committed output that the job's last run left unpublished, without running the job. If ``skipped`` is
        given, the driver skips refused records and appends them to it."""

        def work() -> Result:
            check_sinks(self.graph)
            newest = self.starter.publish()
            return Result(self.run_id, "stopped", 0 if newest is None else newest.epoch)

        self.parts.publisher.skipped = skipped
        with logs.within(self):
            return self._run_to_end(work)

    def takes(self, record: logging.LogRecord) -> bool:
        return True

    def about(self) -> dict[str, Any]:
        """The fields of log lines. ``epoch``: the running epoch, or the last committed one."""
        runner, known = self._runner, {"job": self.job, "run": self.run_id}
        if runner is None:
            return known
        return {**known, "epoch": runner.manifest.epoch + (runner.epoch_began_ms is not None)}

    def _run_to_end(self, work: Callable[[], Result]) -> Result:
        try:
            result = work()
        except BaseException as error:
            self.parts.listener.on_event(RunEnded("failed", str(error)))
            self._end(error, "superseded" if isinstance(error, StaleGeneration) else "failed", str(error))
            raise
        self.parts.listener.on_event(RunEnded(result.outcome))
        self._end(JobFailed(f"job {self.job!r} has ended"), result.outcome, self._unsettled)
        return result

    def _run(self) -> Result:
        try:
            check_hosts(self.executor, self.parts.storage, self.graph, self.request.local_dir)
            check_sinks(self.graph)
            led = self.parts.succession.lead() if self.standby else Led(self.starter.start(self.request.predecessor), None)
        except Exception as error:
            if self.parts.inbox.cancelled and not isinstance(error, StaleGeneration):
                return self._cancelled(self._newest_epoch())
            raise
        if led is None:
            return self._cancelled(self._newest_epoch())
        if isinstance(led, LeaderEnded | HandedOver):
            return Result(self.run_id, led.outcome(), self._newest_epoch())
        if led.manifest is None:
            return Result(self.run_id, "finished", self._newest_epoch())
        if self.standby:
            self.standby = False
            self.on_leading()
        if self.parts.succession.succeeds is not None:
            self._rollback_epoch = led.manifest.parent.epoch
        return self._run_attempts(led.manifest, led.layout)

    def _end(self, error: BaseException, outcome: Outcome | Literal["superseded"], reason: str | None) -> None:
        try:
            lost, published = isinstance(error, EngineLost), self.parts.publisher.published
            records = self.parts.status.status.run_records
            self.parts.records.end(outcome, reason, self.now_ms(), engine_lost=lost, published=published, records=records)
        except StorageError as unwritten:
            log.warning("job %r: the end of run %s could not be recorded: %s", self.job, self.run_id, unwritten)
        finally:
            self._release(error)

    def _release(self, error: BaseException) -> None:
        self._closing = True
        self.parts.inbox.fail_all(error)
        self.parts.handing_over.close(error)
        self.parts.publisher.close()
        self.parts.rescaling.stop()
        try:
            self.parts.lease.close()
            self.parts.savepoints.close()
            self.parts.garbage.close()
            self.executor.close()
            self.parts.rescaling.close(error)
        finally:
            self.over.set()

    def _newest_epoch(self) -> int:
        newest = self.history.newest()
        return newest.epoch if newest is not None else 0

    @property
    def _on_trial(self) -> bool:
        return self._trial is not None and (self._runner is None or self._runner.trial.active)

    def _run_attempts(self, manifest: Manifest, prepared: JobSpec | None) -> Result:
        failed: Exception | None = None
        while True:
            try:
                if failed is not None:
                    manifest = self._resume(manifest, failed)
                    if manifest.drained_early:
                        return self._stopping.by_drain(manifest, failed)
                ended = self._attempt(manifest, prepared or self.parts.layouts.next(manifest, manifest.parallelism))
                if isinstance(ended, Result):
                    if not self._settle(ended.outcome) and ended.outcome == "finished":
                        return self._cancelled(ended.epoch)  # the next run publishes
                    return ended
                manifest, prepared, failed = ended.manifest, ended.spec, None
            except Exception as error:
                failed, prepared = error, None
                if (interrupted := self.parts.rescaling.interrupt()) is not None:
                    self.parts.inbox.put(interrupted)
                if self._on_trial and not self.parts.inbox.cancelled:
                    raise
                epoch = manifest.epoch if self._runner is None else self._runner.manifest.epoch
                proven = self._runner is not None and self._runner.manifest.kind != "start"
                restarting = self.parts.failures.after(error, epoch, proven=proven)
                if restarting is None or self.parts.inbox.cancelled:
                    return self._given_up(manifest, error)
                self.parts.listener.on_event(restarting)
                log.warning(
                    "job %r: %s; restart %d in %.1f s",
                    self.job,
                    restarting.failure,
                    restarting.restarts,
                    restarting.delay_ms / 1000,
                )
                self.parts.inbox.pause(restarting.delay_ms / 1000)

    def _resume(self, manifest: Manifest, failed: Exception) -> Manifest:
        return self.starter.resume(manifest, failed, None if self._runner is None else self._runner.undecided)

    def _settle(self, outcome: Outcome) -> bool:
        """Block until committed output is published; returns whether that succeeded."""
        unsettled = self.parts.publisher.settle(lambda: outcome == "cancelled" or self.parts.inbox.cancelled)
        self._unsettled = unsettled or self._unsettled
        return unsettled is None

    def _given_up(self, manifest: Manifest, error: Exception) -> Result:
        """End a run that does not restart: returns if it was cancelled, else raises the error."""
        if isinstance(error, SavepointCorrupt):
            self.starter.newest_own(manifest, error)  # StaleGeneration if a newer run has removed the missing files
        if not self.parts.inbox.cancelled or isinstance(error, StaleGeneration):
            raise error
        if self.parts.failures.outage is not None:
            self._unsettled = self.parts.failures.outage.explain(error)
            return self._cancelled(manifest.epoch)
        try:
            return self._cancelled(self._resume(manifest, error).epoch)
        except SystemUnavailable as unavailable:
            self._unsettled = f"cancelled before its output was published: {unavailable}"
            return self._cancelled(self._newest_epoch())

    def _attempt(self, manifest: Manifest, spec: JobSpec) -> Result | Switched:
        """Run from a committed epoch until the job ends, fails or is rescaled."""
        self.parts.publisher.begin()
        self.executor.start(spec)
        self.parallelism = spec.parallelism
        runner = EpochRunner(
            run=self.run_id,
            graph=self.graph,
            manifest=manifest,
            history=self.history,
            executor=self.executor,
            publisher=self.parts.publisher,
            snapshots=Snapshots(
                self.history,
                partial(throttled, self.executor, description="snapshots", waits=lambda: bool(self.parts.savepoints.pinned())),
            ),
            timeout_ms=self.options.checkpoint.timeout_ms,
            max_rows=self.options.max_epoch_rows,
            limits_memory=self.options.memory_bytes is not None,
            now_ms=self.now_ms,
            listener=self.parts.listener,
            until=self.request.until,
            trial=self._trial,
            wake=self.parts.inbox.found_input,
        )
        self._runner = runner
        started = AttemptStarted(
            manifest.epoch,
            self.parts.failures.restarts,
            manifest.watermarks,
            self.now_ms(),
            states_of(manifest),
            from_nothing=manifest.kind == "start" and manifest.parent.kind == "none",
        )
        self.parts.listener.on_event(started)
        streams: Streams | None = None
        try:
            if self.graph.frame_sources:
                stops = runner.bound.frame_stops
                positions = inline_logs(self.parts.storage, manifest.sources)
                streams = self.executor.start_streams(self.graph, positions, self._on_batch, stops)
            ended = self._loop(runner, streams)
            self._notify_last(runner, ended)
            return ended
        finally:
            if streams is not None:
                streams.stop()
            runner.close()

    def _loop(self, runner: EpochRunner, streams: Streams | None) -> Result | Switched:
        interval_ms = 0 if self.request.until is not None else self.options.checkpoint.interval_ms or 0
        pace = Pace(interval_ms, self.options.checkpoint.min_pause_ms)
        while True:
            began = time.monotonic()
            with self._lock:
                result = self._switched(runner) or self._handle_requests(runner) or self._handed_over(runner)
                if result is not None:
                    return result
                worked = runner.step()
                if worked:
                    self.parts.failures.committed()
                if runner.manifest.kind != "start" and not runner.trial.active:
                    self.starter.proven()
                if runner.manifest.kind == "end":
                    self.parts.savepoints.finish(self.parts.inbox, runner.manifest)
                    return Result(self.run_id, "finished", runner.manifest.epoch)
                if runner.reached:
                    return self._stop_at_bound(runner)
                if not runner.trial.active:
                    self._trial = None
            self._autoscale(runner, full=worked and runner.planner.full)
            pinned, since = partial(self._pinned, runner), self.parts.savepoints.earlier.since
            self.parts.garbage.collect_if_due(runner.manifest, pinned, since)
            if streams is not None and (failure := streams.failure()) is not None:
                raise failure
            self._wait(runner, worked, began, pace)

    def _notify_last(self, runner: EpochRunner, ended: Result | Switched) -> None:
        """Notify functions of the last epoch. It stays committed even if they fail."""
        if isinstance(ended, Result) and ended.outcome == "cancelled":
            return
        try:
            runner.notify()
        except Exception as error:
            log.error(
                "job %r: functions were not notified that epoch %d, the last one, is complete: %s",
                self.job,
                runner.manifest.epoch,
                error,
            )

    def _autoscale(self, runner: EpochRunner, *, full: bool) -> None:
        if self.parts.autoscaler is None or runner.trial.active:
            return
        wanted = self.parts.autoscaler.wanted(runner.manifest.parallelism, full=full, now_ms=self.now_ms())
        if wanted is not None:
            self.parts.inbox.put(RescaleRequest(wanted))

    def _switched(self, runner: EpochRunner) -> Switched | None:
        """Switch to another parallelism if its stores are ready. Savepoints in progress would be lost, so they complete first."""
        if not self.parts.rescaling.due(runner.manifest, wait=bool(self.parts.savepoints.pinned())):
            return None
        switched = self.parts.rescaling.switch(runner.manifest)
        if switched is not None:
            runner.retire()
        return switched

    def _handed_over(self, runner: EpochRunner) -> Result | None:
        """Hand the job over if requested. Savepoints and rescalings in progress would be lost, so they complete first."""
        in_progress = self.parts.savepoints.pinned() or self.parts.rescaling.in_progress
        if not self.parts.handing_over.wanted or in_progress or runner.progress.in_flight:
            return None
        self._closing = True  # no further batch is read
        self._closing = self.parts.handing_over.hand_over(runner.manifest, self.parts.inbox.pause)
        return Result(self.run_id, "stopped", runner.manifest.epoch) if self._closing else None

    def _wait(self, runner: EpochRunner, worked: bool, began: float, pace: Pace) -> None:
        """Wait until the next epoch may begin or is due, or a request arrives. Before a wait, notify functions of the last
        epoch."""

        def wait_ms() -> float:
            due = runner.due_ms()
            return pace.wait_ms(
                worked=worked,
                passed_ms=(time.monotonic() - began) * 1000,
                in_flight=bool(runner.progress.in_flight),
                due_in_ms=None if due is None else due - runner.now_ms(),
                blocked=not worked and self.parts.publisher.full,
            )

        if wait_ms() > 0:
            with self._lock:
                runner.notify()
        # During a trial only a cancel request is handled.
        if runner.trial.active:
            self.parts.inbox.pause(wait_ms() / 1000)
        else:
            self.parts.inbox.wait(wait_ms() / 1000, for_input=not worked and not self.parts.publisher.full)

    def _on_batch(self, frame: Any, positions: Mapping[str, SourcePosition]) -> None:
        """Run a batch of DataFrame sources as an epoch, on the streams' thread."""
        while self.parts.publisher.full and not self._closing:
            self.parts.publisher.wait(IDLE_WAIT_MS / 1000)
        with self._lock:
            runner = self._runner
            if self._closing or runner is None or self.parts.status.status.state != "running" or runner.reached:
                raise JobFailed(f"job {self.job!r} is ending; the next run reads this batch again")
            runner.step(frame=frame, frames=positions)
        self.parts.inbox.wake()

    # -- requests

    def _handle_requests(self, runner: EpochRunner) -> Result | None:
        """Handle pending requests; returns a result if one ends the job."""
        if runner.trial.active:
            return self._cancelled(runner.manifest.epoch) if self.parts.inbox.cancelled else None
        if self.parts.schedule is not None and (due := self.parts.schedule.due(runner.manifest)) is not None:
            self.parts.savepoints.begin(due, runner.manifest)
        while (request := self.parts.inbox.take()) is not None:
            if isinstance(request, CancelRequest):
                request.done.set_result(None)
                return self._cancelled(runner.manifest.epoch)
            if isinstance(request, RescaleRequest):
                self.parts.rescaling.begin(request, runner.manifest, partial(self.parts.layouts.next, runner.manifest))
                continue
            if isinstance(request, HandOverRequest):
                self.parts.handing_over.begin(request)
                continue
            if not request.stop:
                self.parts.savepoints.begin(request, runner.manifest)
                continue
            self._closing = True  # no further batch is read
            stopped = self._stopping.stop(request, runner)
            if stopped is not None:
                return stopped
            self._closing = False
        return None

    def _stop_at_bound(self, runner: EpochRunner) -> Result:
        """End a run that has reached its ``until`` with a savepoint."""
        assert self.request.until is not None
        request = SavepointRequest(note=f"replayed until {self.request.until.name}", stop=True)
        path = self.parts.savepoints.make(request, runner.manifest)
        self._closing = True
        clean_sinks(self.graph, self.job, runner.manifest.generation)  # staged by epochs that went too far
        return Result(self.run_id, "stopped", runner.manifest.epoch, path)

    def _cancelled(self, epoch: int) -> Result:
        self.parts.inbox.cancel_all(self.job)
        return Result(self.run_id, "cancelled", epoch)

    def _pinned(self, runner: EpochRunner) -> set[int]:
        """Epochs whose files savepoints, snapshots, rescalings or a rollback still need."""
        pinned = self.parts.savepoints.pinned() | self.parts.rescaling.pinned(runner.manifest) | runner.snapshots.pinned()
        rollback = self._rollback_epoch
        if rollback is not None and (self._on_trial or runner.manifest.epoch < rollback + ROLLBACK_EPOCHS):
            pinned.add(rollback)
        return pinned

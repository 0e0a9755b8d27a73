"""The driver's Executor on Spark. An epoch is one Spark job."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from forkpoint.checkpoint.manifest import SourcePosition
from forkpoint.driver.run.executor import Executor, OnBatch
from forkpoint.errors import ConfigError, EngineLost
from forkpoint.graph.job import JobGraph
from forkpoint.graph.specs import DataFrameSpec
from forkpoint.runtime.exchange.control import CatchUp, EpochContext, JobSpec, divide, encode_context, encode_part
from forkpoint.runtime.tasks import entry_points
from forkpoint.runtime.tasks.background_process import BackgroundProcess
from forkpoint.runtime.tasks.preparation import catch_ups, preparations, prepare_store, remove_stores
from forkpoint.spark.background_tasks import map_arguments, mapped, task_logging
from forkpoint.spark.exchange import EpochJobs, executor_cores, failed_hosts, has_several_hosts, map_bytes
from forkpoint.spark.failures import raising_originals
from forkpoint.spark.frames import check_columns, struct_of
from forkpoint.spark.host_rows import exchange_directory, remove
from forkpoint.spark.placement import place
from forkpoint.spark.residents import Residents, ResidentsLost, can_stay
from forkpoint.spark.rows import PAIR_SCHEMA
from forkpoint.spark.session import BACKGROUND_POOL, EPOCH_POOL, FORWARDING_JVM, get_session
from forkpoint.spark.shipping.modules import ship_program
from forkpoint.spark.shipping.provisions import NOTHING, Provisions
from forkpoint.spark.streams import StreamingSources, StreamSource
from forkpoint.spark.tasks import (
    EPOCH_PROPERTY,
    EXCHANGE_PROPERTY,
    FrameStage,
    JobHandle,
    NotifyStage,
    Runtime,
    SourceStage,
    SubtaskStage,
    pack_job,
    prepare_on_host,
)
from forkpoint.types import TypeInformation

log = logging.getLogger("forkpoint")

DEFAULT_INTERVAL_MS = 100

_ENTRY_POINTS = Runtime(
    entry_points.run_source_task, entry_points.run_frame_task, entry_points.run_subtask, entry_points.notify_subtask
)
_POOL_PROPERTY = "spark.scheduler.pool"
_DESCRIPTION_PROPERTY = "spark.job.description"


@dataclass(frozen=True)
class _Run:
    spec: JobSpec
    handle: JobHandle
    jobs: EpochJobs
    residents: Residents | None


class SparkExecutor(Executor):
    """Runs the epochs of one run of a job on a SparkSession.

    interval: the time between micro-batches of streaming DataFrames. runtime: the functions that tasks call.

    `run_epoch` and `run_tasks` raise tasks' errors unchanged, and Spark's exceptions for its own failures (a lost executor,
    a cancelled job).
    """

    def __init__(self, session: SparkSession, interval: timedelta, runtime: Runtime = _ENTRY_POINTS) -> None:
        self.session = session
        self._interval = interval
        self._sc = self.session.sparkContext
        self._runtime = runtime
        self._run: _Run | None = None
        self._epochs_started = False
        self._beside = BackgroundProcess()
        run = uuid.uuid4().hex
        self._epoch_tag, self._background_tag = f"forkpoint-epoch-{run}", f"forkpoint-background-{run}"

    def start(self, spec: JobSpec) -> None:
        """Ships the job to the cluster, and closes an earlier run. Raises EngineLost if Spark has terminated."""
        self._end()
        stages = spec.graph.stages
        with self._detecting_loss():
            if self.has_other_hosts:
                ship_program(self._sc)
            # Spark gives a task to any idle Python process of the executor.
            spec = replace(spec, several_processes=True, logging=task_logging(self._sc, spec.parallelism))
            packed = pack_job(self._runtime, spec, on_cluster=self.has_other_hosts)
            handle = JobHandle(uuid.uuid4().hex, self._sc.broadcast(packed))
            subtasks = [SubtaskStage(handle, stage, last=stage == stages) for stage in range(1, stages + 1)]
            jobs = EpochJobs(self._sc, spec.parallelism, SourceStage(handle, last=stages == 0), subtasks)
            residents = self._residents(handle, spec) if can_stay(self._sc, spec.graph) else None
            self._run = _Run(spec, handle, jobs, residents)

    def _residents(self, handle: JobHandle, spec: JobSpec) -> Residents:
        properties = {_POOL_PROPERTY: EPOCH_POOL, _DESCRIPTION_PROPERTY: f"forkpoint: resident tasks of {spec.job}"}
        job = partial(self._job, self._epoch_tag)
        return Residents(self._sc, handle, spec.parallelism, spec.graph.stages, job, properties)

    def _started(self, method: str) -> _Run:
        if self._run is None:
            raise ConfigError(f"SparkExecutor.{method} was called before start")
        return self._run

    def run_epoch(self, ctx: EpochContext, source_tasks: Sequence[bytes], frame: Any = None) -> list[bytes]:
        """Runs one epoch in resident tasks or as one Spark job; returns the blobs of the commit rows, in partition order.

        source_tasks: the plans of native source tasks; one partition each. frame: a DataFrame of stage-0 output, as
        `frame_stage` returns it, or the micro-batch of a streaming query over such. All subtasks run, even without rows.
        """
        run = self._started("run_epoch")
        self._epochs_started = True
        if self.has_other_hosts:
            return self._run_epoch(run, ctx, source_tasks, frame, "")
        exchange = exchange_directory(run.spec.local_dir, f"{ctx.epoch}-{uuid.uuid4().hex[:8]}")
        try:
            return self._run_epoch(run, ctx, source_tasks, frame, exchange)
        finally:
            remove(exchange)

    def _run_epoch(self, run: _Run, ctx: EpochContext, source_tasks: Sequence[bytes], frame: Any, exchange: str) -> list[bytes]:
        if run.residents is not None and frame is None:
            with self._detecting_loss(), _logging_loss():
                if (blobs := run.residents.run(ctx, source_tasks, exchange)) is not None:
                    return blobs
        began = time.monotonic()
        with self._epoch_job(run, ctx, f"forkpoint epoch {ctx.epoch}", exchange) as parts:
            blobs = run.jobs.run(source_tasks, frame, parts)
        if run.residents is not None:
            run.residents.ran(time.monotonic() - began)
        return blobs

    def notify(self, ctx: EpochContext) -> None:
        run = self._started("notify")
        if run.residents is not None:
            with self._detecting_loss(), _logging_loss():
                if run.residents.notify(ctx):
                    return
        with self._epoch_job(run, ctx, f"forkpoint epoch {ctx.committed} is complete") as parts:
            map_bytes(self._sc, NotifyStage(run.handle), parts, len(parts))

    @contextmanager
    def _epoch_job(self, run: _Run, ctx: EpochContext, description: str, exchange: str = "") -> Iterator[list[bytes]]:
        """Pass an epoch's context to the block's Spark job. Yields the subtasks' parts of it."""
        common, parts = divide(ctx, run.spec.parallelism)
        properties = {EPOCH_PROPERTY: encode_context(common), _POOL_PROPERTY: EPOCH_POOL, _DESCRIPTION_PROPERTY: description}
        properties |= {EXCHANGE_PROPERTY: exchange} if exchange else {}
        with (
            self._detecting_loss(),
            raising_originals(run.handle.token, partial(failed_hosts, self._sc)),
            self._job(self._epoch_tag, properties),
        ):
            yield list(map(encode_part, parts))

    def run_tasks(self, fn: Callable[[bytes], bytes], args: Sequence[bytes], description: str) -> list[bytes]:
        """`[fn(arg) for arg in args]` on the cluster, outside epochs; other threads may call it while epochs run.

        Before the first epoch, each argument is a task on a cluster; on one host, each core has two tasks, which take several
        arguments each. Once epochs run, tasks use at most half of the cores: Spark does not preempt tasks, so a pool of low
        weight alone would leave no core free.
        """
        if not args:
            return []
        if self._run is None and self.has_other_hosts:  # a start publishes an earlier run's output with the program's sinks
            ship_program(self._sc)
        with self._background_job(description):
            return self._mapped(fn, args)

    def run_beside_epochs(self, fn: Callable[[bytes], bytes], args: Sequence[bytes], description: str) -> list[bytes]:
        residents = None if self._run is None else self._run.residents
        if residents is None:
            return self.run_tasks(fn, args, description)
        with residents.beside() as stay:
            if stay:
                with self._detecting_loss(), _logging_loss():
                    return mapped(self._sc, fn, len(args), partial(residents.call, arguments=args))
            with self._background(description):
                return self._mapped(fn, args)

    def run_in_background(self, fn: Callable[[bytes], bytes], args: Sequence[bytes], description: str) -> list[bytes]:
        """On one host, in a process beside Spark's, so that resident tasks keep their cores."""
        return self.run_tasks(fn, args, description) if self.has_other_hosts else self._beside.run(fn, args)

    def _mapped(self, fn: Callable[[bytes], bytes], args: Sequence[bytes]) -> list[bytes]:
        return map_arguments(self._sc, fn, args, min(self._background_slots(len(args)), len(args)))

    def prepare(self, spec: JobSpec, epoch: int) -> list[CatchUp]:
        """Runs on the hosts where the layout's subtasks would run if it were started with the current executors."""
        caught_up: list[CatchUp] = []
        work = preparations(spec, epoch)
        hosts: Sequence[str] = ()
        if self.has_other_hosts:
            ship_program(self._sc)
            hosts = place(spec.parallelism, executor_cores(self._sc))
        task = prepare_on_host if self.has_other_hosts else prepare_store
        slots = self._background_slots(len(work))
        for start in range(0, len(work), slots):
            part, part_hosts = work[start : start + slots], hosts[start : start + slots]
            with self._background_job(f"forkpoint: stores for epoch {epoch}"):
                caught_up += catch_ups(map_arguments(self._sc, task, part, len(part), part_hosts or None))
        return caught_up

    def discard(self, spec: JobSpec) -> None:
        """In a cluster, the stores are removed with the application, or when a later attempt of the run begins."""
        if not self.has_other_hosts:
            remove_stores(spec.local_dir)

    def _background_slots(self, tasks: int) -> int:
        """How many Spark tasks to divide these tasks into. On one host few, because each costs some 20 ms."""
        cores: int = self._sc.defaultParallelism
        if self._epochs_started:
            return max(1, cores // 2)
        return tasks if self.has_other_hosts else 2 * cores

    @contextmanager
    def _background_job(self, description: str) -> Iterator[None]:
        residents = None if self._run is None else self._run.residents
        cores = nullcontext() if residents is None else residents.cores()
        with cores, self._background(description):
            yield

    @contextmanager
    def _background(self, description: str) -> Iterator[None]:
        properties = {_POOL_PROPERTY: BACKGROUND_POOL, _DESCRIPTION_PROPERTY: description}
        with self._detecting_loss(), self._job(self._background_tag, properties):
            yield

    @property
    def has_other_hosts(self) -> bool:
        return has_several_hosts(self._sc.master)

    def run_on_hosts(self, fn: Callable[[bytes], bytes], arg: bytes) -> list[bytes]:
        """`fn(arg)` at least once on each host that has an executor. Executors start in parallel: waits for the first one by
        running a task, then uses those that exist."""
        with self._detecting_loss(), self._job(self._background_tag, {_DESCRIPTION_PROPERTY: "forkpoint: try hosts"}):
            first = map_arguments(self._sc, fn, [arg], 1)
            hosts = sorted(executor_cores(self._sc))  # without the driver's
            return first if not hosts else first + map_arguments(self._sc, fn, [arg] * len(hosts), len(hosts), hosts)

    def frame_stage(self, operator: int, frame: DataFrame) -> DataFrame:
        """Stage 0 of a DataFrame source: a DataFrame, streaming if `frame` is, that `run_epoch` takes as its `frame`.

        It calls the runtime's `run_frame_task` for each partition, with the partition's id in the job as `task`: unique in
        an epoch, and in the order of the DataFrame's partitions. Spark runs no task for sources that it knows to be empty.
        """
        run = self._started("frame_stage")
        stage = FrameStage(run.handle, operator, last=run.spec.graph.stages == 0)
        return frame.mapInArrow(stage, struct_of(PAIR_SCHEMA))

    def start_streams(
        self,
        graph: JobGraph,
        positions: Mapping[str, SourcePosition],
        on_batch: OnBatch,
        stops: Mapping[str, SourcePosition] | None = None,
    ) -> StreamingSources:
        """Starts one streaming query over the graph's DataFrame sources, each at its position or from its beginning.

        `on_batch(frame, positions)` is called on the query's thread for each micro-batch; see `StreamingSources`. Raises
        ConfigError for DataFrames whose position or state does not fit into a savepoint, RestoreRefused for positions of
        another kind of source, TypeNotSupported for a DataFrame without the declared type's columns.
        """
        token, sources = self._started("start_streams").handle.token, []
        for operator in graph.frame_sources:
            spec = operator.spec
            assert isinstance(spec, DataFrameSpec)
            if operator.output_type is not None:
                columns = (spec.timestamp_column, spec.split_column)
                check_columns(spec.frame.schema, operator.output_type, operator.uid, *columns)
            # A watermark generator needs the elements in the order of the partitions, so one task reads all.
            frame = spec.frame.coalesce(1) if operator.id in graph.generating else spec.frame
            sources.append(StreamSource(operator.uid, operator.id, frame))
        return StreamingSources(self.session, self.frame_stage, token, sources, positions, on_batch, self._interval, stops)

    def staged_frame(self, paths: Sequence[str], type: TypeInformation) -> DataFrame:
        """A DataFrame of `type`'s columns over staged Parquet files, without rows if there are no files."""
        schema = struct_of(type.arrow_schema)
        if not paths:
            return self.session.createDataFrame([], schema)
        return self.session.read.schema(schema).parquet(*paths)

    def interrupt(self) -> None:
        """Makes a running epoch fail soon, with Spark's exception for cancelled jobs, or JobFailed."""
        if self._run is not None and self._run.residents is not None:
            self._run.residents.interrupt()
        if not self._is_lost():
            self._sc.cancelJobsWithTag(self._epoch_tag)

    def abandon(self) -> None:
        """Makes the run's Spark jobs fail soon, including those of its start and background jobs."""
        if not self._is_lost():
            for tag in (self._epoch_tag, self._background_tag):
                self._sc.cancelJobsWithTag(tag)

    def activity(self) -> str | None:
        """The number of running tasks, and of those that wait for a core."""
        if self._is_lost():
            return None
        tracker = self._sc.statusTracker()
        stages = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage)) is not None]
        if not stages:
            return None
        running = sum(info.numActiveTasks for info in stages)
        waiting = sum(info.numTasks - info.numCompletedTasks for info in stages) - running
        if running:
            return f"Spark runs {running} tasks, {waiting} wait"
        lacking = "executor" if self.has_other_hosts and not executor_cores(self._sc) else "free core"
        return f"{waiting} tasks wait: Spark has no {lacking} for them"

    def close(self) -> None:
        """Cancels the run's Spark jobs and releases its resources on the cluster. Keeps the session. Idempotent."""
        self._beside.close()
        self._end()

    def _end(self) -> None:
        run, self._run = self._run, None
        if run is None or self._is_lost():
            return
        if run.residents is not None:
            run.residents.close()
        self.abandon()
        run.handle.payload.unpersist(blocking=False)
        self.discard(run.spec)

    @contextmanager
    def _detecting_loss(self) -> Iterator[None]:
        """Raise EngineLost for errors after Spark has terminated: no restart of the job could succeed."""
        try:
            yield
        except Exception as error:
            if not self._is_lost():
                raise
            raise EngineLost(
                "Spark terminated while the job was running: its JVM was killed (out of memory?) or crashed, or the SparkSession "
                "was stopped; see Spark's log. Start the job again: it resumes from the last checkpoint"
            ) from error

    def _is_lost(self) -> bool:
        """Whether Spark no longer responds."""
        try:
            return self._sc._jsc is None or bool(self._sc._jsc.sc().isStopped())
        except Exception:  # Py4J raises many kinds
            return True

    @contextmanager
    def _job(self, tag: str, properties: Mapping[str, str]) -> Iterator[None]:
        """Give this thread's Spark jobs this tag and these local properties within the block."""
        before = {name: self._sc.getLocalProperty(name) for name in properties}
        for name, value in properties.items():
            self._sc.setLocalProperty(name, value)
        self._sc.addJobTag(tag)
        try:
            yield
        finally:
            try:
                self._sc.removeJobTag(tag)
                for name, old in before.items():
                    self._sc.setLocalProperty(name, old)
            except Exception:  # Py4J raises many kinds
                if not self._is_lost():
                    raise


@contextmanager
def _logging_loss() -> Iterator[None]:
    """Log the loss of a resident task, whose work is repeated."""
    try:
        yield
    except ResidentsLost as lost:
        log.warning("%s; its work is repeated as a Spark job", lost)


def make_spark_executor(
    interval_ms: int | None, settings: Mapping[str, str], provisions: Provisions = NOTHING
) -> tuple[SparkExecutor, int]:
    """An executor on the active SparkSession, or on a new one with these settings, and its default parallelism."""
    # A job with DataFrames already has a session, with the JVM that they need.
    session = get_session(settings, provisions, FORWARDING_JVM)
    executor = SparkExecutor(session, timedelta(milliseconds=interval_ms or DEFAULT_INTERVAL_MS))
    return executor, executor.session.sparkContext.defaultParallelism

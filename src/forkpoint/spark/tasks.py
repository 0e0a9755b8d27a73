"""The code that runs in Spark's Python workers.

The functions that Spark ships with a job are small objects with a handle of the job's broadcast; a worker process unpickles the
job once. An epoch's context is a local property of the Spark job, and a subtask's part of it is the first row of the subtask's
partition. So the same functions serve all epochs.
"""

from __future__ import annotations

import gc
import os
import pickle
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark import TaskContext

from forkpoint.logs import TaskLogging
from forkpoint.runtime.exchange.control import EpochContext, JobSpec, decode_context, decode_part
from forkpoint.runtime.exchange.wire import PART, ChunkRow, commits_in
from forkpoint.runtime.tasks.preparation import decode_preparation, prepare_store
from forkpoint.runtime.tasks.task_log import background_task_log
from forkpoint.runtime.tasks.worker import drop_worker, rest_worker
from forkpoint.spark.failures import TaskFailure, pack_failure
from forkpoint.spark.host_rows import fetched, left
from forkpoint.spark.rows import pair_batch
from forkpoint.types import dumps

EPOCH_PROPERTY = "forkpoint.epoch"
EXCHANGE_PROPERTY = "forkpoint.exchange"
"""The directory of the epoch's large rows, if all tasks share a host."""


class Runtime(NamedTuple):
    """The functions of `forkpoint.runtime.tasks.entry_points`."""

    run_source_task: Callable[[JobSpec, EpochContext, int, bytes], Iterator[ChunkRow]]
    run_frame_task: Callable[[JobSpec, EpochContext, int, int, Iterator[pa.RecordBatch]], Iterator[ChunkRow]]
    run_subtask: Callable[[JobSpec, EpochContext, int, int, Iterable[ChunkRow]], Iterator[ChunkRow]]
    notify_subtask: Callable[[JobSpec, EpochContext, int], None]


class Job(NamedTuple):
    """A job in a worker."""

    runtime: Runtime
    spec: JobSpec


def pack_job(runtime: Runtime, spec: JobSpec, *, on_cluster: bool) -> bytes:
    """The bytes to broadcast: the job, and the driver's import path, for modules next to a script."""
    return pickle.dumps((import_path(), on_cluster, dumps(Job(runtime, spec))))


def import_path() -> list[str]:
    """The driver's import path, absolute."""
    return [os.path.abspath(entry) for entry in sys.path]


@dataclass(frozen=True, slots=True)
class JobHandle:
    """A handle of a run's job. `token` identifies the run and its failures, `payload` is the Spark broadcast of `pack_job`."""

    token: str
    payload: Any

    def open(self) -> Job:
        """The job in this process; the first call unpickles it."""
        job = _jobs.pop(self.token, None)
        if job is None:
            collecting = gc.isenabled()
            path, on_cluster, pickled = pickle.loads(self.payload.value)
            if not collecting:
                gc.disable()  # PySpark enables the collector after reading a broadcast
            extend_import_path(path)
            job = pickle.loads(pickled)
            if on_cluster:
                local_dir = executors_directory(job.spec.local_dir)
                remove_earlier(local_dir)
                job = job._replace(spec=replace(job.spec, local_dir=local_dir))
            for token, other in list(_jobs.items()):  # the stores of the run's earlier layouts use memory and disk space
                if len(_jobs) >= _MAX_JOBS or other.spec.run_id == job.spec.run_id:
                    drop_worker(_jobs.pop(token).spec.run)
        _jobs[self.token] = job  # last, because it is the most recently used
        return job


def executors_directory(local_dir: str) -> str:
    """This host's directory for local stores: in Spark's directory of the application, which all its executors on the host
    share, and which the cluster manager removes after the application."""
    spark_dirs = os.environ.get("SPARK_LOCAL_DIRS")
    if spark_dirs is None:
        return local_dir
    # Spark gives workers the block manager's own directory, which is removed with the executor.
    return str(Path(spark_dirs.split(",")[0]).parent / "forkpoint-stores" / Path(local_dir).name)


def remove_earlier(local_dir: str) -> None:
    """Remove the local stores of the run's earlier attempts from this host."""
    current = Path(local_dir)
    run, _, attempt = current.name.rpartition("-")
    for other in current.parent.glob(f"{run}-*"):
        if (number := other.name.rpartition("-")[2]).isdigit() and int(number) < int(attempt):
            shutil.rmtree(other, ignore_errors=True)


def prepare_on_host(encoded: bytes) -> bytes:
    """``prepare_store`` in a cluster."""
    preparation = decode_preparation(encoded)
    local = msgspec.structs.replace(preparation, local_dir=executors_directory(preparation.local_dir))
    return prepare_store(msgspec.msgpack.encode(local))


@dataclass(frozen=True, slots=True)
class SourceStage:
    """Stage 0 of native sources, as a function over an RDD partition."""

    handle: JobHandle
    last: bool

    def __call__(self, task: int, plans: Iterator[bytes]) -> Iterator[Any]:
        with task_body(f"stage 0, source task {task}", self.handle.token):
            job = self.handle.open()
            context = _context()
            for plan in plans:
                rows = job.runtime.run_source_task(job.spec, context, task, plan)
                yield from commits_in(rows) if self.last else _sent(rows)


@dataclass(frozen=True, slots=True)
class SubtaskStage:
    """A stage after an exchange, as a function over an RDD partition. Also runs without rows."""

    handle: JobHandle
    stage: int
    last: bool

    def __call__(self, subtask: int, rows: Iterator[ChunkRow]) -> Iterator[Any]:
        with task_body(f"stage {self.stage}, subtask {subtask}", self.handle.token):
            job = self.handle.open()
            _, edge, _, part = next(rows)
            if edge != PART:
                raise RuntimeError(f"subtask {subtask} got a row of edge {edge} before its part of the epoch's context")
            context = decode_part(part).joined(_context(), subtask)
            out = job.runtime.run_subtask(job.spec, context, self.stage, subtask, _received(rows))
            yield from (row[3] for row in commits_in(out)) if self.last else _sent(out)
            rest_worker(job.spec.run)
            for _ in rows:  # a worker with unread input cannot be reused
                pass


@dataclass(frozen=True, slots=True)
class FrameStage:
    """Stage 0 of a DataFrame, for `mapInArrow`; yields batches of pairs, the input of the exchange."""

    handle: JobHandle
    operator: int
    last: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from forkpoint.spark.frames import to_declared  # loads pyspark.sql, which other tasks do not need

        task = TaskContext.get().partitionId()
        with task_body(f"stage 0, partition {task} of operator {self.operator}", self.handle.token):
            job = self.handle.open()
            operator = job.spec.graph.by_id[self.operator]
            columns = batches if operator.output_type is None else to_declared(batches, operator.output_type, operator.uid)
            rows = job.runtime.run_frame_task(job.spec, _context(), self.operator, task, columns)
            yield from map(pair_batch, commits_in(rows) if self.last else _sent(rows))
            for _ in batches:
                pass


@dataclass(frozen=True, slots=True)
class NotifyStage:
    """Notifies one subtask of a complete checkpoint. The subtask's part of the context is the only row."""

    handle: JobHandle

    def __call__(self, subtask: int, parts: Iterator[bytes]) -> Iterator[bytes]:
        with task_body(f"notification of subtask {subtask}", self.handle.token):
            job = self.handle.open()
            for part in parts:
                job.runtime.notify_subtask(job.spec, decode_part(part).joined(_context(), subtask), subtask)
                yield b""


@dataclass(frozen=True, slots=True)
class BackgroundStage:
    """Applies a function to each argument in a partition. Encodes each result with the lines logged during the call;
    ``about``: the fields of these lines."""

    path: Sequence[str]
    pickled: bytes
    token: str
    logging: TaskLogging
    about: Mapping[str, Any]

    def __call__(self, task: int, args: Iterator[bytes]) -> Iterator[bytes]:
        log_lines: list[str] = []
        with task_body(f"background task {task}", self.token, log_lines):
            extend_import_path(self.path)
            fn: Callable[[bytes], bytes] = pickle.loads(self.pickled)
            for arg in args:
                with background_task_log(self.logging, self.about) as log:
                    try:
                        result = fn(arg)
                    finally:
                        log_lines[:] = log.returned()
                yield msgspec.msgpack.encode((result, log_lines))


def extend_import_path(path: Sequence[str]) -> None:
    """Appends the directories and archives that exist on this host and are not on the path yet."""
    known = set(sys.path)
    sys.path.extend(entry for entry in path if entry not in known and os.path.exists(entry))


# Concurrent jobs of one session share its workers; a worker drops the least recently used job.
_MAX_JOBS = 4
_jobs: dict[str, Job] = {}


def _context() -> EpochContext:
    text = TaskContext.get().getLocalProperty(EPOCH_PROPERTY)
    if text is None:
        raise RuntimeError(f"the Spark job has no property {EPOCH_PROPERTY!r}: only run_epoch may use forkpoint's frames")
    return decode_context(text)


def _sent(rows: Iterable[ChunkRow]) -> Iterable[ChunkRow]:
    directory = TaskContext.get().getLocalProperty(EXCHANGE_PROPERTY)
    return left(rows, directory) if directory else rows


def _received(rows: Iterable[ChunkRow]) -> Iterable[ChunkRow]:
    directory = TaskContext.get().getLocalProperty(EXCHANGE_PROPERTY)
    return fetched(rows, directory) if directory else rows


@contextmanager
def task_body(where: str, token: str, log_lines: Sequence[str] = ()) -> Iterator[None]:
    """Run a task without garbage collection, and carry its exception and log lines to the driver."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    except (GeneratorExit, KeyboardInterrupt, TaskFailure):
        raise
    except BaseException as error:
        raise pack_failure(error, where, token, log_lines) from None
    finally:
        _collector.after_task()  # freezes the task's objects before enabling the collector, which would scan them at once
        if collecting:
            gc.enable()


class _Collector:
    """Shortens the full collection that PySpark's daemon runs after every task.

    Freezing excludes all objects from collection, in constant time. They are unfrozen every `EVERY_S` seconds, because a full
    collection takes a tenth of a second, or when the process has grown by `GROWTH` bytes.
    """

    EVERY_S = 60.0
    GROWTH = 256 << 20

    def __init__(self) -> None:
        self._unfrozen_s = time.monotonic()
        self._resident = _resident_bytes()

    def after_task(self) -> None:
        now_s, resident = time.monotonic(), _resident_bytes()
        if now_s >= self._unfrozen_s + self.EVERY_S or resident > self._resident + self.GROWTH:
            self._unfrozen_s, self._resident = now_s, resident
            gc.unfreeze()
        else:
            gc.freeze()


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0  # not Linux: the time alone decides


_collector = _Collector()

"""The code that runs in Spark's Python workers.

The functions that Spark ships with a job are small objects with a handle of the job's broadcast; the job itself is unpickled
once per worker process. An epoch's context is a local property of the Spark job, except for what is about one subtask: that is
the first row of the subtask's partition. So the same functions serve all epochs.
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

from forkpoint.decoding import msgpack_decoder
from forkpoint.logs import TaskLogging
from forkpoint.runtime.exchange.control import EpochContext, JobSpec, decode_context, decode_part
from forkpoint.runtime.exchange.wire import PART, ChunkRow, commits_in
from forkpoint.runtime.tasks.preparing import Preparation, prepare_store
from forkpoint.runtime.tasks.task_log import beside_epochs
from forkpoint.runtime.tasks.worker import drop_worker
from forkpoint.spark.failures import TaskFailure, pack_failure
from forkpoint.spark.rows import pair_batch
from forkpoint.types import dumps

EPOCH_PROPERTY = "forkpoint.epoch"


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
    """The bytes to broadcast: the job, and the driver's import path, for modules beside a script."""
    return pickle.dumps((import_path(), on_cluster, dumps(Job(runtime, spec))))


def import_path() -> list[str]:
    """The driver's import path, absolute."""
    return [os.path.abspath(entry) for entry in sys.path]


@dataclass(frozen=True, slots=True)
class JobHandle:
    """A run's job: `token` identifies the run and its failures, `payload` is the Spark broadcast of `pack_job`."""

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
            for token, other in list(_jobs.items()):  # the stores of the run's earlier layouts take memory and disk space
                if len(_jobs) >= _MAX_JOBS or other.spec.run_id == job.spec.run_id:
                    drop_worker(_jobs.pop(token).spec.run)
        _jobs[self.token] = job  # at the end, as the most recently used
        return job


def executors_directory(local_dir: str) -> str:
    """Where this host keeps the local stores: in Spark's directory of the application, which all its executors on the host
    share, and which the cluster manager removes after the application."""
    spark_dirs = os.environ.get("SPARK_LOCAL_DIRS")
    if spark_dirs is None:
        return local_dir
    # Spark gives workers the block manager's own directory, which goes with the executor.
    return str(Path(spark_dirs.split(",")[0]).parent / "forkpoint-stores" / Path(local_dir).name)


def remove_earlier(local_dir: str) -> None:
    """Remove the local stores of the run's earlier attempts from this host."""
    here = Path(local_dir)
    run, _, attempt = here.name.rpartition("-")
    for other in here.parent.glob(f"{run}-*"):
        if (number := other.name.rpartition("-")[2]).isdigit() and int(number) < int(attempt):
            shutil.rmtree(other, ignore_errors=True)


def prepare_on_host(encoded: bytes) -> bytes:
    """``prepare_store`` in a cluster."""
    work = msgpack_decoder(Preparation)(encoded)
    here = msgspec.structs.replace(work, local_dir=executors_directory(work.local_dir))
    return prepare_store(msgspec.msgpack.encode(here))


@dataclass(frozen=True, slots=True)
class SourceStage:
    """Stage 0 of native sources, as a function over an RDD partition."""

    handle: JobHandle
    last: bool

    def __call__(self, task: int, plans: Iterator[bytes]) -> Iterator[Any]:
        with _task(f"stage 0, source task {task}", self.handle.token):
            job = self.handle.open()
            context = _context()
            for plan in plans:
                rows = job.runtime.run_source_task(job.spec, context, task, plan)
                yield from commits_in(rows) if self.last else rows


@dataclass(frozen=True, slots=True)
class SubtaskStage:
    """A stage after an exchange, as a function over an RDD partition. Also runs without rows."""

    handle: JobHandle
    stage: int
    last: bool

    def __call__(self, subtask: int, rows: Iterator[ChunkRow]) -> Iterator[Any]:
        with _task(f"stage {self.stage}, subtask {subtask}", self.handle.token):
            job = self.handle.open()
            _, edge, _, part = next(rows)
            if edge != PART:
                raise RuntimeError(f"subtask {subtask} got a row of edge {edge} before its part of the epoch's context")
            context = decode_part(part).joined(_context(), subtask)
            out = job.runtime.run_subtask(job.spec, context, self.stage, subtask, rows)
            yield from (row[3] for row in commits_in(out)) if self.last else out
            for _ in rows:  # a worker that leaves input unread cannot be reused
                pass


@dataclass(frozen=True, slots=True)
class FrameStage:
    """Stage 0 of a DataFrame, for `mapInArrow`; yields batches of the pairs that the exchange takes."""

    handle: JobHandle
    operator: int
    last: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from forkpoint.spark.frames import to_declared  # loads pyspark.sql, which other tasks do not need

        task = TaskContext.get().partitionId()
        with _task(f"stage 0, partition {task} of operator {self.operator}", self.handle.token):
            job = self.handle.open()
            operator = job.spec.graph.by_id[self.operator]
            columns = batches if operator.output_type is None else to_declared(batches, operator.output_type, operator.uid)
            rows = job.runtime.run_frame_task(job.spec, _context(), self.operator, task, columns)
            yield from map(pair_batch, commits_in(rows) if self.last else rows)
            for _ in batches:
                pass


@dataclass(frozen=True, slots=True)
class NotifyStage:
    """The word of a complete checkpoint to one subtask, whose part of the context is the only row."""

    handle: JobHandle

    def __call__(self, subtask: int, parts: Iterator[bytes]) -> Iterator[bytes]:
        with _task(f"notification of subtask {subtask}", self.handle.token):
            job = self.handle.open()
            for part in parts:
                job.runtime.notify_subtask(job.spec, decode_part(part).joined(_context(), subtask), subtask)
                yield b""


@dataclass(frozen=True, slots=True)
class BackgroundStage:
    """Applies a function to each argument in a partition. The results are encoded, each with what was said meanwhile;
    ``about``: what that is about."""

    path: Sequence[str]
    pickled: bytes
    token: str
    logging: TaskLogging
    about: Mapping[str, Any]

    def __call__(self, task: int, args: Iterator[bytes]) -> Iterator[bytes]:
        said: list[str] = []
        with _task(f"background task {task}", self.token, said):
            extend_import_path(self.path)
            fn: Callable[[bytes], bytes] = pickle.loads(self.pickled)
            for arg in args:
                with beside_epochs(self.logging, self.about) as log:
                    try:
                        result = fn(arg)
                    finally:
                        said[:] = log.returned()
                yield msgspec.msgpack.encode((result, said))


def extend_import_path(path: Sequence[str]) -> None:
    """Appends the directories and archives that exist here and are not on the path yet."""
    known = set(sys.path)
    sys.path.extend(entry for entry in path if entry not in known and os.path.exists(entry))


# Concurrent jobs of one session share its workers; the least recently used one is dropped.
_MAX_JOBS = 4
_jobs: dict[str, Job] = {}


def _context() -> EpochContext:
    text = TaskContext.get().getLocalProperty(EPOCH_PROPERTY)
    if text is None:
        raise RuntimeError(f"the Spark job has no property {EPOCH_PROPERTY!r}: only run_epoch may use forkpoint's frames")
    return decode_context(text)


@contextmanager
def _task(where: str, token: str, said: Sequence[str] = ()) -> Iterator[None]:
    """Around a task: no garbage collection within it, and its exception reaches the driver unchanged, with what was said."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    except (GeneratorExit, KeyboardInterrupt, TaskFailure):
        raise
    except BaseException as error:
        raise pack_failure(error, where, token, said) from None
    finally:
        _collector.after_task()  # freezes what the task has made, which would be collected as soon as that is enabled
        if collecting:
            gc.enable()


class _Collector:
    """Keeps the full collection that PySpark's daemon does after every task short.

    Freezing excludes all objects from collection, in constant time; they are unfrozen every `EVERY_S` seconds, as a collection
    of all takes a tenth of one, or when the process has grown by `GROWTH` bytes.
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

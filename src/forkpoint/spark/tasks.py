"""What runs inside Spark's Python workers.

The functions that Spark ships with a job are small objects holding a handle on the job's broadcast; the job itself is
unpickled once a worker process and kept. An epoch's context comes as a local property of the Spark job, so the same
function serves every epoch.
"""

from __future__ import annotations

import gc
import os
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark import TaskContext

from forkpoint.runtime.exchange.commit_rows import commits_in
from forkpoint.runtime.exchange.control import EpochContext, JobSpec
from forkpoint.runtime.exchange.wire import ChunkRow
from forkpoint.runtime.tasks.worker import drop_worker
from forkpoint.spark.failures import TaskFailure, pack_failure
from forkpoint.spark.rows import pair_batch
from forkpoint.types import dumps

EPOCH_PROPERTY = "forkpoint.epoch"


class Runtime(NamedTuple):
    """The functions of `forkpoint.runtime.tasks.entry_points`, as the engine calls them."""

    run_source_task: Callable[[JobSpec, EpochContext, int, bytes], Iterator[ChunkRow]]
    run_frame_task: Callable[[JobSpec, EpochContext, int, int, Iterator[pa.RecordBatch]], Iterator[ChunkRow]]
    run_subtask: Callable[[JobSpec, EpochContext, int, int, Iterable[ChunkRow]], Iterator[ChunkRow]]


class Job(NamedTuple):
    """A job as a worker holds it."""

    runtime: Runtime
    spec: JobSpec


def pack_job(runtime: Runtime, spec: JobSpec) -> bytes:
    """The job as the bytes that are broadcast; workers also get the driver's import path, which modules beside a
    script need.
    """
    return pickle.dumps((import_path(), dumps(Job(runtime, spec))))


def import_path() -> list[str]:
    """The driver's import path, absolute."""
    return [os.path.abspath(entry) for entry in sys.path]


@dataclass(frozen=True, slots=True)
class JobHandle:
    """A run's job: `token` tells runs apart and marks their failures, `payload` is the Spark broadcast of `pack_job`."""

    token: str
    payload: Any

    def open(self) -> Job:
        """The job in this process, unpickled at the first call."""
        job = _jobs.pop(self.token, None)
        if job is None:
            collecting = gc.isenabled()
            path, pickled = pickle.loads(self.payload.value)
            if not collecting:
                gc.disable()  # PySpark turns the collector on whenever it has read a broadcast
            extend_import_path(path)
            job = pickle.loads(pickled)
            while len(_jobs) >= _MAX_JOBS:
                drop_worker(_jobs.pop(next(iter(_jobs))).spec.run)
        _jobs[self.token] = job  # behind those that were used before it
        return job


@dataclass(frozen=True, slots=True)
class SourceStage:
    """Stage 0 of native sources, as a function of an RDD partition."""

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
    """A stage behind an exchange, as a function of an RDD partition. Runs also where no row arrives."""

    handle: JobHandle
    stage: int
    last: bool

    def __call__(self, subtask: int, rows: Iterator[ChunkRow]) -> Iterator[Any]:
        with _task(f"stage {self.stage}, subtask {subtask}", self.handle.token):
            job = self.handle.open()
            out = job.runtime.run_subtask(job.spec, _context(), self.stage, subtask, rows)
            yield from (row[3] for row in commits_in(out)) if self.last else out
            for _ in rows:  # a worker that leaves input unread cannot be reused
                pass


@dataclass(frozen=True, slots=True)
class FrameStage:
    """Stage 0 of a Spark DataFrame, for `mapInArrow`; yields batches of the pairs that the exchange takes."""

    handle: JobHandle
    operator: int
    last: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from forkpoint.spark.frames import to_declared  # pyspark.sql, which other tasks need not load

        task = TaskContext.get().partitionId()
        with _task(f"stage 0, partition {task} of operator {self.operator}", self.handle.token):
            job = self.handle.open()
            operator = job.spec.graph.by_id[self.operator]
            columns = (
                batches if operator.output_type is None else to_declared(batches, operator.output_type, operator.uid)
            )
            rows = job.runtime.run_frame_task(job.spec, _context(), self.operator, task, columns)
            yield from map(pair_batch, commits_in(rows) if self.last else rows)
            for _ in batches:
                pass


@dataclass(frozen=True, slots=True)
class BackgroundStage:
    """A function of bytes, applied to each argument in a partition."""

    path: Sequence[str]
    pickled: bytes
    token: str

    def __call__(self, task: int, args: Iterator[bytes]) -> Iterator[bytes]:
        with _task(f"background task {task}", self.token):
            extend_import_path(self.path)
            fn: Callable[[bytes], bytes] = pickle.loads(self.pickled)
            yield from map(fn, args)


def extend_import_path(path: Sequence[str]) -> None:
    """Appends the directories and archives that exist here and are not importable from yet."""
    known = set(sys.path)
    sys.path.extend(entry for entry in path if entry not in known and os.path.exists(entry))


# Jobs of one session that run side by side share its workers; ended runs fall out at the front.
_MAX_JOBS = 4
_jobs: dict[str, Job] = {}
_decode_context = msgspec.json.Decoder(EpochContext).decode


def _context() -> EpochContext:
    text = TaskContext.get().getLocalProperty(EPOCH_PROPERTY)
    if text is None:
        raise RuntimeError(
            f"the Spark job has no property {EPOCH_PROPERTY!r}: only run_epoch may use forkpoint's frames"
        )
    return _decode_context(text)


@contextmanager
def _task(where: str, token: str) -> Iterator[None]:
    """Around the whole of a task: no cyclic collection within, and an exception that reaches the driver whole."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    except (GeneratorExit, KeyboardInterrupt, TaskFailure):
        raise
    except BaseException as error:
        raise pack_failure(error, where, token) from None
    finally:
        if collecting:
            gc.enable()
        _collector.after_task()


class _Collector:
    """Keeps PySpark's full collection after every task (its daemon's) short.

    Freezing takes all objects out of the collector's sight, in constant time; they are shown to it again every
    `EVERY` tasks, or when the process has grown by `GROWTH` bytes since.
    """

    EVERY = 64
    GROWTH = 256 << 20

    def __init__(self) -> None:
        self._tasks = 0
        self._resident = 0

    def after_task(self) -> None:
        self._tasks += 1
        resident = _resident_bytes()
        if self._tasks >= self.EVERY or resident > self._resident + self.GROWTH:
            self._tasks, self._resident = 0, resident
            gc.unfreeze()
        else:
            gc.freeze()


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0  # not Linux: the number of tasks alone decides


_collector = _Collector()

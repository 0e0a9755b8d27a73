"""The entry points for engines: a source task, a task over a DataFrame's partition, a subtask of a later stage, and the
notification of a complete checkpoint.

The first three return rows. A ForkpointError becomes a commit row with a failure, so that it reaches the driver intact; the
engine handles any other exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from forkpoint.errors import ForkpointError
from forkpoint.runtime.exchange.control import EpochContext, Failure, JobSpec
from forkpoint.runtime.exchange.wire import ChunkRow
from forkpoint.runtime.operators.emission import ChangingOutput
from forkpoint.runtime.tasks.gc_pause import collector_paused
from forkpoint.runtime.tasks.memory import watched
from forkpoint.runtime.tasks.source_task import SourceTask, read_frame, read_ranges
from forkpoint.runtime.tasks.stage_task import StageTask
from forkpoint.runtime.tasks.task import Task
from forkpoint.runtime.tasks.task_log import background_task_log
from forkpoint.runtime.tasks.worker import worker_for
from forkpoint.types.lookup import values_of


def run_source_task(spec: JobSpec, ctx: EpochContext, task: int, plan: bytes) -> Iterator[ChunkRow]:
    """Stage 0 of native sources: ``plan`` is the pickled list of (operator id, SplitRange) for this task."""
    work = SourceTask(spec, ctx, 0, task)
    return _guarded(work, lambda: read_ranges(work, plan))


def run_frame_task(
    spec: JobSpec, ctx: EpochContext, operator: int, task: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[ChunkRow]:
    """Stage 0 of a DataFrame source: one partition's rows as columns of the source's type."""
    work = SourceTask(spec, ctx, 0, task)
    return _guarded(work, lambda: read_frame(work, spec.graph.by_id[operator], batches))


def run_subtask(spec: JobSpec, ctx: EpochContext, stage: int, subtask: int, rows: Iterable[ChunkRow]) -> Iterator[ChunkRow]:
    """One subtask of stage 1 or later, with all rows sent to it, in any order."""
    work = StageTask(spec, ctx, stage, subtask)
    return _guarded(work, lambda: work.run(rows))


def notify_subtask(spec: JobSpec, ctx: EpochContext, subtask: int) -> None:
    """Notify the functions on one subtask, between epochs, that ``ctx.committed`` is complete."""
    with background_task_log(spec.logging, {"job": spec.job, "epoch": ctx.committed}), values_of(spec.program):
        worker_for(spec).notify(subtask, ctx)


def _guarded(work: Task, do: Callable[[], None]) -> Iterator[ChunkRow]:
    with (
        collector_paused(),
        work.log.within(),
        values_of(work.spec.program),
        watched(work.spec.process_bytes) as work.memory,
    ):
        try:
            do()
            rows = work.finish()
        except ForkpointError as error:
            work.abort()
            if isinstance(error, ChangingOutput):
                report = work.failed(one_by_one=[error.uid])
            else:
                report = work.failed(failure=Failure(type(error).__name__, str(error)))
            rows = [report, *work.forwarded]
        except BaseException:
            work.abort()
            raise
    yield from rows

"""A stand-in for `forkpoint.runtime.tasks.entry_points` that only moves rows: what arrives where shows in the commit blobs.

Lies beside the tests on purpose: workers can only import it because the driver's import path travels with the job.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Iterable, Iterator

import pyarrow as pa

from forkpoint.errors import RestoreRefused
from forkpoint.runtime.exchange.control import EpochContext, JobSpec
from forkpoint.runtime.exchange.wire import COMMIT, ChunkRow


class LostException(Exception):
    """Pickles, but cannot be built again from its arguments."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


def run_source_task(spec: JobSpec, ctx: EpochContext, task: int, plan: bytes) -> Iterator[ChunkRow]:
    """The plan is JSON: numbers to send (n goes to subtask n % parallelism), or a failure to raise."""
    order = json.loads(plan)
    fail(order.get("raise"))
    for i, number in enumerate(order.get("numbers", ())):
        yield number % spec.parallelism, 7, (task << 32) + i, str(number).encode()
    if "blob_bytes" in order:
        yield 0, 7, task << 32, bytes(order["blob_bytes"])
    yield task % spec.parallelism, COMMIT, 0, _commit(ctx, 0, task, [])


def run_frame_task(
    spec: JobSpec, ctx: EpochContext, operator: int, task: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[ChunkRow]:
    sent = 0
    for batch in batches:
        for row in batch.to_pylist():
            value = json.dumps([operator, row], default=str).encode()
            yield sent % spec.parallelism, 7, (task << 32) + sent, value
            sent += 1
    yield task % spec.parallelism, COMMIT, 0, _commit(ctx, 0, task, [])


def run_subtask(spec: JobSpec, ctx: EpochContext, stage: int, subtask: int, rows: Iterable[ChunkRow]) -> Iterator[ChunkRow]:
    """Passes everything on to the next subtask; the last stage reports what it got, in order of origin."""
    got = []
    for target, edge, origin, blob in rows:
        if edge == COMMIT:
            yield subtask, COMMIT, origin, blob
            continue
        assert target == subtask, f"a row for {target} came to {subtask}"
        if blob == b"13":
            fail("value")
        if stage == spec.graph.stages:
            got.append((origin, len(blob) if len(blob) > 1000 else blob.decode()))
        else:
            yield (target + 1) % spec.parallelism, edge, origin, blob
    yield subtask, COMMIT, 0, _commit(ctx, stage, subtask, [value for _, value in sorted(got)])


def fail(kind: str | None) -> None:
    match kind:
        case "value":
            raise ValueError("thirteen")
        case "refused":
            raise RestoreRefused("uid 'x' and the state do not fit")
        case "lost":
            raise LostException("one", "two")


def _commit(ctx: EpochContext, stage: int, subtask: int, got: list[object]) -> bytes:
    return json.dumps(
        {
            "epoch": ctx.epoch,
            "stage": stage,
            "subtask": subtask,
            "got": got,
            "pid": os.getpid(),
            "gc": gc.isenabled(),
            "previous": ctx.previous,
            "snapshot_subtasks": ctx.snapshot_subtasks,
        }
    ).encode()


def notify_subtask(spec: JobSpec, ctx: EpochContext, subtask: int) -> None:
    raise AssertionError("no function listens")

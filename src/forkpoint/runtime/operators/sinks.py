"""Sinks inside a stage: a writer for each epoch, whose committables go to the driver with the commit row."""

from __future__ import annotations

import logging
from typing import Any

from forkpoint.connectors import Sink, SinkContext, SinkWriter
from forkpoint.errors import ForkpointError
from forkpoint.runtime.exchange.batch import Batch
from forkpoint.runtime.exchange.control import EpochContext
from forkpoint.runtime.operators.base import USER_ERRORS, TaskInfo, user_error

BLOCK_ROWS = 65_536

log = logging.getLogger("forkpoint")


class SinkInstance:
    """Writes one subtask's elements of an epoch; at stage 0 in as many batches as the task reads."""

    def __init__(self, info: TaskInfo, sink: Sink, job: str, context: EpochContext, attempt: str) -> None:
        self._uid = info.operator.uid
        self._context = SinkContext(
            info.operator.uid, job, context.epoch, info.subtask, attempt, context.generation
        )  # fmt: skip
        self._sink = sink
        self._writer: SinkWriter | None = None

    def write(self, batch: Batch) -> None:
        if not batch.size:
            return
        try:
            if self._writer is None:
                self._writer = self._sink.create_writer(self._context)
            if not self._sink.ordered:
                self._writer.write(batch)
                return
            for block in batch.in_order().blocks(BLOCK_ROWS):
                self._writer.write(block)
        except ForkpointError:
            raise
        except USER_ERRORS as error:
            raise user_error(self._uid, error, f"a batch of {batch.size} elements") from error

    def prepare_commit(self) -> list[Any]:
        if self._writer is None:
            return []
        try:
            return self._writer.prepare_commit()
        except ForkpointError:
            raise
        except USER_ERRORS as error:
            raise user_error(self._uid, error, "none: prepare_commit()") from error

    def abort(self) -> None:
        """Discard what was staged, if possible: what stays behind is removed at the next start."""
        try:
            if self._writer is not None:
                self._writer.abort()
        except Exception:  # the failure that it is aborted for must not get lost over it
            log.warning("sink %r: discarding what it staged failed", self._uid, exc_info=True)

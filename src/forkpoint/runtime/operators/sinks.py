"""Runs sinks: a writer for each epoch, whose committables go to the driver with the commit row."""

from __future__ import annotations

import logging
from typing import Any

from forkpoint.connectors import SinkContext, SinkWriter
from forkpoint.errors import ForkpointError
from forkpoint.graph.job import Operator
from forkpoint.graph.specs import SinkSpec
from forkpoint.runtime.exchange.batch import Batch
from forkpoint.runtime.exchange.control import EpochContext
from forkpoint.runtime.operators.base import USER_ERRORS, user_error

log = logging.getLogger("forkpoint")


class SinkInstance:
    """Writes one subtask's elements of an epoch; in stage 0, in as many batches as the task reads."""

    def __init__(self, operator: Operator, subtask: int, job: str, context: EpochContext, attempt: str) -> None:
        assert isinstance(operator.spec, SinkSpec)
        self._uid = operator.uid
        self._context = SinkContext(operator.uid, job, context.epoch, subtask, attempt, context.generation)
        self._sink = operator.spec.sink
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
            for block in batch.in_order().blocks():
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
        """Discard staged output, if possible: what is left is removed at the next start."""
        try:
            if self._writer is not None:
                self._writer.abort()
        except Exception:  # must not hide the failure that caused the abort
            log.warning("sink %r: could not discard its staged output", self._uid, exc_info=True)

"""Runs sinks: a writer for each epoch, whose committables go to the driver with the commit row."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from forkpoint.connectors import SinkContext, SinkWriter
from forkpoint.errors import ForkpointError, of_sink
from forkpoint.graph.job import Operator
from forkpoint.graph.specs import SinkSpec
from forkpoint.runtime.exchange.batch import Batch
from forkpoint.runtime.exchange.control import EpochContext, JobSpec
from forkpoint.runtime.operators.base import user_code

log = logging.getLogger("forkpoint")


class SinkInstance:
    """Writes one subtask's elements of an epoch; in stage 0, in as many batches as the task reads."""

    def __init__(self, operator: Operator, subtask: int, job: JobSpec, context: EpochContext, attempt: str) -> None:
        assert isinstance(operator.spec, SinkSpec)
        self._uid = operator.uid
        self._context = SinkContext(
            operator.uid, job.job, context.epoch, subtask, attempt, context.generation, job.storage_url,
            job.inline_bytes,
        )  # fmt: skip
        self._sink = operator.spec.sink
        self._writer: SinkWriter | None = None

    def write(self, batch: Batch) -> None:
        if not batch.size:
            return
        with self._errors(f"a batch of {batch.size} elements"):
            if self._writer is None:
                self._writer = self._sink.create_writer(self._context)
            for block in batch.in_order().blocks() if self._sink.ordered else [batch]:
                self._writer.write(block)

    def prepare_commit(self) -> list[Any]:
        if self._writer is None:
            return []
        with self._errors("none: prepare_commit()"):
            return self._writer.prepare_commit()

    @contextmanager
    def _errors(self, element: str) -> Iterator[None]:
        try:
            with user_code(self._uid, lambda: element):
                yield
        except ForkpointError as error:
            raise of_sink(self._uid, error) from error

    def abort(self) -> None:
        """Discard staged output, if possible: what is left is removed at the next start."""
        try:
            if self._writer is not None:
                self._writer.abort()
        except Exception:  # must not hide the failure that caused the abort
            log.warning("sink %r: could not discard its staged output", self._uid, exc_info=True)

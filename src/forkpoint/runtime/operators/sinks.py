"""Runs sinks: one writer per epoch, whose committables go to the driver in the commit row."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from forkpoint.checkpoint.paths import JobPaths
from forkpoint.contract.sink import Sink, SinkBatch, SinkContext, SinkWriter
from forkpoint.contract.source import JSON
from forkpoint.errors import ForkpointError, of_sink
from forkpoint.graph.job import Operator
from forkpoint.graph.specs import SinkSpec
from forkpoint.runtime.exchange.batch import Batch
from forkpoint.runtime.exchange.control import EpochContext, JobSpec
from forkpoint.runtime.operators.base import user_code
from forkpoint.storage.base import open_storage
from forkpoint.types import TypeInformation

log = logging.getLogger("forkpoint")


class SinkInstance:
    """Writes one subtask's elements of an epoch; in stage 0, one batch for each batch that the task reads."""

    def __init__(self, operator: Operator, subtask: int, job: JobSpec, context: EpochContext, attempt: str) -> None:
        assert isinstance(operator.spec, SinkSpec)
        self._uid = operator.uid
        self._context = SinkContext(
            operator.uid, job.job, context.epoch, subtask, attempt, context.generation, job.storage_url, job.inline_output_bytes
        )
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
        """Discard staged output, if possible; the next start removes the rest."""
        try:
            if self._writer is not None:
                self._writer.abort()
        except Exception:  # must not hide the failure that caused the abort
            log.warning("sink %r: could not discard its staged output", self._uid, exc_info=True)


@dataclass(frozen=True, eq=False)
class StagingSink(Sink):
    """Stages Parquet files below the job's staging directory, where garbage collection finds them."""

    url: str
    job: str
    type: TypeInformation

    def create_writer(self, context: SinkContext) -> SinkWriter:
        name = f"{context.subtask}-{context.attempt}.parquet"
        return _StagingWriter(self.url, JobPaths(self.job).staging(context.epoch, context.uid, name), self.type)


class _StagingWriter(SinkWriter):
    def __init__(self, url: str, path: str, type: TypeInformation) -> None:
        self._url = url
        self._path = path
        self._type = type
        self._batches: list[pa.RecordBatch] = []

    def write(self, batch: SinkBatch) -> None:
        table = batch.table
        if table is None or table.schema != self._type.arrow_schema:
            table = pa.RecordBatch.from_arrays(self._type.to_columns(batch.values), schema=self._type.arrow_schema)
        self._batches.append(table)

    def prepare_commit(self) -> list[JSON]:
        buffer = io.BytesIO()
        pq.write_table(pa.Table.from_batches(self._batches), buffer)
        open_storage(self._url).put(self._path, buffer.getvalue())
        return [{"path": f"{self._url.rstrip('/')}/{self._path}"}]

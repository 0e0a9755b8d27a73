"""Stages elements as Parquet files, from which ``for_each_epoch`` and ``DataFrameSink`` read."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq

from forkpoint.checkpoint.paths import JobPaths
from forkpoint.connectors.base import JSON, Sink, SinkBatch, SinkContext, SinkWriter
from forkpoint.storage.base import open_storage
from forkpoint.types import TypeInformation


class StagingWriter(SinkWriter):
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
        storage = open_storage(self._url)
        storage.put(self._path, buffer.getvalue())
        return [{"path": f"{self._url.rstrip('/')}/{self._path}"}]


class StagingSink(Sink):
    """Stages below the job's staging directory, where garbage collection finds the files."""

    def __init__(self, url: str, job: str, type: TypeInformation) -> None:
        self._url = url
        self._job = job
        self._type = type

    def create_writer(self, context: SinkContext) -> SinkWriter:
        name = f"{context.subtask}-{context.attempt}.parquet"
        path = JobPaths(self._job).staging(context.epoch, context.uid, name)
        return StagingWriter(self._url, path, self._type)

    def __repr__(self) -> str:
        return f"StagingSink({self._job!r})"

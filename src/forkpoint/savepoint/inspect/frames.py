"""Reads and writes Spark DataFrames; loads Spark only on use."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import EditRefused
from forkpoint.savepoint.edit.data import Fitter, tables_of
from forkpoint.savepoint.edit.tasks import RunWriter
from forkpoint.savepoint.format.layers import SavedFile
from forkpoint.savepoint.format.layout import layout_of
from forkpoint.savepoint.format.sorting import Run
from forkpoint.savepoint.format.tasks import decoder_of, encode
from forkpoint.storage.base import open_storage


@dataclass(frozen=True)
class _File:
    storage_url: str
    info: StateInfo
    file: SavedFile


_decode_file = decoder_of(_File)


def read_file(argument: bytes) -> Iterator[pa.RecordBatch]:
    """The verified rows of a file."""
    wanted = _decode_file(argument)
    for table in wanted.file.tables(open_storage(wanted.storage_url), layout_of(wanted.info)):
        yield from table.replace_schema_metadata().to_batches()


def frame_of(spark: Any, state: Any) -> Any:
    """See ``StateReader.to_spark``."""
    from forkpoint.spark.background_tasks import read_frame

    url = state.opened.storage.url
    files = [_File(url, info, file) for info, file in state.parts()]
    return read_frame(spark, read_file, list(map(encode, files)), state.schema)


def _write_partition(
    fitter: Fitter, runs: RunWriter, partition_rows: int, number: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[bytes]:
    """Writes a partition of a DataFrame as runs, on an executor."""
    fitter = replace(fitter, first=number * partition_rows)
    directory, _, file = runs.prefix.rpartition("/")
    try:
        for piece, table in enumerate(tables_of(batches)):
            prefix = f"{directory}-{uuid.uuid4().hex[:12]}-{piece}/{file}"  # a retried task must not reuse files
            yield encode(_Piece(replace(runs, prefix=prefix).write(fitter.layout, fitter(table))))
    except EditRefused as error:  # a result reaches the driver unchanged
        yield encode(_Piece(refused=str(error)))


@dataclass(frozen=True)
class _Piece:
    runs: list[Run] = field(default_factory=list)
    refused: str | None = None


_decode_piece = decoder_of(_Piece)


def runs_of(frame: Any, fitter: Fitter, runs: RunWriter, partition_rows: int) -> list[Run]:
    """Writes the rows of a Spark DataFrame as runs, in Spark's tasks. Checks the columns before it starts them."""
    from forkpoint.spark.background_tasks import columns_of, write_frame

    fitter(columns_of(frame))
    write = partial(_write_partition, fitter, runs, partition_rows)
    pieces = list(map(_decode_piece, write_frame(frame, write)))
    for piece in pieces:
        if piece.refused is not None:
            raise EditRefused(piece.refused)
    return [run for piece in pieces for run in piece.runs]

"""Columns as bytes: what sinks stage and sources store, in Arrow's format of streams."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

import pyarrow as pa


def pack_columns(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> bytes:
    """Batches of one schema."""
    buffer = io.BytesIO()
    with pa.ipc.new_stream(buffer, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return buffer.getvalue()


def unpack_columns(data: bytes) -> Iterator[pa.RecordBatch]:
    """What ``pack_columns`` made."""
    with pa.ipc.open_stream(data) as reader:
        yield from reader

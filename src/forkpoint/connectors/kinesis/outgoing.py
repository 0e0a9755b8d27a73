"""Records to be put, as columns: what a sink stages, and puts after the commit."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

import pyarrow as pa

SCHEMA = pa.schema([pa.field("key", pa.string()), pa.field("data", pa.binary(), False)])
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


def pack(batches: Sequence[pa.RecordBatch]) -> bytes:
    buffer = io.BytesIO()
    with pa.ipc.new_stream(buffer, SCHEMA, options=_OPTIONS) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return buffer.getvalue()


def unpack(data: bytes) -> Iterator[tuple[str | None, bytes]]:
    """Keys and data."""
    with pa.ipc.open_stream(data) as reader:
        for batch in reader:
            yield from zip(batch.column("key").to_pylist(), batch.column("data").to_pylist(), strict=True)

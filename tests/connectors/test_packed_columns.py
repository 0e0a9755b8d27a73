"""What sinks stage, as bytes."""

import pyarrow as pa
import pytest

from forkpoint.connectors.rows import pack_columns, unpack_columns

SCHEMA = pa.schema([pa.field("n", pa.int64()), pa.field("text", pa.string())])
BATCHES = [pa.RecordBatch.from_pydict({"n": [n, None], "text": ["a" * 500, None]}, schema=SCHEMA) for n in range(3)]
LARGE = [pa.RecordBatch.from_pydict({"n": [n, None], "text": ["a" * 50_000, None]}, schema=SCHEMA) for n in range(3)]


def test_batches_come_back() -> None:
    assert list(unpack_columns(pack_columns(BATCHES, SCHEMA))) == BATCHES
    packed = pack_columns(LARGE, SCHEMA)
    assert list(unpack_columns(packed)) == LARGE
    assert len(packed) < pa.Table.from_batches(LARGE).nbytes
    assert list(unpack_columns(pack_columns([], SCHEMA))) == []


@pytest.mark.parametrize("compression", ["zstd", "lz4", None])
def test_what_other_releases_have_packed_is_read(compression: str | None) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        for batch in BATCHES:
            writer.write_batch(batch)
    assert list(unpack_columns(sink.getvalue().to_pybytes())) == BATCHES

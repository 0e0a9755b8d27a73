"""Encodes the output that sinks stage: rows of bytes for an external system's client, and columns in Arrow's stream format."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeAlias

import msgspec
import pyarrow as pa

from forkpoint.contract.sink import CommitterContext, SinkBatch, SinkContext, SinkWriter
from forkpoint.contract.source import JSON
from forkpoint.decoders import msgpack_decoder
from forkpoint.types.variables import T_contra

StagedRow: TypeAlias = Sequence[bytes | None]

_CODEC = "lz4"
_SIZE_BYTES = 8
_packer = msgspec.msgpack.Encoder()
_unpack = msgpack_decoder(list[list[bytes | None]])


def pack(rows: Sequence[StagedRow]) -> bytes:
    data = _packer.encode(rows)
    compressed: bytes = pa.compress(data, codec=_CODEC, asbytes=True)
    return len(data).to_bytes(_SIZE_BYTES, "little") + compressed


def unpack(packed: bytes) -> list[list[bytes | None]]:
    size = int.from_bytes(packed[:_SIZE_BYTES], "little")
    return _unpack(pa.decompress(packed[_SIZE_BYTES:], size, codec=_CODEC, asbytes=True))


class RowsWriter(SinkWriter[T_contra], Generic[T_contra]):
    """Stages one subtask's rows of an epoch. ``encode`` makes rows of elements. ``describe`` returns more fields of the
    committable, about all rows."""

    def __init__(
        self,
        context: SinkContext,
        encode: Callable[[SinkBatch[T_contra]], Iterable[StagedRow]],
        describe: Callable[[Sequence[StagedRow]], dict[str, JSON]] = lambda rows: {},
    ) -> None:
        self._context = context
        self._encode = encode
        self._describe = describe
        self._rows: list[StagedRow] = []

    def write(self, batch: SinkBatch[T_contra]) -> None:
        self._rows.extend(self._encode(batch))

    def prepare_commit(self) -> list[JSON]:
        if not self._rows:
            return []
        stored = self._context.stage(pack(self._rows))
        return [{**self._describe(self._rows), "group": str(self._context.subtask), "rows": stored}]


def staged_rows(context: CommitterContext, committables: Iterable[JSON]) -> list[list[bytes | None]]:
    """All rows that `RowsWriter` staged for these committables, in their order."""
    return [row for committable in committables for row in unpack(context.staged(committable["rows"]))]


# Written and read once, mostly within a second: lz4 takes at most two thirds of the time of zstd, for twice the bytes. For few
# rows, Arrow's threads that compress and decompress them take longer than all else.
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")
_PLAIN = pa.ipc.IpcWriteOptions()
_PLAIN_BYTES = 1 << 16


def pack_columns(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> bytes:
    """Batches of one schema."""
    buffer, options = io.BytesIO(), _PLAIN if sum(batch.nbytes for batch in batches) <= _PLAIN_BYTES else _COMPRESSED
    with pa.ipc.new_stream(buffer, schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return buffer.getvalue()


def unpack_columns(data: bytes) -> Iterator[pa.RecordBatch]:
    with pa.ipc.open_stream(data) as reader:
        yield from reader

"""The encoding of chunk rows between the JVM and its Python workers: framed bytes, never pickled.

A chunk row (target, edge, origin, blob) leaves a worker as a pair of frames: the target as an 8-byte key, and the payload
`target i32 | edge i32 | origin i64 | blob`, all big-endian. Spark shuffles the pairs by key without reading the payload;
the next worker receives only payloads.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import IO

import pyarrow as pa
from pyspark.serializers import Serializer, SpecialLengths

from forkpoint.runtime.exchange.wire import ChunkRow

MAX_BLOB_BYTES = 2**31 - 64

_FRAME = struct.Struct("!i")
_KEY = struct.Struct("!q")
_HEADER = struct.Struct("!iiq")
_PAIR = struct.Struct("!iqiiiq")  # key frame and the payload frame's length and header, in one write

PAIR_SCHEMA = pa.schema([pa.field("pair", pa.binary(), nullable=False)])


class PairWriter(Serializer):  # type: ignore[misc]
    """Writes chunk rows as pairs of frames, the input of an exchange."""

    def dump_stream(self, iterator: Iterable[ChunkRow], stream: IO[bytes]) -> None:
        write, pack, header = stream.write, _PAIR.pack, _HEADER.size
        for target, edge, origin, blob in iterator:
            size = len(blob)
            if size > MAX_BLOB_BYTES:
                raise ValueError(f"a chunk of edge {edge} has {size} bytes; Spark can move {MAX_BLOB_BYTES} at once")
            write(pack(8, target, header + size, target, edge, origin))
            write(blob)


class RowReader(Serializer):  # type: ignore[misc]
    """Reads payloads, the output of an exchange, as chunk rows."""

    def load_stream(self, stream: IO[bytes]) -> Iterator[ChunkRow]:
        read, header, unpack = stream.read, _HEADER.size, _HEADER.unpack
        for size in _frame_sizes(stream):
            target, edge, origin = unpack(read(header))
            yield target, edge, origin, read(size - header)


class BlobSerializer(Serializer):  # type: ignore[misc]
    """Reads and writes bytes, one frame each."""

    def dump_stream(self, iterator: Iterable[bytes], stream: IO[bytes]) -> None:
        write, pack = stream.write, _FRAME.pack
        for blob in iterator:
            write(pack(len(blob)))
            write(blob)

    def load_stream(self, stream: IO[bytes]) -> Iterator[bytes]:
        for size in _frame_sizes(stream):
            yield stream.read(size)


def frames_of(blobs: Iterable[bytes]) -> bytes:
    """The blobs as frames, in one byte string."""
    return b"".join(part for blob in blobs for part in (_FRAME.pack(len(blob)), blob))


def pair_of(row: ChunkRow) -> tuple[bytes, bytes]:
    """A chunk row as the key and the payload of an exchange."""
    target, edge, origin, blob = row
    return _KEY.pack(target), _HEADER.pack(target, edge, origin) + blob


def pair_batch(row: ChunkRow) -> pa.RecordBatch:
    """A chunk row as the two binary rows that a DataFrame's stage 0 passes to the exchange."""
    return pa.record_batch([pa.array(pair_of(row), pa.binary())], schema=PAIR_SCHEMA)


def blob_of_payload(payload: bytes) -> bytes:
    """The blob of a payload frame."""
    return payload[_HEADER.size :]


def _frame_sizes(stream: IO[bytes]) -> Iterator[int]:
    read, unpack = stream.read, _FRAME.unpack
    while True:
        head = read(4)
        if not head:
            return
        (size,) = unpack(head)
        if size == SpecialLengths.END_OF_DATA_SECTION:
            return
        yield size

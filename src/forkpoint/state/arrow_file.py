"""The file format of changelogs and snapshots: an Arrow IPC file with checksums for every byte.

    Arrow IPC file   columns key (binary) and value (binary, null for a delete), lz4; record batches in key order
    index            for each record batch: first and last key group, rows, offset, length, crc32
    trailer          format, kind, number of batches, entries, length of the file, checksums, "FKPT"

The checksums form a chain: the index has one for each batch; the trailer has one for the index, the Arrow frame (schema and
footer) and itself. So a reader detects a change of any byte that it reads, and reads a range of key groups without decoding
or checking the other batches.
"""

from __future__ import annotations

import io
import mmap
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa

from forkpoint.errors import SavepointCorrupt
from forkpoint.state.keys import kg_of

CHANGES, SNAPSHOT = 1, 2
_KINDS = {CHANGES: "a changelog", SNAPSHOT: "a snapshot"}
_FORMAT = 1
_MAGIC = b"FKPT"
_BLOCK = struct.Struct(">HHIQQI")
_TRAILER = struct.Struct(">HHIQQIII4s")
_REMEDY = "restore from another checkpoint or savepoint"
_SCHEMA = pa.schema([pa.field("key", pa.binary(), nullable=False), pa.field("value", pa.binary())])
_MAX_ROWS = 4096  # small, so that reading a few key groups reads few entries of others
_MAX_BYTES = 64 << 20


class Block(NamedTuple):
    """One record batch of a file."""

    first_kg: int
    last_kg: int
    rows: int
    offset: int
    length: int
    crc: int


class _Trailer(NamedTuple):
    format: int
    kind: int
    blocks: int
    entries: int
    length: int
    frame_crc: int
    index_crc: int
    crc: int
    magic: bytes


class _Tap(io.BytesIO):
    """A file in memory with a running checksum of Arrow's writes."""

    crc = 0

    def write(self, data: Any, /) -> int:
        self.crc = zlib.crc32(data, self.crc)
        return super().write(data)


class ArrowFileWriter:
    """Writes entries, which must be in key order; `finish` returns the file."""

    def __init__(self, kind: int) -> None:
        self._tap = _Tap()
        self._kind = kind
        self._blocks: list[Block] = []
        # Tasks already use all cores, and most batches are small: a thread pool costs more than their compression.
        options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
        self._arrow = pa.ipc.new_file(pa.PythonFile(self._tap, mode="w"), _SCHEMA, options=options)

    def write(self, keys: pa.Array, values: pa.Array) -> None:
        """Add entries, given as arrays of type large_binary, which has no limit of 2 GiB."""
        for batch in pa.Table.from_arrays([keys, values], _SCHEMA.names).to_batches(max_chunksize=_MAX_ROWS):
            self._write_batch(batch)

    def _write_batch(self, batch: pa.RecordBatch) -> None:
        rows = batch.num_rows
        if rows == 0:
            return
        if batch.nbytes > _MAX_BYTES and rows > 1:
            self._write_batch(batch.slice(0, rows // 2))
            self._write_batch(batch.slice(rows // 2))
            return
        batch = batch.cast(_SCHEMA)
        tap, keys = self._tap, batch.column(0)
        # The tap's checksum covers the frame; for the moment, it covers this batch.
        frame_crc, tap.crc, offset = tap.crc, 0, tap.tell()
        self._arrow.write_batch(batch)
        first_kg, last_kg = kg_of(keys[0].as_py()), kg_of(keys[-1].as_py())
        self._blocks.append(Block(first_kg, last_kg, rows, offset, tap.tell() - offset, tap.crc))
        tap.crc = frame_crc

    def finish(self) -> bytes:
        """Write the end of the file, and return the file."""
        tap, blocks = self._tap, self._blocks
        self._arrow.close()
        frame_crc = tap.crc
        index = b"".join([_BLOCK.pack(*block) for block in blocks])
        tap.write(index)
        entries = sum(block.rows for block in blocks)
        length = tap.tell() + _TRAILER.size
        trailer = _Trailer(_FORMAT, self._kind, len(blocks), entries, length, frame_crc, zlib.crc32(index), 0, _MAGIC)
        checksum = _trailer_crc(_TRAILER.pack(*trailer))
        tap.write(_TRAILER.pack(*trailer._replace(crc=checksum)))
        return tap.getvalue()


class ArrowFile:
    """A file in memory, or mapped. Opening it checks the frame; reading a batch checks the batch.

    Raises SavepointCorrupt with the file's name, the value found and the value expected.
    """

    def __init__(self, data: bytes | mmap.mmap, kind: int, name: str) -> None:
        self._data, self.name = memoryview(data), name
        self._trailer = _read_trailer(self._data, name)
        if self._trailer.kind != kind:
            raise SavepointCorrupt(f"{name} is {_KINDS.get(self._trailer.kind, 'unknown')}, expected {_KINDS[kind]}")
        end = len(data) - _TRAILER.size
        index = self._data[max(end - self._trailer.blocks * _BLOCK.size, 0) : end]
        _compare(name, "the index", zlib.crc32(index), self._trailer.index_crc)
        self.blocks = [Block(*fields) for fields in _BLOCK.iter_unpack(index)]
        self._end = end - len(index)  # of the Arrow file
        position, crc = 0, 0  # of the frame: all bytes before, between and after the batches, up to the index
        for block in self.blocks:
            crc = zlib.crc32(self._data[position : block.offset], crc)
            position = block.offset + block.length
        _compare(name, "the frame", zlib.crc32(self._data[position : self._end], crc), self._trailer.frame_crc)
        with self._readable():
            self._arrow = pa.ipc.open_file(pa.py_buffer(self._data[: self._end]))
            if self._arrow.schema != _SCHEMA or self._arrow.num_record_batches != len(self.blocks):
                raise ValueError(f"{self._arrow.num_record_batches} batches of {self._arrow.schema}")

    def read_columns(self, number: int) -> tuple[pa.Array, pa.Array]:
        """The keys and values of one batch, as large_binary, so that any number can be concatenated."""
        batch = self._batch(number)
        return batch.column(0).cast(pa.large_binary()), batch.column(1).cast(pa.large_binary())

    def _batch(self, number: int) -> pa.RecordBatch:
        block = self.blocks[number]
        data = self._data[block.offset : block.offset + block.length]
        _compare(self.name, f"batch {number} (at byte {block.offset})", zlib.crc32(data), block.crc)
        with self._readable():
            batch = self._arrow.get_batch(number)
            batch.validate(full=True)
            if batch.num_rows != block.rows or batch.column(0).null_count:
                raise ValueError(f"batch {number} has {batch.num_rows} rows, {batch.column(0).null_count} without a key")
        return batch

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Raise Arrow's errors as SavepointCorrupt: the checksums are right, but this is no file of forkpoint."""
        try:
            yield
        except (pa.ArrowException, OSError, ValueError) as error:
            raise SavepointCorrupt(f"{self.name} cannot be read: {error}; {_REMEDY}") from error


def as_list(column: pa.Array) -> list[Any]:
    """Binary values as bytes."""
    values: list[Any] = column.to_pylist()
    return values


def _trailer_crc(packed: bytes) -> int:
    return zlib.crc32(packed[:-8])  # all before the checksum itself and the magic


def _compare(name: str, part: str, found: int, expected: int) -> None:
    if found != expected:
        raise SavepointCorrupt(
            f"{name} is damaged: the checksum of {part} is {found:#010x}, expected {expected:#010x}; {_REMEDY}"
        )


def _read_trailer(data: memoryview, name: str) -> _Trailer:
    if len(data) < _TRAILER.size:
        raise SavepointCorrupt(f"{name} is cut short: it has {len(data)} bytes, expected at least {_TRAILER.size}; {_REMEDY}")
    packed = bytes(data[-_TRAILER.size :])
    trailer = _Trailer(*_TRAILER.unpack(packed))
    if trailer.magic != _MAGIC:
        raise SavepointCorrupt(
            f"{name} is cut short or not a file of forkpoint: it ends with {trailer.magic!r}, expected {_MAGIC!r}; {_REMEDY}"
        )
    _compare(name, "the trailer", _trailer_crc(packed), trailer.crc)
    if trailer.format > _FORMAT:
        raise SavepointCorrupt(f"{name} has format {trailer.format}, expected at most {_FORMAT}; read it with a newer forkpoint")
    if trailer.length != len(data):
        raise SavepointCorrupt(f"{name} is damaged: it has {len(data)} bytes, expected {trailer.length}; {_REMEDY}")
    return trailer

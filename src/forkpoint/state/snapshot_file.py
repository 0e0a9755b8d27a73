"""The whole state of a subtask as a file (see arrow_file.py for the format), readable by ranges of key groups."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import lt

import pyarrow as pa

from forkpoint.state.arrow_file import SNAPSHOT, ArrowFile, ArrowFileWriter, ByteSink, FileInfo
from forkpoint.state.changelog import slice_changes
from forkpoint.state.store import Changes

_BATCH_ROWS = 16384
_BATCH_BYTES = 8 << 20  # of values
_STEP = 64  # entries read at once; a batch exceeds a limit by less than a step


def write_snapshot(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A store's entries, in key order, as a file in memory."""
    sink = io.BytesIO()
    write_snapshot_to(sink, entries)
    return sink.getvalue()


def write_snapshot_to(sink: ByteSink, entries: Iterable[tuple[bytes, bytes]]) -> FileInfo:
    """Write a store's entries, in key order, one batch at a time. Raises ValueError if they are not in order."""
    writer = ArrowFileWriter(sink, SNAPSHOT)
    before = b""
    for keys, values in _batches(entries):
        if not (before < keys[0] and all(map(lt, keys, keys[1:]))):
            raise ValueError(f"the entries of a snapshot are not in key order, near {keys[0].hex()}")
        before = keys[-1]
        writer.write(pa.array(keys, pa.large_binary()), pa.array(values, pa.large_binary()))
    return writer.finish()


def _batches(entries: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[list[bytes], list[bytes]]]:
    source = iter(entries)
    keys: list[bytes] = []
    values: list[bytes] = []
    size = 0
    while step := list(islice(source, _STEP)):
        some_keys, some_values = zip(*step, strict=True)
        keys += some_keys
        values += some_values
        size += sum(map(len, some_values))
        if len(keys) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield keys, values
            keys, values, size = [], [], 0
    if keys:
        yield keys, values


def read_snapshot(data: bytes, kg_start: int, kg_stop: int, name: str = "snapshot") -> Iterator[Changes]:
    """The entries of the key groups kg_start <= kg < kg_stop, in key order, in pieces that a store can load.

    Reads only the batches with these key groups, and checks each before its piece is returned. Raises SavepointCorrupt, which
    names the file as `name`, if one is damaged.
    """
    file = ArrowFile(data, SNAPSHOT, name)
    return _read_range(file, kg_start, kg_stop)


def _read_range(file: ArrowFile, kg_start: int, kg_stop: int) -> Iterator[Changes]:
    for number, block in enumerate(file.blocks):
        if block.first_kg < kg_stop and block.last_kg >= kg_start:
            piece = Changes(*file.read(number))
            yield (
                piece
                if kg_start <= block.first_kg and block.last_kg < kg_stop
                else slice_changes(piece, kg_start, kg_stop)
            )

"""Chunk rows: the wire format of elements and control data between stages.

A row is ``(target subtask, edge, origin, blob)``. Elements are pickled only here, between two tasks of the same run, and
never beyond the epoch. Elements that are columns travel as an Arrow record batch. Integers take as few bytes as their range
needs, because most of a chunk are 64-bit integers within a narrow range.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.graph.job import InEdge
from forkpoint.runtime.exchange.batch import Batch, Longs
from forkpoint.runtime.exchange.control import SplitProgress, decode_progress
from forkpoint.types import dumps

ChunkRow = tuple[int, int, int, bytes]

Packed = tuple[int, npt.NDArray[Any]]
"""The minimum, and the offsets of the numbers from it."""

_WIDTHS = ((1 << 8, np.uint8), (1 << 16, np.uint16), (1 << 32, np.uint32))

# Edges of control data are negative.
COMMIT = -1  # blob: a CommitRow for the driver
PROGRESS = -2  # blob: list[SplitProgress] for every subtask
PART = -3  # blob: the SubtaskPart of the receiving subtask, from the engine


class Piece(NamedTuple):
    """The piece of a split from which stage 0 read elements."""

    origin: int
    split: str
    piece: int


Pieces = Sequence[Piece]
"""The pieces that stage 0 read a batch from. The batch's ``splits`` are indices of them; its receiver completes the coordinates.
There are several only of beginnings of splits (piece 0), whose positions are complete."""


@dataclass
class Inbox:
    """The input of one subtask: its chunks by edge, their bytes, the progress of all splits, and rows to pass on."""

    chunks: dict[int, list[tuple[Pieces, Batch]]] = field(default_factory=dict)
    bytes: dict[int, int] = field(default_factory=dict)
    progress: list[SplitProgress] = field(default_factory=list)
    forwarded: list[ChunkRow] = field(default_factory=list)


def encode_chunk(batch: Batch, pieces: Pieces = ()) -> bytes:
    """``pieces``: in stage 0."""
    table = None if batch.table is None else pack_columns(batch.table)
    values = batch.values if batch.table is None else None
    header = (
        batch.size,
        _squeeze(batch.positions),
        _squeeze(batch.splits),
        pack(batch.sequence),
        None if table is not None and batch.time_column is not None else batch.timestamps,
        batch.time_column if table is not None else None,
        tuple(map(tuple, pieces)),
        batch.ordered,
    )
    chunk = (header, table, values, batch.keys)
    try:
        return pickle.dumps(chunk, protocol=5)
    except (pickle.PicklingError, AttributeError, TypeError):
        # Another process cannot import classes defined in __main__ or in a function.
        return dumps(chunk)


def decode_chunk(blob: bytes, edge: InEdge) -> tuple[Pieces, Batch]:
    (size, positions, splits, sequence, timestamps, time_column, pieces, ordered), table, values, keys = pickle.loads(blob)
    if table is not None:
        assert edge.type is not None
        columns, rest = table
        table = unpack_columns(columns, rest, edge.type.arrow_schema)
    batch = Batch(
        size,
        _spread_out(positions),
        _spread_out(splits),
        unpack(sequence),
        values=values,
        table=table,
        type=edge.type,
        timestamps=timestamps,
        time_column=time_column,
        keys=keys,
        ordered=ordered,
    )
    return list(map(Piece._make, pieces)), batch


def _squeeze(numbers: Longs | int) -> Packed | int:
    """A single int if all numbers are equal, as in streams without time and chunks of one split."""
    if isinstance(numbers, int):
        return numbers
    if len(numbers) and numbers[0] == numbers[-1] and (numbers == numbers[0]).all():
        return int(numbers[0])
    return pack(numbers)


def _spread_out(numbers: Packed | int) -> Longs | int:
    return numbers if isinstance(numbers, int) else unpack(numbers)


def commits_in(rows: Iterable[ChunkRow]) -> Iterator[ChunkRow]:
    """The commit rows of a task."""
    return (row for row in rows if row[1] == COMMIT)


def inboxes(rows: Iterable[ChunkRow], parallelism: int) -> list[list[ChunkRow]]:
    """The rows of each subtask."""
    found: list[list[ChunkRow]] = [[] for _ in range(parallelism)]
    for row in rows:
        found[row[0]].append(row)
    return found


def receive(rows: Iterable[ChunkRow], edges: dict[int, InEdge]) -> Inbox:
    """Decode and sort the rows of one subtask. ``edges``: the edges that end in this stage."""
    inbox = Inbox()
    chunks: dict[int, list[tuple[int, bytes]]] = {}
    for row in rows:
        _, edge, origin, blob = row
        if edge == PROGRESS:
            inbox.progress.extend(decode_progress(blob))
            inbox.forwarded.append(row)
        elif edge in edges:
            chunks.setdefault(edge, []).append((origin, blob))
        else:
            inbox.forwarded.append(row)
    for edge, blobs in chunks.items():
        # Rows arrive in any order. Sorted by origin (upstream task, number), the order is the same in every attempt.
        blobs.sort(key=lambda item: item[0])
        inbox.bytes[edge] = sum(len(blob) for _, blob in blobs)
        inbox.chunks[edge] = [decode_chunk(blob, edges[edge]) for _, blob in blobs]
    return inbox


# -- numbers


def pack(numbers: Longs) -> Packed:
    if not len(numbers):
        return 0, numbers
    low = int(numbers.min())
    span = int(numbers.max()) - low
    for limit, width in _WIDTHS:
        if span < limit:
            return low, (numbers - low).astype(width)
    return 0, numbers


def unpack(packed: Packed) -> Longs:
    low, above = packed
    if above.dtype == np.int64:
        return above
    numbers = above.astype(np.int64)
    numbers += low
    return numbers


def pack_columns(table: pa.RecordBatch) -> tuple[list[Packed | None], bytes | None]:
    """Packed columns of 64-bit integers without nulls (None for other columns), and the others as an Arrow record batch."""
    packed = [pack(c.to_numpy()) if pa.types.is_int64(c.type) and not c.null_count else None for c in table.columns]
    others = [i for i, column in enumerate(packed) if column is None]
    return packed, table.select(others).serialize().to_pybytes() if others else None


def unpack_columns(packed: list[Packed | None], rest: bytes | None, schema: pa.Schema) -> pa.RecordBatch:
    columns: list[pa.Array | None] = [None if numbers is None else pa.array(unpack(numbers)) for numbers in packed]
    if rest is not None:
        others = [i for i, column in enumerate(columns) if column is None]
        batch = pa.ipc.read_record_batch(pa.py_buffer(rest), pa.schema([schema.field(i) for i in others]))
        for i, column in zip(others, batch.columns, strict=True):
            columns[i] = column
    return pa.RecordBatch.from_arrays(columns, schema=schema)

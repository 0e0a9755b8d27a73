"""Chunk rows: the wire format of elements and control data between stages.

A row is ``(target subtask, edge, origin, blob)``. Elements are pickled only here, between two tasks of the same run, and
never beyond the epoch. Elements that are columns travel as an Arrow record batch.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from forkpoint.graph.job import InEdge
from forkpoint.runtime.exchange.batch import Batch, Longs
from forkpoint.runtime.exchange.control import SplitProgress, decode_progress, encode_progress
from forkpoint.runtime.exchange.narrow import Packed, pack, pack_columns, unpack_columns
from forkpoint.runtime.exchange.narrow import unpack as unpack_numbers
from forkpoint.types import dumps

ChunkRow = tuple[int, int, int, bytes]

# Edges of control data are negative.
COMMIT = -1  # blob: a CommitRow for the driver
PROGRESS = -2  # blob: list[SplitProgress] for every subtask


@dataclass(frozen=True)
class Piece:
    """The piece of a split that a stage-0 chunk was read from; the receiver completes its positions."""

    origin: int
    split: str
    piece: int


@dataclass
class Inbox:
    """What one subtask received: its chunks by edge, the progress of all splits, and rows to pass on."""

    chunks: dict[int, list[tuple[Piece | None, Batch]]] = field(default_factory=dict)
    progress: list[SplitProgress] = field(default_factory=list)
    passing: list[ChunkRow] = field(default_factory=list)


def encode_chunk(batch: Batch, piece: Piece | None) -> bytes:
    values: Any = None
    table = None
    if batch.table is not None:
        table = pack_columns(batch.table)
    else:
        values = batch.values
    header = (
        batch.size,
        _squeeze(batch.positions),
        _squeeze(batch.splits),
        pack(batch.sequence),
        None if table is not None and batch.time_column is not None else batch.timestamps,
        batch.time_column if table is not None else None,
        None if piece is None else (piece.origin, piece.split, piece.piece),
        batch.ordered,
    )
    whole = (header, table, values, batch.keys)
    try:
        return pickle.dumps(whole, protocol=5)
    except (pickle.PicklingError, AttributeError, TypeError):
        # Classes defined in __main__ or in a function can't be imported by name in another process.
        return dumps(whole)


def decode_chunk(blob: bytes, edge: InEdge) -> tuple[Piece | None, Batch]:
    (size, positions, splits, sequence, timestamps, time_column, piece, ordered), table, values, keys = pickle.loads(
        blob
    )
    batch = Batch(
        size,
        _spread_out(positions),
        _spread_out(splits),
        unpack_numbers(sequence),
        values=values,
        table=None if table is None else _read_table(table, edge),
        type=edge.type,
        timestamps=timestamps,
        time_column=time_column,
        keys=keys,
        ordered=ordered,
    )
    return None if piece is None else Piece(*piece), batch


def _read_table(packed: Any, edge: InEdge) -> pa.RecordBatch:
    assert edge.type is not None
    columns, rest = packed
    return unpack_columns(columns, rest, edge.type.arrow_schema)


def _squeeze(numbers: Longs | int) -> Packed | int:
    """A single int if all numbers are equal (streams without time, chunks of one split)."""
    if isinstance(numbers, int):
        return numbers
    if len(numbers) and numbers[0] == numbers[-1] and (numbers == numbers[0]).all():
        return int(numbers[0])
    return pack(numbers)


def _spread_out(numbers: Packed | int) -> Longs | int:
    return numbers if isinstance(numbers, int) else unpack_numbers(numbers)


def progress_rows(progress: list[SplitProgress], targets: Iterable[int]) -> list[ChunkRow]:
    blob = encode_progress(progress)
    return [(target, PROGRESS, 0, blob) for target in targets]


def unpack(rows: Iterable[ChunkRow], edges: dict[int, InEdge]) -> Inbox:
    """Decode and sort the rows of one subtask; ``edges`` are those that end in this stage."""
    inbox = Inbox()
    chunks: dict[int, list[tuple[int, bytes]]] = {}
    for row in rows:
        _, edge, origin, blob = row
        if edge == PROGRESS:
            inbox.progress.extend(decode_progress(blob))
            inbox.passing.append(row)
        elif edge in edges:
            chunks.setdefault(edge, []).append((origin, blob))
        else:
            inbox.passing.append(row)
    for edge, blobs in chunks.items():
        # Rows arrive in any order; sorted by origin (upstream task, number) they are the same in every attempt.
        blobs.sort(key=lambda item: item[0])
        inbox.chunks[edge] = [decode_chunk(blob, edges[edge]) for _, blob in blobs]
    return inbox

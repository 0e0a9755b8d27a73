"""Compact encoding of numbers sent between tasks: as few bytes as their range needs, as most of a chunk are 64-bit integers
within a narrow range."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.runtime.exchange.batch import Longs

Packed = tuple[int, npt.NDArray[Any]]
"""The minimum, and each number's offset from it."""

_WIDTHS = ((1 << 8, np.uint8), (1 << 16, np.uint16), (1 << 32, np.uint32))


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
    """Columns of plain 64-bit integers packed (None for others), and the others as an Arrow record batch."""
    packed = [
        pack(column.to_numpy()) if pa.types.is_int64(column.type) and not column.null_count else None
        for column in table.columns
    ]
    others = [i for i, one in enumerate(packed) if one is None]
    return packed, table.select(others).serialize().to_pybytes() if others else None


def unpack_columns(packed: list[Packed | None], rest: bytes | None, schema: pa.Schema) -> pa.RecordBatch:
    columns: list[pa.Array | None] = [None if one is None else pa.array(unpack(one)) for one in packed]
    if rest is not None:
        others = [i for i, column in enumerate(columns) if column is None]
        batch = pa.ipc.read_record_batch(pa.py_buffer(rest), pa.schema([schema.field(i) for i in others]))
        for i, column in zip(others, batch.columns, strict=True):
            columns[i] = column
    return pa.RecordBatch.from_arrays(columns, schema=schema)

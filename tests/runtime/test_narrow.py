"""Numbers in as few bytes as their range needs come out as they went in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkpoint.runtime.exchange.wire import pack, pack_columns, unpack, unpack_columns

LEAST, MOST = -(2**63), 2**63 - 1
numbers = st.lists(st.integers(LEAST, MOST)) | st.builds(
    lambda low, above: [low + a for a in above],
    st.sampled_from([LEAST, -(2**61), -5, 0, 2**40]),
    st.lists(st.integers(0, 2**33) | st.sampled_from([0, 255, 256, 65535, 65536, 2**32 - 1, 2**32])),
)


@given(numbers)
def test_numbers_come_out_as_they_went_in(values: list[int]) -> None:
    packed = pack(np.array(values, dtype=np.int64))
    assert unpack(packed).dtype == np.int64
    assert unpack(packed).tolist() == values


@pytest.mark.parametrize(("span", "width"), [(255, 1), (256, 2), (65535, 2), (65536, 4), (2**32 - 1, 4), (2**32, 8)])
def test_close_numbers_take_few_bytes(span: int, width: int) -> None:
    _, above = pack(np.array([7, 7 + span], dtype=np.int64))
    assert above.itemsize == width


COLUMNS: dict[str, Any] = {
    "n": pa.array([1, 2, 3], pa.int64()),
    "null": pa.array([1, None, 3], pa.int64()),
    "text": pa.array(["a", "", None]),
    "small": pa.array([1, 2, 3], pa.int32()),
    "time": pa.array([1, 2, 3], pa.timestamp("ms")),
}


@given(st.lists(st.sampled_from(sorted(COLUMNS)), unique=True, min_size=1), st.integers(0, 3), st.integers(0, 3))
def test_columns_come_out_as_they_went_in(names: list[str], start: int, length: int) -> None:
    table = pa.RecordBatch.from_arrays([COLUMNS[name] for name in names], names=names).slice(start, length)
    packed, rest = pack_columns(table)
    assert unpack_columns(packed, rest, table.schema).equals(table)

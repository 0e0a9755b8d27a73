"""Exact sums of decimals, whose 128 bits are added in four parts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Longs = npt.NDArray[np.int64]
_MASK = (1 << 32) - 1


def with_added(totals: pa.Array, groups: Longs, values: pa.Array, weights: Longs) -> pa.Array:
    """The total of each group with its values added, each as often as its weight says. ``totals``: with 38 digits; NULL is 0.

    Raises ArrowInvalid if a total has more than 38 digits.
    """
    # Parts have 32 bits, so their sums have room in 64 as long as there are fewer than 2**31 values.
    of = np.int64 if int(np.abs(weights).sum()) < 2**30 else object
    parts = _parts(totals).astype(of)
    np.add.at(parts, groups, _parts(values).astype(of) * weights.astype(of)[:, None])
    for low in range(3):
        parts[:, low + 1] += parts[:, low] >> 32
        parts[:, low] &= _MASK
    if ((parts[:, 3] < -(2**31)) | (parts[:, 3] >= 2**31)).any():
        raise pa.ArrowInvalid("Decimal value does not fit in 128 bits")
    words = (parts & _MASK).astype("<u4")
    found = pa.Array.from_buffers(totals.type, len(totals), [None, pa.py_buffer(np.ascontiguousarray(words))])
    found.validate(full=True)
    return found


def _parts(decimals: pa.Array) -> Longs:
    """The four parts of each number, the least first; only the greatest has a sign. NULL is 0."""
    words = np.frombuffer(decimals.buffers()[1], "<u4").reshape(-1, 4)[decimals.offset : decimals.offset + len(decimals)]
    parts = words.astype(np.int64)
    parts[:, 3] = words[:, 3].astype(np.int32)
    if decimals.null_count:
        parts[decimals.is_null().to_numpy(zero_copy_only=False)] = 0
    return parts

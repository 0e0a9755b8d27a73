"""Exact sums of decimals, whose 128 bits are added in parts of 32."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Longs = npt.NDArray[np.int64]
_MASK = (1 << 32) - 1
_DIGITS_OF_64_BITS = 18


def with_added(totals: pa.Array, groups: Longs, values: pa.Array, weights: Longs) -> pa.Array:
    """The total of each group with its values added, each as often as its weight says. ``totals``: with 38 digits; NULL is 0.

    Raises ArrowInvalid if a total has more than 38 digits.
    """
    # Parts have 32 bits, so their sums have room in 64 as long as there are fewer than 2**31 values.
    of: Any = np.int64 if int(np.abs(weights).sum()) < 2**30 else object
    parts = [part.astype(of) for part in _parts(totals, 38)]
    if len(groups):
        order = np.argsort(groups, kind="stable")
        starts = np.flatnonzero(np.append(True, np.diff(groups[order])))
        firsts, weights = groups[order[starts]], weights[order].astype(of)
        for total, part in zip(parts, _parts(values, values.type.precision), strict=False):
            total[firsts] += np.add.reduceat(part[order] * weights, starts)
    for low in range(3):
        parts[low + 1] += parts[low] >> 32
        parts[low] &= _MASK
    if ((parts[3] < -(2**31)) | (parts[3] >= 2**31)).any():
        raise pa.ArrowInvalid("Decimal value does not fit in 128 bits")
    words = np.stack([part & _MASK for part in parts], axis=1).astype("<u4")
    found = pa.Array.from_buffers(totals.type, len(totals), [None, pa.py_buffer(words)])
    found.validate(full=True)
    return found


def _parts(decimals: pa.Array, precision: int) -> list[Longs]:
    """The parts of each number, the least first: as many as these digits need. Only the greatest has a sign. NULL is 0."""
    words = np.frombuffer(decimals.buffers()[1], "<i8").reshape(-1, 2)[decimals.offset : decimals.offset + len(decimals)]
    if decimals.null_count:
        words = np.where(decimals.is_valid().to_numpy(zero_copy_only=False)[:, None], words, 0)
    low, high = words[:, 0], words[:, 1]
    if precision <= _DIGITS_OF_64_BITS:
        return [low & _MASK, low >> 32]
    return [low & _MASK, (low >> 32) & _MASK, high & _MASK, high >> 32]

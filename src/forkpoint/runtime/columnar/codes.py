"""Numbers for the rows of columns, equal for equal rows: to group, compare and hash them at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from forkpoint.runtime.columnar.leaves import numbers
from forkpoint.runtime.exchange.batch import Longs

_FITS = 62  # the maximum bits of a number packed with its index for sorting


def codes_of(columns: Sequence[pa.Array]) -> Longs:
    """A number for each row, equal for equal keys."""
    codes = _codes(columns[0])
    for column in columns[1:]:
        minor = _codes(column)
        low, width = int(minor.min(initial=0)), _span(minor)
        if (_span(codes) * width).bit_length() > _FITS:
            codes, minor, low = _dense(pa.array(codes)), _dense(pa.array(minor)), 0
            width = _span(minor)
        codes = (codes - int(codes.min(initial=0))) * width + (minor - low)
    return codes


def distinct_codes(codes: Longs) -> tuple[Longs, Longs]:
    """The first row of each distinct code, and of each row the index of its code among these."""
    low, rows = int(codes.min(initial=0)), np.arange(len(codes))
    found = codes - low
    if _span(codes) > 4 * len(codes):
        found = _dense(pa.array(codes))
    first = np.full(int(found.max(initial=-1)) + 1, -1)
    first[found[::-1]] = rows[::-1]  # of several rows with a code, the last one that is written stays
    there = first >= 0
    return first[there], (np.cumsum(there) - 1)[found]


def _codes(column: pa.Array) -> Longs:
    if pa.types.is_struct(column.type) and column.type.num_fields:
        return codes_of([column.is_valid(), *column.flatten()])
    if pa.types.is_nested(column.type):
        return _dense(pa.array([repr(comparable(value)) for value in column.to_pylist()], pa.string()))
    if column.null_count:
        return _dense(column)
    if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        return np.asarray(numbers(column)).astype(np.int64, copy=False)
    if pa.types.is_floating(column.type) or pa.types.is_temporal(column.type):
        # Keys are equal if their stored bytes are equal: 0.0 and -0.0 differ, and NaN, which is canonical here, equals itself.
        bits = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
        return np.asarray(numbers(bits)).astype(np.int64, copy=False)
    return _dense(column)


def comparable(value: Any) -> Any:
    """A nested value of a column in a form that is equal for equal values: the entries of a map have no order."""
    if isinstance(value, dict):
        return {name: comparable(part) for name, part in value.items()}
    if not isinstance(value, list):
        return value
    parts = [tuple(map(comparable, part)) if isinstance(part, tuple) else comparable(part) for part in value]
    return sorted(parts, key=repr) if parts and isinstance(parts[0], tuple) else parts


def _span(codes: Longs) -> int:
    return int(codes.max(initial=0)) - int(codes.min(initial=0)) + 1


def _dense(column: pa.Array) -> Longs:
    return np.asarray(numbers(column.dictionary_encode("encode").indices)).astype(np.int64)


def combined(codes: Longs, minor: Longs) -> tuple[Longs, int]:
    """One number for each pair, ordered by code and then ``minor``, and the divisor that yields the code."""
    if not len(codes):
        return codes, 1
    low = int(minor.min())
    width = int(minor.max()) - low + 1
    if (_span(codes) * width).bit_length() + len(codes).bit_length() > _FITS:
        codes = _dense(pa.array(codes))
    return (codes - int(codes.min())) * width + (minor - low), width

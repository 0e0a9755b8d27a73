"""Aggregates that depend on the order of rows: FIRST_VALUE, LAST_VALUE and LISTAGG. NULL is none of their values."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Kind = Literal["first", "last", "list"]
Longs = npt.NDArray[np.int64]

FUNCTIONS: dict[str, Kind] = {"FIRST_VALUE": "first", "LAST_VALUE": "last", "LISTAGG": "list"}
"""The kind of accumulator of each function."""


def of_rows(kind: Kind, values: pa.Array, starts: Longs, saved: pa.Array) -> pa.Array:
    """The accumulator of each group with its rows added, which follow those that it has. The rows of group i are those from
    ``starts[i]`` to ``starts[i + 1]``."""
    if kind == "list":
        added = pc.binary_join(pa.ListArray.from_arrays(pa.array(starts, pa.int32()), values.fill_null("")), "")
        whole = pc.binary_join_element_wise(saved.fill_null(""), added, "")
        return pc.if_else(pc.or_(saved.is_valid(), _have_any(values, starts)), whole, pa.scalar(None, pa.string()))
    rows = np.arange(len(values))
    present = values.is_valid().to_numpy(zero_copy_only=False)
    if kind == "first":
        at = np.minimum.reduceat(np.where(present, rows, len(values)), starts[:-1])
    else:
        at = np.maximum.reduceat(np.where(present, rows, -1), starts[:-1])
    found = values.take(pa.array(at, mask=(at < 0) | (at == len(values)))).cast(saved.type)
    return pc.coalesce(saved, found) if kind == "first" else pc.coalesce(found, saved)


def _have_any(values: pa.Array, starts: Longs) -> pa.Array:
    """Which groups have a value."""
    present = values.is_valid().to_numpy(zero_copy_only=False)
    return pa.array(np.logical_or.reduceat(present, starts[:-1]))

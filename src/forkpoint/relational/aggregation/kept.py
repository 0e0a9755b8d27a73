"""Accumulators that are all values of a group, in their order: ARRAYs. Values that are taken back leave them.

Each change of a group writes its array again, so it is for groups with few values.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.relational.types import SqlType
from forkpoint.runtime.columnar.codes import codes_of
from forkpoint.runtime.columnar.segments import run_starts
from forkpoint.runtime.exchange.batch import stable_order

Longs = npt.NDArray[np.int64]


def with_values(of: SqlType, saved: pa.Array, values: pa.Array, weights: Longs | None, starts: Longs) -> pa.Array:
    """The arrays of groups with more values, or without the first ones that equal those with a negative weight. NULL is no value.

    The values of group i are those from ``starts[i]`` to ``starts[i + 1]``. What a group does not have, it cannot lose: whether
    rows were never added, the number of rows shows.
    """
    size = len(saved)
    present = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    counts = np.ones(len(present), np.int64) if weights is None else weights[present]
    rows = np.repeat(np.arange(len(present)), np.abs(counts))
    added = values.take(pa.array(present[rows]))
    if pa.types.is_struct(added.type):  # whose fields are never NULL in the array
        added = pa.StructArray.from_arrays(added.flatten(), fields=list(of.arrow_type.value_type))
    groups = np.append(np.repeat(np.arange(size), lengths(saved)), np.repeat(np.arange(size), np.diff(starts))[present][rows])
    both = pa.concat_arrays([saved.flatten(), added.cast(of.arrow_type.value_type)])
    if (counts < 0).any():
        signs = np.append(np.ones(len(both) - len(rows), np.int64), np.sign(counts)[rows])
        kept = _remaining(groups, both, signs)
        groups, both = groups[kept], both.take(pa.array(kept))
    return arrays(both, groups, size, of)


def _remaining(groups: Longs, values: pa.Array, signs: Longs) -> Longs:
    """The values of groups that those with a negative sign have not taken back, each the first of its equals."""
    order, codes = stable_order(codes_of([pa.array(groups), *parts_of(values)]))
    runs = np.cumsum(run_starts(codes)) - 1  # of equal values of a group
    taken = np.bincount(runs, signs[order] < 0).astype(np.int64)
    positive = order[signs[order] > 0]
    of_positive = runs[signs[order] > 0]
    have = np.bincount(of_positive, minlength=len(taken))
    place = np.arange(len(positive)) - (np.cumsum(have) - have)[of_positive]
    return np.sort(positive[place >= taken[of_positive]])


def parts_of(values: pa.Array) -> list[pa.Array]:
    """The columns by which values are equal: the fields of a ROW."""
    return values.flatten() if pa.types.is_struct(values.type) else [values]


def merged(of: SqlType, given: pa.Array, starts: Longs) -> pa.Array:
    """The arrays from ``starts[i]`` to ``starts[i + 1]`` as one, for each i."""
    size = len(starts) - 1
    groups = np.repeat(np.repeat(np.arange(size), np.diff(starts)), lengths(given))
    return arrays(given.flatten(), groups, size, of)


def lengths(of: pa.Array) -> Longs:
    """How many values each array has."""
    found: Longs = of.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def arrays(values: pa.Array, groups: Longs, size: int, of: SqlType) -> pa.Array:
    """The values of each group, in their order."""
    order = pa.array(np.argsort(groups, kind="stable"))
    offsets = np.append(0, np.cumsum(np.bincount(groups, minlength=size))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values.take(order), of.arrow_type)


def at_end(of: pa.Array, *, first: bool) -> pa.Array:
    """The first or the last value of each array; NULL of an empty one."""
    sizes = lengths(of)
    stops = np.cumsum(sizes)
    at = stops - sizes if first else stops - 1
    return of.flatten().take(pa.array(at, mask=sizes == 0))


def joined(of: pa.Array) -> pa.Array:
    """The texts of each array as one; NULL of an empty one."""
    return pc.if_else(pa.array(lengths(of) == 0), pa.scalar(None, pa.string()), pc.binary_join(of, ""))

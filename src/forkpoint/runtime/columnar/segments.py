"""Rows of a table in groups that may continue saved entries: the input of aggregates over columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.runtime.columnar.leaves import numbers
from forkpoint.runtime.exchange.batch import Longs
from forkpoint.types import TypeInformation

Numbers = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]
_LONG = 512  # rows; longer segments are processed separately


@dataclass(frozen=True)
class Source:
    """The aggregated field: a column, or the element itself if ``column`` is None. ``type``: its type in the accumulator."""

    column: int | None
    type: TypeInformation

    def of(self, table: pa.RecordBatch) -> pa.Array:
        if self.column is not None:
            return table.column(self.column)
        return pa.StructArray.from_arrays(table.columns, names=table.schema.names)


@dataclass(frozen=True)
class Segments:
    """Rows of a table in groups: group i has ``rows[starts[i]:starts[i + 1]]``, at least one row, in order.

    ``saved_at[i]``: the index of the saved entry that group i continues, -1 for none.
    """

    table: pa.RecordBatch
    rows: Longs
    starts: Longs
    saved_at: Longs

    @property
    def count(self) -> int:
        return len(self.saved_at)

    @cached_property
    def sizes(self) -> Longs:
        return np.diff(self.starts)

    @cached_property
    def has_saved(self) -> Bools:
        return np.asarray(self.saved_at >= 0)

    @cached_property
    def of_row(self) -> Longs:
        """The group of each row."""
        return np.repeat(np.arange(self.count), self.sizes)

    @property
    def last(self) -> pa.Array:
        """The index in ``rows`` of each group's last row."""
        return pa.array(self.starts[1:] - 1)

    def picked(self, source: Source, at: Longs | None = None) -> pa.Array:
        """The source's values in the order of ``rows``, or at the indices ``at`` of ``rows``."""
        return source.of(self.table).take(pa.array(self.rows if at is None else self.rows[at]))

    def values(self, source: Source) -> Numbers:
        """The numbers of a source without nulls in these rows."""
        array = source.of(self.table)
        return np.asarray(numbers(self.picked(source)) if array.null_count else numbers(array)[self.rows])

    def saved(self, leaf: pa.Array) -> pa.Array:
        """A saved leaf, one entry for each group that continues a saved entry."""
        return leaf.take(pa.array(self.saved_at[self.has_saved]))

    def seeds(self, leaf: pa.Array, otherwise: Numbers) -> Numbers:
        """A saved leaf's numbers for each group; ``otherwise`` for groups without a saved entry."""
        if self.has_saved.any():
            otherwise[self.has_saved] = numbers(self.saved(leaf))
        return otherwise

    def present(self, source: Source) -> Bools | None:
        """The rows that have a value; None if all rows have one."""
        array = source.of(self.table)
        return np.asarray(numbers(array.is_valid())[self.rows]) if array.null_count else None

    def entries(self, leaf: pa.Array) -> Segments:
        """The same rows, continuing only entries in which the leaf is not null."""
        if not leaf.null_count:
            return self
        valid = np.append(numbers(leaf.is_valid()), False)
        return Segments(self.table, self.rows, self.starts, np.where(valid[self.saved_at], self.saved_at, -1))

    def where(self, present: Bools) -> tuple[Segments, Longs]:
        """The rows where ``present``, and the groups that have such rows."""
        sizes = np.add.reduceat(present, self.starts[:-1], dtype=np.int64)
        groups = np.flatnonzero(sizes)
        starts = np.concatenate(([0], np.cumsum(sizes[groups])))
        return Segments(self.table, self.rows[present], starts, self.saved_at[groups]), groups


def layers(segments: Segments, which: Bools) -> Iterator[tuple[Longs, Longs]]:
    """The groups ``which``, row by row: yields the groups with a first row and the indices of these rows, then the second."""
    order = np.argsort(-segments.sizes, kind="stable")
    order = order[which[order]]
    lengths, at = segments.sizes[order], segments.starts[:-1][order].copy()
    for depth in range(int(lengths[0]) if len(lengths) else 0):
        alive = int(np.searchsorted(-lengths, -depth, side="left"))
        yield order[:alive], at[:alive]
        at[:alive] += 1


@np.errstate(all="ignore")  # inf - inf is nan in Python, without a warning
def accumulated(ufunc: np.ufunc, values: Numbers, segments: Segments, seeds: Numbers) -> Numbers:
    """``ufunc.accumulate`` within each segment from its seed, strictly from left to right.

    Segments advance in parallel, one row at a time, so floating-point results equal those of a loop over elements. Long segments
    are cheaper one by one.
    """
    result = np.empty_like(values)
    long = segments.sizes > _LONG
    starts = segments.starts
    for s in np.flatnonzero(long).tolist():
        a, b = starts[s], starts[s + 1]
        result[a:b] = ufunc.accumulate(np.concatenate((seeds[s : s + 1], values[a:b])))[1:]
    so_far = seeds.copy()
    for alive, at in layers(segments, ~long):
        so_far[alive] = result[at] = ufunc(so_far[alive], values[at])
    return result


def run_starts(numbers: Longs) -> Bools:
    """The mask of the first number of each run of equal numbers."""
    return np.append(True, numbers[1:] != numbers[:-1])[: len(numbers)]


def ranges(starts: Longs, lengths: Longs) -> Longs:
    """Concatenated ranges: ``lengths[i]`` numbers from ``starts[i]``."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)


def either(new: pa.Array, at: Longs, saved: pa.Array, saved_at: Longs) -> pa.Array:
    """At each index, the new entry ``at``; the saved entry ``saved_at`` if ``at`` is -1; null if both are -1."""
    indices = np.where(at >= 0, at, np.where(saved_at >= 0, len(new) + saved_at, -1))
    return pa.concat_arrays([new, saved]).take(pa.array(indices, mask=indices < 0))

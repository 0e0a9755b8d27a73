"""Aggregates over segments of rows: what the aggregators' ``add`` does, for all groups at once and to the same bit.

Where numpy would not do the same as Python (sums beyond 64 bits, NaN and -0.0 in comparisons, nulls), a reduction
answers None, and the caller works element by element.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.functions import Aggregator, Avg, Count, First, Last, Max, MaxBy, Min, MinBy, StdDev, Sum
from forkpoint.runtime.batch import Longs
from forkpoint.runtime.columnar.leaves import Leaves, merged, numbers, put_together, take_apart
from forkpoint.types import TypeInformation

Numbers = npt.NDArray[Any]
_LONG = 512  # rows; a longer segment is worked through by itself
_DEEP = 64  # a loop over the rows of the longest segment costs so much as this many elements each


@dataclass(frozen=True)
class Segments:
    """Rows of a table in groups: those of group i are ``rows[starts[i]:starts[i + 1]]``, at least one, in order.

    ``saved_at[i]``: which of the saved entries group i goes on from, -1 for none.
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
    def has_saved(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.saved_at >= 0)

    @cached_property
    def of_row(self) -> Longs:
        """The group of each row."""
        return np.repeat(np.arange(self.count), self.sizes)

    def values(self, column: int) -> Numbers | None:
        """A column's numbers in the rows' order; None where it has nulls."""
        array = self.table.column(column)
        return None if array.null_count else numbers(array)[self.rows]

    def of_saved(self, leaf: pa.Array) -> Numbers:
        """A saved leaf's numbers, one for each group that has something saved."""
        if not self.has_saved.any():
            return np.empty(0, np.int64)
        return np.asarray(numbers(leaf)[self.saved_at[self.has_saved]])

    def pick(self, column: pa.Array, at: Longs) -> pa.Array:
        """A column's entries at these places of the order."""
        return column.take(pa.array(self.rows[at]))


class Reduction(ABC):
    """One aggregate over segments. ``saved`` are its leaves of the saved entries."""

    @abstractmethod
    def update(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        """The leaves of each group's accumulator, its rows added."""

    def running(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        """The leaves behind each row."""
        return None

    def result(self, leaves: Sequence[pa.Array]) -> pa.Array:
        """The column of results."""
        return leaves[0]


@dataclass(frozen=True)
class Counting(Reduction):
    column: int | None

    def update(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        if self.column is not None and segments.table.column(self.column).null_count:
            return None
        counts = segments.sizes.astype(np.int64)
        if segments.has_saved.any():
            counts[segments.has_saved] += numbers(saved[0])[segments.saved_at[segments.has_saved]]
        return [pa.array(counts)]

    def running(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        if self.column is not None and segments.table.column(self.column).null_count:
            return None
        before = np.zeros(segments.count, np.int64)
        before[segments.has_saved] = segments.of_saved(saved[0])
        return [
            pa.array(np.arange(1, len(segments.rows) + 1) + np.repeat(before - segments.starts[:-1], segments.sizes))
        ]


@dataclass(frozen=True)
class Summing(Reduction):
    column: int

    def update(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        values = segments.values(self.column)
        if values is None:
            return None
        has = segments.has_saved
        seeds = numbers(saved[0])[segments.saved_at[has]] if has.any() else None
        if values.dtype.kind == "f":
            values = values.astype(np.float64, copy=False)
            groups = segments.of_row
            if seeds is not None:
                groups, values = np.concatenate((np.flatnonzero(has), groups)), np.concatenate((seeds, values))
            # bincount adds one weight after the other, as a loop does; reduceat adds pairs.
            return [pa.array(np.bincount(groups, values, segments.count))]
        values = values.astype(np.int64, copy=False)
        if overflows(values, int(segments.sizes.max(initial=0)), seeds):
            return None
        sums = np.add.reduceat(values, segments.starts[:-1])
        if seeds is not None:
            sums[has] += seeds
        return [pa.array(sums)]

    def running(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        values = segments.values(self.column)
        if values is None:
            return None
        floats = values.dtype.kind == "f"
        values = values.astype(np.float64 if floats else np.int64, copy=False)
        seeds = np.zeros(segments.count, values.dtype)
        seeds[segments.has_saved] = segments.of_saved(saved[0])
        if floats:
            return accumulated(np.add, values, segments, seeds)
        if overflows(values, int(segments.sizes.max(initial=0)), seeds):
            return None
        sums = np.cumsum(values)  # beyond 64 bits it goes round, and the differences are right all the same
        begins = segments.starts[:-1]
        return [pa.array(sums + np.repeat(seeds - (sums[begins] - values[begins]), segments.sizes))]


def overflows(values: Numbers, most: int, seeds: Numbers | None) -> bool:
    """Whether sums of so many of these ints, and a seed, might be beyond 64 bits."""
    bound = most * _largest(values) + (0 if seeds is None else _largest(seeds))
    return bound >= 2**63


def _largest(values: Numbers) -> int:
    return max(abs(int(values.max())), abs(int(values.min()))) if len(values) else 0


def incomparable(values: Numbers) -> bool:
    """Whether Python's comparisons might choose otherwise than numpy's."""
    return values.dtype.kind == "f" and bool((np.isnan(values) | ((values == 0) & np.signbit(values))).any())


@dataclass(frozen=True)
class Extreme(Reduction):
    column: int
    ufunc: np.ufunc
    arrow: pa.DataType

    def update(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        values = segments.values(self.column)
        if values is None or incomparable(values):
            return None
        found = self.ufunc.reduceat(values, segments.starts[:-1])
        has = segments.has_saved
        if has.any():
            seeds = numbers(saved[0])[segments.saved_at[has]]
            if incomparable(seeds):
                return None
            found[has] = self.ufunc(found[has], seeds)
        return [pa.array(found, self.arrow)]

    def running(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        values = segments.values(self.column)
        if values is None or incomparable(values):
            return None
        seeds = values[segments.starts[:-1]].copy()
        if segments.has_saved.any():
            seeds[segments.has_saved] = segments.of_saved(saved[0])
            if incomparable(seeds):
                return None
        found = accumulated(self.ufunc, values, segments, seeds)
        return None if found is None else [pa.array(numbers(found[0]), self.arrow)]


@dataclass(frozen=True)
class Averaging(Reduction):
    column: int
    exact: bool  # whether sums are ints

    def update(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        sums = Summing(self.column).update(segments, saved[:1])
        counts = Counting(self.column).update(segments, saved[1:])
        return None if sums is None or counts is None else [*sums, *counts]

    def running(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        sums = Summing(self.column).running(segments, saved[:1])
        counts = Counting(self.column).running(segments, saved[1:])
        return None if sums is None or counts is None else [*sums, *counts]

    def result(self, leaves: Sequence[pa.Array]) -> pa.Array:
        sums, counts = numbers(leaves[0]), numbers(leaves[1])
        if self.exact and len(sums) and _largest(sums) > 2**53:
            return pa.array([s / n for s, n in zip(sums.tolist(), counts.tolist(), strict=True)], pa.float64())
        return pa.array(sums / counts)


@dataclass(frozen=True)
class Deviating(Reduction):
    """Welford's recurrence, one row of each group at a time."""

    column: int

    def update(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        values = segments.values(self.column)
        deepest = int(segments.sizes.max(initial=0))
        if values is None or deepest * _DEEP > len(segments.rows) + 4096:
            return None
        values = values.astype(np.float64)
        size = segments.count
        counts, means, squares = np.zeros(size, np.int64), np.zeros(size), np.zeros(size)
        has = segments.has_saved
        if has.any():
            at = segments.saved_at[has]
            counts[has], means[has], squares[has] = (numbers(leaf)[at] for leaf in saved)
        with np.errstate(all="ignore"):
            for alive, rows in layers(segments):
                value = values[rows]
                counts[alive] += 1
                off = value - means[alive]
                means[alive] += off / counts[alive]
                squares[alive] += off * (value - means[alive])
        return [pa.array(counts), pa.array(means), pa.array(squares)]

    def result(self, leaves: Sequence[pa.Array]) -> pa.Array:
        with np.errstate(all="ignore"):
            return pa.array(np.sqrt(numbers(leaves[2]) / numbers(leaves[0])))


def accumulated(ufunc: np.ufunc, values: Numbers, segments: Segments, seeds: Numbers) -> Leaves | None:
    """``ufunc.accumulate`` within each segment, each beginning from its seed, strictly from left to right.

    Segments are worked through side by side, one row of each at a time, so that floating-point results are those of a
    loop over elements; a long segment is cheaper by itself.
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
    return [pa.array(result)]


def layers(segments: Segments, which: npt.NDArray[np.bool_] | None = None) -> Any:
    """The first rows of all groups (or of some), then the second ones, and so on: pairs of groups and places."""
    order = np.argsort(-segments.sizes, kind="stable")
    if which is not None:
        order = order[which[order]]
    lengths, at = segments.sizes[order], segments.starts[:-1][order].copy()
    for depth in range(int(lengths[0]) if len(lengths) else 0):
        alive = int(np.searchsorted(-lengths, -depth, side="left"))
        yield order[:alive], at[:alive]
        at[:alive] += 1


@dataclass(frozen=True)
class Choosing(Reduction):
    """One row of each group as it is: its first or last, or the first with the extreme of a column (``by``).

    ``columns``: of the table, with their types, that make up the leaves; behind that of the extreme where there is one.
    """

    columns: tuple[tuple[int, TypeInformation], ...]
    which: Callable[[Segments], Longs]
    keeps_saved: bool = True
    by: Extreme | None = None

    def update(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        has = segments.has_saved
        if self.by is None:
            return self._chosen(segments, self.which(segments), saved, has & self.keeps_saved)
        values = segments.values(self.by.column)
        best = self.by.update(segments, saved[:1])
        if values is None or best is None:
            return None
        extremes = numbers(best[0])
        equal = values == np.repeat(extremes, segments.sizes)
        at = np.minimum.reduceat(np.where(equal, np.arange(len(values)), len(values)), segments.starts[:-1])
        use = np.zeros(segments.count, bool)
        if has.any():
            use[has] = numbers(saved[0])[segments.saved_at[has]] == extremes[has]
        chosen = self._chosen(segments, np.minimum(at, len(values) - 1), saved[1:], use)
        return None if chosen is None else [*best, *chosen]

    def running(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        places = np.arange(len(segments.rows))
        begins = np.repeat(segments.starts[:-1], segments.sizes)
        if self.by is None:
            at = places if self.which is lasts else begins
            use = np.repeat(segments.has_saved, segments.sizes) & self.keeps_saved
            return self._chosen(segments, at, saved, use)
        values, best = segments.values(self.by.column), self.by.running(segments, saved[:1])
        if values is None or best is None:
            return None
        extremes = numbers(best[0])
        better = values == extremes  # and not so before:
        better[1:] &= (extremes[1:] != extremes[:-1]) | (begins[1:] == places[1:])
        of_first = segments.starts[:-1][segments.has_saved]
        better[of_first] &= values[of_first] != segments.of_saved(saved[0])
        at = np.maximum.accumulate(np.where(better, places, -1))
        use = at < begins
        chosen = self._chosen(segments, np.where(use, begins, at), saved[1:], use)
        return None if chosen is None else [*best, *chosen]

    def _chosen(
        self, segments: Segments, at: Longs, saved: Sequence[pa.Array], use: npt.NDArray[np.bool_]
    ) -> Leaves | None:
        found: Leaves = []
        for column, type in self.columns:
            array = segments.table.column(column)
            leaves = None if array.null_count else take_apart(segments.pick(array, at), type)
            if leaves is None or any(leaf.null_count for leaf in leaves):
                return None
            found += leaves
        saved_at = segments.saved_at if len(at) == segments.count else np.repeat(segments.saved_at, segments.sizes)
        return [merged(new, old, use, saved_at) for new, old in zip(found, saved, strict=True)]

    def result(self, leaves: Sequence[pa.Array]) -> pa.Array:
        return leaves[0]


@dataclass(frozen=True)
class ChoosingElement(Reduction):
    """``Choosing`` whose result is the record made of the leaves."""

    inner: Choosing
    type: TypeInformation

    def update(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        return self.inner.update(segments, saved)

    def running(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        return self.inner.running(segments, saved)

    def result(self, leaves: Sequence[pa.Array]) -> pa.Array:
        behind = 1 if self.inner.by is not None else 0
        return put_together(iter(leaves[behind:]), self.type)


def firsts(segments: Segments) -> Longs:
    return segments.starts[:-1]


def lasts(segments: Segments) -> Longs:
    return segments.starts[1:] - 1


def column_index(field: int | str | None, elements: TypeInformation) -> int | None:
    """The column that a field is."""
    names = elements.column_names
    if isinstance(field, str):
        return names.index(field) if field in names else None
    return None if field is None or not -len(names) <= field < len(names) else field % len(names)


def column_type(column: int, elements: TypeInformation) -> TypeInformation:
    return elements if elements.fields is None else elements.fields[column].type


_NUMBERS = ("byte", "short", "int", "long", "double", "boolean")


def reduction_of(aggregator: Aggregator[Any], elements: TypeInformation) -> Reduction | None:
    """How an aggregate is computed over columns; None where it isn't."""
    column = column_index(aggregator.field, elements)
    if type(aggregator) is Count:
        return Counting(column) if aggregator.field is None or column is not None else None
    kind = aggregator.field_type(elements).kind
    if column is None or (type(aggregator) not in (First, Last) and kind not in (*_NUMBERS, "float")):
        return None
    of = aggregator.field_type(elements)
    match aggregator:
        case Sum():
            return Summing(column)
        case Avg():
            return Averaging(column, kind not in ("float", "double"))
        case StdDev():
            return Deviating(column)
        case Min() | Max() if kind in _NUMBERS:
            return Extreme(column, np.minimum if type(aggregator) is Min else np.maximum, of.arrow_type)
        case First() | Last():
            which = firsts if type(aggregator) is First else lasts
            return ChoosingElement(Choosing(((column, of),), which, type(aggregator) is First), of)
        case MinBy() if kind in _NUMBERS:
            by = Extreme(column, np.maximum if isinstance(aggregator, MaxBy) else np.minimum, of.arrow_type)
            return _by(aggregator, by, elements)
    return None


def _by(aggregator: MinBy, by: Extreme, elements: TypeInformation) -> Reduction | None:
    if aggregator.value is None:
        columns = tuple((i, column_type(i, elements)) for i in range(len(elements.column_names)))
        return ChoosingElement(Choosing(columns, firsts, by=by), elements)
    value = column_index(aggregator.value, elements)
    if value is None:
        return None
    of = column_type(value, elements)
    return ChoosingElement(Choosing(((value, of),), firsts, by=by), of)

"""Aggregates over segments of rows: the aggregators' ``add`` for all groups at once, with bit-identical results.

Where numpy would differ from Python (sums beyond 64 bits, NaN and -0.0 in comparisons), a reduction returns None, and the caller
falls back to single elements.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.runtime.columnar.leaves import Leaves, join_leaves, merged, numbers, split_leaves, witness
from forkpoint.runtime.columnar.ordering import Ordered, ordered
from forkpoint.runtime.columnar.segments import Bools, Numbers, Segments, Source, accumulated, either, layers
from forkpoint.runtime.exchange.batch import Longs

_MIN_VECTORIZED = 64  # segments from which a vectorized loop pays off


@dataclass(frozen=True)
class Running:
    """``leaves``: the accumulator after each group's last row. ``results``: the result columns after each row; one for a
    reduction."""

    leaves: Leaves
    results: list[pa.Array]


class Reduction(ABC):
    """One aggregate over segments. ``saved``: the leaves of its saved entries."""

    @abstractmethod
    def update(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        """The leaves of each group's accumulator with its rows added."""

    @abstractmethod
    def running(self, segments: Segments, saved: Sequence[pa.Array]) -> Running | None:
        """The accumulators and the results after each row."""

    def result(self, leaves: Sequence[pa.Array]) -> pa.Array:
        """The column of results."""
        return leaves[0]

    def _running(self, segments: Segments, leaves: Leaves) -> Running:
        """``running``, from the leaves after each row."""
        return Running([leaf.take(segments.last) for leaf in leaves], [self.result(leaves)])


@dataclass(frozen=True)
class CountReduction(Reduction):
    """The number of elements, or of elements with a value in the source."""

    of: Source | None

    def update(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves:
        present = None if self.of is None else segments.present(self.of)
        counts = segments.sizes if present is None else np.add.reduceat(present, segments.starts[:-1], dtype=np.int64)
        return [pa.array(counts + self._before(segments, saved))]

    def running(self, segments: Segments, saved: Sequence[pa.Array]) -> Running:
        return self._running(segments, self.after_each(segments, saved))

    def after_each(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves:
        """The leaves after each row."""
        present = None if self.of is None else segments.present(self.of)
        before, begins = self._before(segments, saved), segments.starts[:-1]
        if present is None:
            return [pa.array(np.arange(1, len(segments.rows) + 1) + np.repeat(before - begins, segments.sizes))]
        counts = np.cumsum(present)
        return [pa.array(counts + np.repeat(before - (counts[begins] - present[begins]), segments.sizes))]

    def _before(self, segments: Segments, saved: Sequence[pa.Array]) -> Longs:
        return segments.seeds(saved[0], np.zeros(segments.count, np.int64))


@dataclass(frozen=True)
class ValueReduction(Reduction):
    """An aggregate that ignores None: rows without a value, and saved entries that have seen no value.

    The accumulator is None until the first value: all its leaves are null. The leaf at ``witness`` is null only then.
    """

    of: Source

    @property
    def witness(self) -> int:
        return 0

    @abstractmethod
    def add(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        """``update`` if each row has a value and no saved entry is None."""

    @abstractmethod
    def running_values(self, segments: Segments, saved: Sequence[pa.Array]) -> Running | None:
        """``running`` under the condition of ``add``."""

    def update(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        segments, present = segments.entries(saved[self.witness]), segments.present(self.of)
        if present is None:
            return self.add(segments, saved)
        nonempty, groups = segments.where(present)
        leaves = self.add(nonempty, saved) if len(groups) else [leaf.slice(0, 0) for leaf in saved]
        return None if leaves is None else self._spread(leaves, segments, groups, saved)

    def running(self, segments: Segments, saved: Sequence[pa.Array]) -> Running | None:
        segments, present = segments.entries(saved[self.witness]), segments.present(self.of)
        if present is None:
            return self.running_values(segments, saved)
        nonempty, groups = segments.where(present)
        empty: Leaves = [leaf.slice(0, 0) for leaf in saved]
        found = self.running_values(nonempty, saved) if len(groups) else Running(empty, [self.result(empty)])
        if found is None:
            return None
        before, after = self.result(self._spread(empty, segments, groups[:0], saved)), found.results[0]
        seen, begins = np.cumsum(present), segments.starts[:-1]
        at = seen - 1
        without = at < np.repeat(seen[begins] - present[begins], segments.sizes)
        at[without] = len(after) + segments.of_row[without]
        results = pa.concat_arrays([after, before]).take(pa.array(at))
        return Running(self._spread(found.leaves, segments, groups, saved), [results])

    def _spread(self, leaves: Leaves, segments: Segments, groups: Longs, saved: Sequence[pa.Array]) -> Leaves:
        """The new leaves for these groups, the saved leaves for other groups."""
        at = np.full(segments.count, -1)
        at[groups] = np.arange(len(groups))
        return [either(new, at, old, segments.saved_at) for new, old in zip(leaves, saved, strict=True)]


class RowReduction(ValueReduction):
    """An aggregate whose accumulators after each row are computed as leaves."""

    @abstractmethod
    def after_each(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        """The leaves after each row, under the condition of ``add``."""

    def running_values(self, segments: Segments, saved: Sequence[pa.Array]) -> Running | None:
        leaves = self.after_each(segments, saved)
        return None if leaves is None else self._running(segments, leaves)


@dataclass(frozen=True)
class SumReduction(RowReduction):
    def add(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        values, seeds = self._numbers(segments, saved)
        if values.dtype.kind == "f":
            groups = segments.of_row
            if segments.has_saved.any():
                groups, values = np.append(np.arange(segments.count), groups), np.append(seeds, values)
            # bincount adds weights one by one, like a loop; reduceat adds pairwise.
            return [pa.array(np.bincount(groups, values, segments.count))]
        if overflows(segments, values, seeds):
            return None
        return [pa.array(np.add.reduceat(values, segments.starts[:-1]) + seeds)]

    def after_each(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        values, seeds = self._numbers(segments, saved)
        if values.dtype.kind == "f":
            return [pa.array(accumulated(np.add, values, segments, seeds))]
        if overflows(segments, values, seeds):
            return None
        sums = np.cumsum(values)  # may wrap around, but the differences are correct
        begins = segments.starts[:-1]
        return [pa.array(sums + np.repeat(seeds - (sums[begins] - values[begins]), segments.sizes))]

    def _numbers(self, segments: Segments, saved: Sequence[pa.Array]) -> tuple[Numbers, Numbers]:
        """The rows' numbers in 64 bits, and each group's saved sum."""
        values = segments.values(self.of)
        values = values.astype(np.float64 if values.dtype.kind == "f" else np.int64, copy=False)
        return values, segments.seeds(saved[0], np.zeros(segments.count, values.dtype))


def overflows(segments: Segments, values: Numbers, seeds: Numbers) -> bool:
    """Whether the sum of a group's ints and its seed might exceed 64 bits."""
    return int(segments.sizes.max(initial=0)) * _largest(values) + _largest(seeds) >= 2**63


def _largest(values: Numbers) -> int:
    return max(abs(int(values.max())), abs(int(values.min()))) if len(values) else 0


@dataclass(frozen=True)
class AverageReduction(RowReduction):
    exact: bool  # whether sums are ints

    def add(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        sums = SumReduction(self.of).add(segments, saved[:1])
        return None if sums is None else [*sums, *CountReduction(None).update(segments, saved[1:])]

    def after_each(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        sums = SumReduction(self.of).after_each(segments, saved[:1])
        return None if sums is None else [*sums, *CountReduction(None).after_each(segments, saved[1:])]

    def result(self, leaves: Sequence[pa.Array]) -> pa.Array:
        sums, counts = leaves
        if self.exact and _largest(numbers(sums.drop_null())) > 2**53:
            pairs = zip(sums.to_pylist(), counts.to_pylist(), strict=True)
            return pa.array([None if s is None else s / n for s, n in pairs], pa.float64())
        return pc.divide(sums.cast(pa.float64()), counts.cast(pa.float64()))


@dataclass(frozen=True)
class StdDevReduction(RowReduction):
    """Welford's recurrence: one row of each group at a time, and a loop for each of the few largest groups."""

    def add(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        return self._leaves(segments, saved, running=False)

    def after_each(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        return self._leaves(segments, saved, running=True)

    def _leaves(self, segments: Segments, saved: Sequence[pa.Array], *, running: bool) -> Leaves:
        size, sizes, starts = segments.count, segments.sizes, segments.starts
        values = segments.values(self.of).astype(np.float64)
        counts = segments.seeds(saved[0], np.zeros(size, np.int64))
        means, squares = (segments.seeds(leaf, np.zeros(size)) for leaf in saved[1:])
        after = (np.empty_like(values), np.empty_like(values)) if running else None
        large = sizes > (np.partition(sizes, -_MIN_VECTORIZED)[-_MIN_VECTORIZED] if size >= _MIN_VECTORIZED else 0)
        with np.errstate(all="ignore"):
            for at, (alive, rows) in enumerate(layers(segments, ~large), 1):
                value = values[rows]
                off = value - means[alive]
                means[alive] += off / (counts[alive] + at)
                squares[alive] += off * (value - means[alive])
                if after is not None:
                    after[0][rows], after[1][rows] = means[alive], squares[alive]
        for group in np.flatnonzero(large).tolist():
            a, b = starts[group], starts[group + 1]
            found = _welford(values[a:b].tolist(), int(counts[group]), float(means[group]), float(squares[group]))
            means[group], squares[group] = found[0][-1], found[1][-1]
            if after is not None:
                after[0][a:b], after[1][a:b] = found
        if after is not None:
            return [*CountReduction(None).after_each(segments, saved), pa.array(after[0]), pa.array(after[1])]
        return [pa.array(counts + sizes), pa.array(means), pa.array(squares)]

    def result(self, leaves: Sequence[pa.Array]) -> pa.Array:
        return pc.sqrt(pc.divide(leaves[2], leaves[0].cast(pa.float64())))


def _welford(values: list[float], count: int, mean: float, square: float) -> tuple[list[float], list[float]]:
    """Means and sums of squares after each value."""
    means, squares = [], []
    for at, value in enumerate(values, count + 1):
        off = value - mean
        mean += off / at
        square += off * (value - mean)
        means.append(mean)
        squares.append(square)
    return means, squares


@dataclass(frozen=True)
class Extreme(RowReduction):
    """The least or greatest value. ``ufunc``: numpy's minimum or maximum."""

    ufunc: np.ufunc

    def ranked(self, segments: Segments, leaf: pa.Array) -> Ordered | None:
        return ordered(segments.picked(self.of), segments.saved(leaf), self.of.type)

    def best(self, segments: Segments, ranks: Ordered) -> Longs:
        """The extreme of each group."""
        found: Longs = self.ufunc.reduceat(ranks.new, segments.starts[:-1])
        found[segments.has_saved] = self.ufunc(found[segments.has_saved], ranks.saved)
        return found

    def best_so_far(self, segments: Segments, ranks: Ordered) -> Longs:
        """The extreme after each row."""
        seeds = ranks.new[segments.starts[:-1]]
        seeds[segments.has_saved] = ranks.saved
        return accumulated(self.ufunc, ranks.new, segments, seeds)

    def add(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        ranks = self.ranked(segments, saved[0])
        return None if ranks is None else [ranks.back(self.best(segments, ranks))]

    def after_each(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        ranks = self.ranked(segments, saved[0])
        return None if ranks is None else [ranks.back(self.best_so_far(segments, ranks))]


@dataclass(frozen=True)
class ExtremeBy(Extreme):
    """``value`` of the first element with the extreme. Leaves: the extreme, then the leaves of the value."""

    value: Source

    def add(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        ranks = self.ranked(segments, saved[0])
        if ranks is None:
            return None
        best, count = self.best(segments, ranks), len(ranks.new)
        at = np.where(ranks.new == np.repeat(best, segments.sizes), np.arange(count), count)
        first = np.minimum.reduceat(at, segments.starts[:-1])
        use = segments.has_saved.copy()
        use[use] = ranks.saved == best[use]
        return [ranks.back(best), *chosen(segments, self.value, np.minimum(first, count - 1), saved[1:], use)]

    def after_each(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        ranks = self.ranked(segments, saved[0])
        if ranks is None:
            return None
        indices, begins = np.arange(len(ranks.new)), np.repeat(segments.starts[:-1], segments.sizes)
        best = self.best_so_far(segments, ranks)
        better = ranks.new == best  # and better than the previous row:
        better[1:] &= (best[1:] != best[:-1]) | (begins[1:] == indices[1:])
        of_first = segments.starts[:-1][segments.has_saved]
        better[of_first] &= ranks.new[of_first] != ranks.saved
        at = np.maximum.accumulate(np.where(better, indices, -1))
        use = at < begins
        return [ranks.back(best), *chosen(segments, self.value, np.where(use, begins, at), saved[1:], use)]

    def result(self, leaves: Sequence[pa.Array]) -> pa.Array:
        return join_leaves(iter(leaves[1:]), self.value.type)


@dataclass(frozen=True)
class FirstOrLast(RowReduction):
    last: bool

    @property
    def witness(self) -> int:
        return witness(self.of.type)

    def add(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves:
        at = segments.starts[1:] - 1 if self.last else segments.starts[:-1]
        return chosen(segments, self.of, at, saved, segments.has_saved & (not self.last))

    def after_each(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves:
        if self.last:
            return split_leaves(segments.picked(self.of), self.of.type)
        at = np.repeat(segments.starts[:-1], segments.sizes)
        return chosen(segments, self.of, at, saved, np.repeat(segments.has_saved, segments.sizes))

    def result(self, leaves: Sequence[pa.Array]) -> pa.Array:
        return join_leaves(iter(leaves), self.of.type)


def chosen(segments: Segments, source: Source, at: Longs, saved: Sequence[pa.Array], use: Bools) -> Leaves:
    """The leaves of a source at these indices, one for each group or row; the saved leaves where ``use``."""
    found = split_leaves(segments.picked(source, at), source.type)
    saved_at = segments.saved_at if len(at) == segments.count else np.repeat(segments.saved_at, segments.sizes)
    return [merged(new, old, use, saved_at) for new, old in zip(found, saved, strict=True)]

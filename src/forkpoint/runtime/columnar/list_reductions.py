"""Aggregates whose accumulators are lists: Collect, CountDistinct, TopN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.runtime.columnar.leaves import Leaves, numbers
from forkpoint.runtime.columnar.ordering import Paired, ordered
from forkpoint.runtime.columnar.reductions import Running, ValueReduction
from forkpoint.runtime.columnar.segments import Segments, Source, ranges, run_starts
from forkpoint.runtime.exchange.batch import Longs, stable_order

_MAX_VALUES = np.iinfo(np.int32).max  # of one list array


def lists_of(values: pa.Array, lengths: Longs) -> pa.ListArray:
    """The values divided into consecutive lists of these lengths."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=pa.list_(values.type))


def lengths_of(lists: pa.Array) -> Longs:
    """The lengths of lists, 0 for null."""
    return np.asarray(numbers(pc.list_value_length(lists).fill_null(0))).astype(np.int64)


@dataclass(frozen=True)
class SavedLists:
    """The saved lists of segments: all values, and the number of values of each group."""

    values: pa.Array
    lengths: Longs

    @staticmethod
    def of(segments: Segments, leaf: pa.Array) -> SavedLists:
        lists = segments.saved(leaf)
        lengths = np.zeros(segments.count, np.int64)
        lengths[segments.has_saved] = lengths_of(lists)
        return SavedLists(lists.flatten(), lengths)

    def in_order(self, segments: Segments) -> Longs:
        """For each group, the indices of its saved values and of its rows in the array of all saved values and all rows."""
        begins = np.cumsum(self.lengths) - self.lengths
        starts = np.stack((begins, len(self.values) + segments.starts[:-1]), axis=1).ravel()
        return ranges(starts, np.stack((self.lengths, segments.sizes), axis=1).ravel())

    def paired(self, segments: Segments, source: Source, *, as_written: bool = False, descending: bool = False) -> Paired | None:
        """All saved values and then all rows, paired with their groups; see ``ordered`` and ``Ordered.paired``."""
        ranks = ordered(segments.picked(source), self.values, source.type, as_written=as_written)
        groups = np.repeat(np.arange(segments.count), self.lengths)
        return None if ranks is None else ranks.paired(segments.of_row, groups, descending=descending)


class ListReduction(ValueReduction):
    """An aggregate whose result is the accumulated list, which is empty without a value."""

    def result(self, leaves: Sequence[pa.Array]) -> pa.Array:
        lists = leaves[0]
        return lists_of(lists.flatten(), lengths_of(lists)) if lists.null_count else lists


@dataclass(frozen=True)
class CollectReduction(ListReduction):
    def add(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves:
        before = SavedLists.of(segments, saved[0])
        values = segments.picked(self.of)
        if len(before.values):
            values = pa.concat_arrays([before.values, values]).take(pa.array(before.in_order(segments)))
        return [lists_of(values, before.lengths + segments.sizes)]

    def running_values(self, segments: Segments, saved: Sequence[pa.Array]) -> Running | None:
        """The list after each row is a prefix of the list after the last row."""
        leaves = self.add(segments, saved)
        final = lengths_of(leaves[0])
        lengths = np.repeat(final - segments.starts[1:], segments.sizes) + np.arange(1, len(segments.rows) + 1)
        if lengths.sum() > _MAX_VALUES:
            return None
        indices = pa.array(ranges(np.repeat(np.cumsum(final) - final, segments.sizes), lengths))
        try:
            return Running(leaves, [lists_of(leaves[0].values.take(indices), lengths)])
        except pa.ArrowInvalid:  # strings beyond the limit of one array, 2 GiB
            return None


@dataclass(frozen=True)
class CountDistinctReduction(ValueReduction):
    """The accumulator is a set, with its values in saved order."""

    def add(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        pairs = SavedLists.of(segments, saved[0]).paired(segments, self.of, as_written=True)
        return None if pairs is None else [self._distinct(segments, pairs)]

    def running_values(self, segments: Segments, saved: Sequence[pa.Array]) -> Running | None:
        before = SavedLists.of(segments, saved[0])
        pairs = before.paired(segments, self.of, as_written=True)
        if pairs is None:
            return None
        order, numbers = stable_order(pairs.numbers)
        new = np.zeros(len(order), np.int64)
        new[order[run_starts(numbers)]] = 1
        seen = np.cumsum(new[len(before.values) :])
        begins = segments.starts[:-1]
        seen += np.repeat(before.lengths - (seen[begins] - new[len(before.values) + begins]), segments.sizes)
        return Running([self._distinct(segments, pairs)], [pa.array(seen)])

    def _distinct(self, segments: Segments, pairs: Paired) -> pa.Array:
        once = pairs.sorted().unique()
        return lists_of(once.values(once.numbers), np.bincount(once.groups, minlength=segments.count))

    def result(self, leaves: Sequence[pa.Array]) -> pa.Array:
        return pa.array(lengths_of(leaves[0]))


@dataclass(frozen=True)
class TopNReduction(ListReduction):
    n: int

    def add(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        before = SavedLists.of(segments, saved[0])
        pairs = before.paired(segments, self.of, descending=True)
        if pairs is None:
            return None
        pairs = pairs.sorted()
        lengths = before.lengths + segments.sizes
        kept = ranges(np.cumsum(lengths) - lengths, np.minimum(lengths, self.n))
        return [lists_of(pairs.values(pairs.numbers[kept]), np.minimum(lengths, self.n))]

    def running_values(self, segments: Segments, saved: Sequence[pa.Array]) -> Running | None:
        """A parallel insertion sort of all rows: first the greatest value so far, then the second greatest, and so on."""
        before = SavedLists.of(segments, saved[0])
        pairs = before.paired(segments, self.of)
        if pairs is None:
            return None
        order = before.in_order(segments)
        of_saved, sizes = order < len(before.values), before.lengths + segments.sizes
        begins = np.cumsum(sizes) - sizes
        lengths = np.minimum(np.arange(1, len(order) + 1) - np.repeat(begins, sizes), self.n)
        lengths[of_saved] = 0
        if lengths.sum() > _MAX_VALUES:
            return None
        offsets = np.cumsum(lengths) - lengths
        values, remaining = np.empty(int(lengths.sum()), np.int64), pairs.numbers[order]
        for depth in range(int(lengths.max())):
            best = np.maximum.accumulate(remaining)
            rows = np.flatnonzero(lengths > depth)
            values[offsets[rows] + depth] = best[rows]
            # The remaining values of earlier groups, and -1 for none, are less than any value of a group.
            remaining = np.minimum(np.append(-1, best[:-1]), remaining)
        found = lists_of(pairs.values(values), lengths[~of_saved])
        return Running([found.take(segments.last)], [found])

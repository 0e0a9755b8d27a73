"""The rows of a join, computed from the rows of its two sides; pure functions over columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.relational.changes import Longs, Owned
from forkpoint.relational.evaluation import column_named, true_rows
from forkpoint.relational.expressions import columns_of, read_by
from forkpoint.relational.plan import LEFT, PRESENT, RIGHT, Join

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Rows:
    """Rows of one side, with a column PRESENT. ``owners``: the index of each row's key. ``groups``: the same, but -1 if a part of
    the key is NULL. ``weights``: how often each row is there."""

    columns: pa.RecordBatch
    owners: Longs
    groups: Longs
    weights: Longs

    def take(self, rows: Longs) -> Rows:
        return Rows(self.columns.take(pa.array(rows)), self.owners[rows], self.groups[rows], self.weights[rows])

    def with_columns_of(self, other: Rows) -> Rows:
        """The rows with only the columns that the other rows have."""
        names = other.columns.schema.names
        columns = [column_named(name, self.columns) for name in names]
        return Rows(pa.RecordBatch.from_arrays(columns, names), self.owners, self.groups, self.weights)

    def followed_by(self, other: Rows) -> Rows:
        numbers = ((self.owners, other.owners), (self.groups, other.groups), (self.weights, other.weights))
        return Rows(pa.concat_batches([self.columns, other.columns]), *map(np.concatenate, numbers))


@dataclass(frozen=True)
class Joined:
    """Rows of a join: indices of left and right rows, -1 for none, and the weight of each."""

    left: Longs
    right: Longs
    weights: Longs


Pairs = tuple[Longs, Longs]


def joined(join: Join, before: Sequence[Rows], added: Sequence[Rows]) -> Owned:
    """What becomes of a join as rows are added to its sides: its columns, the weight of each row, and the owner of each.

    ``before``, ``added``: of the left and the right side. ``before`` has all rows with the keys of those that are added to the
    other side; if rows of the other side are also shown without a pair, also those with the keys of rows added to this side.
    """
    left, right = (one.followed_by(other) for one, other in zip(before, added, strict=True))
    new = [np.arange(len(rows.weights)) >= len(old.weights) for rows, old in zip((left, right), before, strict=True)]
    counts_pairs = join.condition is not None and join.kind != "inner"
    pairs = None
    if counts_pairs or join.kind not in ("semi", "anti"):
        pairs = where(join, left, right, _pairs(left, right, None if counts_pairs else new))
    parts = []
    if join.kind not in ("semi", "anti") and pairs is not None:
        rows = np.flatnonzero(new[0][pairs[0]] | new[1][pairs[1]])
        one, other = pairs[0][rows], pairs[1][rows]
        parts.append(Joined(one, other, left.weights[one] * right.weights[other]))
    counted = pairs if counts_pairs else None
    if join.pads(RIGHT) or join.kind in ("semi", "anti"):
        alone = _alone(join.kind, left, right, new, counted)
        parts.append(Joined(alone[0], np.full(len(alone[0]), -1), alone[1]))
    if join.pads(LEFT):
        alone = _alone(join.kind, right, left, new[::-1], None if counted is None else counted[::-1])
        parts.append(Joined(np.full(len(alone[0]), -1), alone[0], alone[1]))
    found = Joined(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("left", "right", "weights")))
    owners = np.where(found.left >= 0, _taken(left.owners, found.left), _taken(right.owners, found.right))
    return table_of(left, right, found.left, found.right), found.weights, owners


def _alone(kind: str, one: Rows, other: Rows, new: Sequence[Bools], pairs: Pairs | None) -> Pairs:
    """The rows of one side that are now shown, or no longer, because they have no pair (``semi``: one), and their weights."""
    then, now = _counts(one, other, new[1], pairs)
    shown, was_shown = (now > 0, then > 0) if kind == "semi" else (now == 0, then == 0)
    weights = one.weights * (shown.astype(np.int64) - (was_shown & ~new[0]))
    rows = np.flatnonzero(weights)
    return rows, weights[rows]


def _taken(numbers: Longs, at: Longs) -> Longs:
    return numbers[at] if len(numbers) else np.full(len(at), -1)


def _pairs(left: Rows, right: Rows, new: Sequence[Bools] | None) -> Pairs:
    """All pairs of rows of one key; with ``new``, those with at least one new row."""
    if new is None:
        return equal(left.groups, right.groups)
    return with_new(new, lambda one, other: equal(left.groups[one], right.groups[other]))


def with_new(new: Sequence[Bools], pairs: Callable[[Longs, Longs], Pairs]) -> Pairs:
    """The pairs with at least one new row. ``pairs``: those of some rows of both sides, as indices of these."""
    new_left, new_right = np.flatnonzero(new[0]), np.flatnonzero(new[1])
    old_left = np.flatnonzero(~new[0])
    one = pairs(new_left, np.arange(len(new[1])))
    other = pairs(old_left, new_right)
    return (
        np.concatenate([new_left[one[0]], old_left[other[0]]]),
        np.concatenate([one[1], new_right[other[1]]]),
    )


def between(left: Longs, right: Longs, times: tuple[Longs, Longs], lower: int, upper: int) -> Pairs:
    """The indices of all pairs of equal numbers that are not negative, whose times differ, left less right, by at least ``lower``
    and at most ``upper``."""
    of_left = np.flatnonzero(left >= 0)
    ordered = np.unique(times[1])
    codes = right * (len(ordered) + 1) + np.searchsorted(ordered, times[1])
    order = np.argsort(codes, kind="stable")
    base, at = left[of_left] * (len(ordered) + 1), times[0][of_left]
    codes = codes[order]
    first = np.searchsorted(codes, base + np.searchsorted(ordered, at - upper, "left"), "left")
    end = np.searchsorted(codes, base + np.searchsorted(ordered, at - lower, "right"), "left")
    return _ranges(of_left, order, first, np.maximum(end - first, 0))


def equal(left: Longs, right: Longs) -> Pairs:
    """The indices of all pairs of equal numbers that are not negative."""
    order = np.argsort(right, kind="stable")
    ordered, of_left = right[order], np.flatnonzero(left >= 0)
    first = np.searchsorted(ordered, left[of_left], "left")
    return _ranges(of_left, order, first, np.searchsorted(ordered, left[of_left], "right") - first)


def _ranges(of_left: Longs, order: Longs, first: Longs, counts: Longs) -> Pairs:
    """The pairs of each left row with the next ``counts`` right rows in their order."""
    total = int(counts.sum())
    within = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(of_left, counts), order[np.repeat(first, counts) + within]


def where(join: Join, left: Rows, right: Rows, pairs: Pairs) -> Pairs:
    """The pairs for which the join's condition is true."""
    condition = join.condition
    if condition is None or not len(pairs[0]):
        return pairs
    names = {*read_by([condition]), *(column.name for column in columns_of(condition))}
    one, other = (_only(rows, {each.removeprefix(side) for each in names}) for side, rows in ((LEFT, left), (RIGHT, right)))
    rows = true_rows(condition, table_of(one, other, *pairs))
    return pairs if rows is None else (pairs[0][rows], pairs[1][rows])


def _only(rows: Rows, names: set[str]) -> Rows:
    """The rows with the columns of these names, and whether they are present."""
    found = [name for name in rows.columns.schema.names if name in names or name == PRESENT]
    return Rows(rows.columns.select(found), rows.owners, rows.groups, rows.weights)


def _counts(one: Rows, other: Rows, new: Bools, pairs: Pairs | None) -> tuple[Longs, Longs]:
    """How many pairs each row of one side had, and has now. ``new``: which rows of the other side are new. ``pairs``: of both
    sides; None if all rows of a key are pairs."""
    found = []
    for weights in (np.where(new, 0, other.weights), other.weights):
        if pairs is not None:
            count = np.zeros(len(one.weights), np.int64)
            np.add.at(count, pairs[0], weights[pairs[1]])
        else:
            size = 2 + max(int(one.groups.max(initial=-1)), int(other.groups.max(initial=-1)))
            by_group = np.zeros(size, np.int64)
            np.add.at(by_group, other.groups[other.groups >= 0], weights[other.groups >= 0])
            count = by_group[one.groups]  # the last entry, for NULL, stays 0
        found.append(count)
    return found[0], found[1]


def table_of(left: Rows, right: Rows, of_left: Longs, of_right: Longs) -> pa.RecordBatch:
    """The columns of pairs that the join reads, by name; NULL where a side has no row."""
    columns = {}
    for side, rows, at in ((LEFT, left, of_left), (RIGHT, right, of_right)):
        indices = pa.array(at, mask=at < 0)
        for name, column in zip(rows.columns.schema.names, rows.columns.columns, strict=True):
            columns[side + name] = column.take(indices)
    return pa.RecordBatch.from_pydict(columns)

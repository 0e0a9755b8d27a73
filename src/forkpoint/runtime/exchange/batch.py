"""Batches of elements with event time and order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.types import TypeInformation
from forkpoint.types.copying import element_type

Longs = npt.NDArray[np.int64]
Indices = npt.NDArray[Any]
Rows = Indices | slice
Coordinates = tuple[Longs | int, Longs | int, Longs, Longs | None]
"""Positions, splits, sequence and timestamps."""

_PER_SECOND = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}
BLOCK_ROWS = 65_536
"""The maximum number of elements of one write to a sink."""

OBJECT_ROWS = 8_192
"""The number of elements that are Python objects at a time, which fit into the processor's cache."""

NO_TIMESTAMP_MS = -(2**63)
_COORDINATES = ("positions", "splits", "sequence", "_timestamps")
EMPTY_LONGS: Longs = np.empty(0, dtype=np.int64)


class Batch:
    """A run of elements as columns (``table``), as Python objects (``values``), or both.

    Elements are ordered by (``positions``, ``splits``, ``sequence``): position in event time, split, position within the
    split; the first two are a single int if all elements share it. Objects are created from columns on first access, and so
    are timestamps (int64 ms, None for a stream without) if they are a column (``time_column``). ``pending`` checks objects
    before their first use, and is None afterwards.
    """

    __slots__ = (
        "_timestamps",
        "_values",
        "keys",
        "ordered",
        "pending",
        "positions",
        "sequence",
        "size",
        "splits",
        "table",
        "time_column",
        "type",
    )

    def __init__(
        self,
        size: int,
        positions: Longs | int,
        splits: Longs | int,
        sequence: Longs,
        *,
        values: list[Any] | None = None,
        table: pa.RecordBatch | None = None,
        type: TypeInformation | None = None,
        timestamps: Longs | None = None,
        time_column: str | None = None,
        keys: list[Any] | None = None,
        ordered: bool = True,
    ) -> None:
        self.size = size
        self.positions = positions
        self.splits = splits
        self.sequence = sequence
        self._values = values
        self.table = table
        self.type = type
        self._timestamps = timestamps
        self.time_column = time_column
        self.keys = keys
        self.ordered = ordered
        self.pending: Callable[[list[Any]], list[Any]] | None = None

    @property
    def values(self) -> list[Any]:
        if self.pending is not None and self._values is not None:
            self._values, self.pending = self.pending(self._values), None
        if self._values is None:
            assert self.table is not None
            assert self.type is not None
            self._values = self.type.from_columns(self.table.columns)
        return self._values

    @property
    def unseen_values(self) -> list[Any]:
        """The objects before ``pending``, for callers that check them as strictly and do not pass them on."""
        return self.values if self._values is None else self._values

    @property
    def has_values(self) -> bool:
        return self._values is not None

    def isolated(self) -> Batch:
        """The same elements for another consumer: changes to an element are invisible to the other consumer."""
        if self.type is not None and self.type.immutable:
            return self
        if self.table is not None:
            return self.slice(0, self.size).without_seen_values()
        values = element_type(self.type).accept_all(self.values)
        if values is self._values:
            return self
        copy = self.slice(0, self.size)
        copy._values = values
        return copy

    def without_seen_values(self) -> Batch:
        """This batch of columns, without objects that user code may have changed."""
        if self.type is None or not self.type.immutable:
            self._values = None
        return self

    @property
    def timestamps(self) -> Longs | None:
        if self._timestamps is None and self.time_column is not None and self.table is not None:
            self._timestamps = column_ms(self.table.column(self.time_column))
        return self._timestamps

    @property
    def stamps(self) -> Longs:
        """The timestamps in int64 ms, NO_TIMESTAMP_MS for elements without one."""
        return np.full(self.size, NO_TIMESTAMP_MS) if self.timestamps is None else self.timestamps

    def stamp(self, timestamps: Longs | None, time_column: str | None) -> None:
        """Set the timestamps. ``time_column``: the name of the column that holds them, if any."""
        self._timestamps = timestamps
        self.time_column = time_column

    def with_values(self, values: list[Any], type: TypeInformation | None) -> Batch:
        """One new element for each element, with the same order and timestamps."""
        return Batch(
            self.size,
            self.positions,
            self.splits,
            self.sequence,
            values=values,
            type=type,
            timestamps=self.timestamps,
            ordered=self.ordered,
        )

    def with_columns(self, columns: list[pa.Array], type: TypeInformation) -> Batch:
        """One new element for each element, as columns of the type."""
        table = pa.RecordBatch.from_arrays(columns, schema=type.arrow_schema)
        return Batch(
            self.size,
            self.positions,
            self.splits,
            self.sequence,
            table=table,
            type=type,
            timestamps=self.timestamps,
            ordered=self.ordered,
        )

    def coordinates(self, order: Indices) -> Coordinates:
        """Positions, splits, sequence and timestamps of the elements in another order."""
        timestamps = self.timestamps
        return (
            pick(self.positions, order),
            pick(self.splits, order),
            self.sequence[order],
            None if timestamps is None else timestamps[order],
        )

    def expand(self, values: list[Any], counts: Sequence[int] | Longs, type: TypeInformation | None) -> Batch:
        """The outputs of this batch's elements, ``counts[i]`` from the i-th element."""
        if len(values) == self.size and (np.asarray(counts) == 1).all():
            return self.with_values(values, type)
        return Batch(
            len(values),
            repeat(self.positions, counts),
            repeat(self.splits, counts),
            np.repeat(self.sequence, counts),
            values=values,
            type=type,
            timestamps=None if self.timestamps is None else np.repeat(self.timestamps, counts),
            ordered=self.ordered,
        )

    def take(self, indices: Indices) -> Batch:
        picked = indices.tolist() if self._values is not None or self.keys is not None else []
        table = None if self.table is None else self.table.take(pa.array(indices))
        derived = self.time_column is not None and table is not None
        stamps = None if derived else self._timestamps
        return self._part(indices, len(indices), table, stamps, lambda objects: list(map(objects.__getitem__, picked)))

    def objects(self, indices: Indices) -> list[Any]:
        """The elements at these indices as Python objects, which the batch does not keep."""
        if self._values is not None:
            return list(map(self.values.__getitem__, indices.tolist()))
        assert self.table is not None
        assert self.type is not None
        return self.type.from_columns(self.table.take(pa.array(indices)).columns)

    def element(self, index: int) -> Any:
        """One element, for messages."""
        return self.objects(np.array([index]))[0]

    def slice(self, start: int, stop: int) -> Batch:
        table = None if self.table is None else self.table.slice(start, stop - start)
        rows = slice(start, stop)
        return self._part(rows, stop - start, table, self._timestamps, lambda objects: objects[rows])

    def _part(
        self,
        rows: Rows,
        size: int,
        table: pa.RecordBatch | None,
        timestamps: Longs | None,
        objects_of: Callable[[list[Any]], list[Any]],
    ) -> Batch:
        part = Batch(
            size,
            pick(self.positions, rows),
            pick(self.splits, rows),
            self.sequence[rows],
            values=None if self._values is None else objects_of(self._values),
            table=table,
            type=self.type,
            timestamps=None if timestamps is None else timestamps[rows],
            time_column=self.time_column,
            keys=None if self.keys is None else objects_of(self.keys),
            ordered=self.ordered,
        )
        part.pending = self.pending
        return part

    def in_order(self) -> Batch:
        """The same elements sorted; free if they are already in order."""
        if self.ordered:
            return self
        order = self._sort_order()
        batch = self if order is None else self.take(order)
        batch.ordered = True
        return batch

    def _sort_order(self) -> Longs | None:
        return sort_order(self)

    def blocks(self, rows: int = BLOCK_ROWS) -> Iterator[Batch]:
        for start in range(0, self.size, rows):
            yield self.slice(start, min(self.size, start + rows))


class DerivedBatch(Batch):
    """Unordered outputs of an operator, whose coordinates are computed on first access. ``ranks``: makes numbers from 0 by which
    they are in order, which takes less time to sort by; None if these are unknown."""

    __slots__ = ("_make_coordinates", "_ranks")

    def __init__(
        self,
        size: int,
        make_coordinates: Callable[[], Coordinates],
        *,
        values: list[Any] | None = None,
        table: pa.RecordBatch | None = None,
        type: TypeInformation | None = None,
        ranks: Callable[[], Longs] | None = None,
    ) -> None:
        super().__init__(size, 0, 0, EMPTY_LONGS, values=values, table=table, type=type, ordered=False)
        self._make_coordinates, self._ranks = make_coordinates, ranks
        del self.positions, self.splits, self.sequence, self._timestamps  # set by __getattr__

    @staticmethod
    def of(
        inputs: Batch,
        rows: Longs,
        *,
        values: list[Any] | None = None,
        table: pa.RecordBatch | None = None,
        type: TypeInformation | None = None,
    ) -> DerivedBatch:
        """Outputs of these rows of a batch, one for each."""
        ranks = (lambda: rows) if inputs.ordered else None
        return DerivedBatch(len(rows), lambda: inputs.coordinates(rows), values=values, table=table, type=type, ranks=ranks)

    def _sort_order(self) -> Longs | None:
        try:
            object.__getattribute__(self, "positions")
        except AttributeError:  # no clock has assigned others
            if self._ranks is not None:
                return order_by_rank(self._ranks())
        return sort_order(self)

    def __getattr__(self, name: str) -> Any:
        # Called only for slots without a value.
        if name not in _COORDINATES:
            raise AttributeError(name)
        for slot, value in zip(_COORDINATES, self._make_coordinates(), strict=True):
            try:
                object.__getattribute__(self, slot)
            except AttributeError:  # not set by a clock, which assigns timestamps and positions
                setattr(self, slot, value)
        return getattr(self, name)


def for_each(batch: Batch, consumers: int) -> list[Batch]:
    """The batch for each of its consumers, which do not see each other's changes to elements."""
    return [batch.isolated() for _ in range(consumers - 1)] + [batch] * (consumers > 0)


def interleaved(start: int, size: int, sides: Sequence[Longs]) -> tuple[Longs, list[Longs]]:
    """Sequence numbers from ``start`` for ``size`` elements and for the side outputs, each of which precedes an element."""
    numbers = np.arange(start, start + size)
    if not sides:
        return numbers, []
    before = np.concatenate(sides)
    order = np.argsort(before, kind="stable")
    numbers += np.searchsorted(before[order], np.arange(size), side="right")
    of_sides = before + start
    of_sides[order] += np.arange(len(order))
    return numbers, np.split(of_sides, np.cumsum([len(side) for side in sides])[:-1])


def stable_order(numbers: Longs) -> tuple[Longs, Longs]:
    """The stable sort order of integers, and the sorted integers.

    Number and index are packed into one integer if they fit: numpy sorts integers many times faster than its stable argsort.
    """
    if not len(numbers):
        return EMPTY_LONGS, numbers
    low, bits = int(numbers.min()), len(numbers).bit_length()
    if (int(numbers.max()) - low).bit_length() + bits > 62:
        order = np.argsort(numbers, kind="stable")
        return order, numbers[order]
    packed = numbers.astype(np.int64) - low
    packed <<= bits
    packed |= np.arange(len(numbers))
    packed.sort()
    order = packed & ((1 << bits) - 1)
    packed >>= bits
    packed += low
    return order, packed


def order_by_rank(ranks: Longs) -> Longs | None:
    """The stable sort order of ranks from 0, which are often a permutation; None if they are in order."""
    if (ranks[1:] >= ranks[:-1]).all():
        return None
    size = len(ranks)
    if int(ranks.max()) == size - 1:
        order = np.full(size, -1)
        order[ranks] = np.arange(size)
        if int(order.min()) == 0:
            return order
    return stable_order(ranks)[0]


def pick(numbers: Longs | int, rows: Rows) -> Longs | int:
    return numbers if isinstance(numbers, int) else numbers[rows]


def repeat(numbers: Longs | int, counts: Sequence[int] | Longs) -> Longs | int:
    return numbers if isinstance(numbers, int) else np.repeat(numbers, counts)


def spread(numbers: Longs | int, size: int) -> Longs:
    """One number for each element."""
    return np.full(size, numbers, dtype=np.int64) if isinstance(numbers, int) else numbers


def column_ms(column: pa.Array) -> Longs:
    """A column of integers (ms) or Arrow timestamps as int64 ms, rounded down."""
    if not pa.types.is_timestamp(column.type):
        return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)
    numbers = np.asarray(column.cast(pa.int64()).to_numpy(zero_copy_only=False), dtype=np.int64)
    factor = _PER_SECOND[column.type.unit]
    return numbers // (factor // 1000) if factor >= 1000 else numbers * 1000


def empty_batch(type: TypeInformation | None) -> Batch:
    return Batch(0, 0, 0, EMPTY_LONGS, values=[], type=type)


def sort_order(batch: Batch) -> Longs | None:
    """The stable sort order; None if the batch is in order."""
    if batch.size < 2:
        return None
    positions, splits, sequence = batch.positions, batch.splits, batch.sequence
    if isinstance(splits, int) and isinstance(positions, int):
        return None if (sequence[1:] >= sequence[:-1]).all() else np.argsort(sequence, kind="stable")
    if isinstance(splits, int):
        # A split's watermark never decreases, so the sequence alone orders its elements.
        if (sequence[1:] >= sequence[:-1]).all() and (positions[1:] >= positions[:-1]).all():  # type: ignore[index]
            return None
        return np.lexsort((sequence, spread(positions, batch.size)))
    positions = spread(positions, batch.size)
    ahead = positions[1:] > positions[:-1]
    same = positions[1:] == positions[:-1]
    later = (splits[1:] > splits[:-1]) | ((splits[1:] == splits[:-1]) & (sequence[1:] >= sequence[:-1]))
    if (ahead | (same & later)).all():
        return None
    return np.lexsort((sequence, splits, positions))


def concat(batches: Sequence[Batch], type: TypeInformation | None) -> Batch:
    """One unordered batch of all elements, as columns if all batches are columns."""
    if not batches:
        return empty_batch(type)
    if len(batches) == 1:
        only = batches[0]
        only.ordered = False
        return only
    columns = all(b.table is not None for b in batches)
    derived = columns and all(b.time_column is not None for b in batches)
    timed = not derived and any(b.timestamps is not None for b in batches)
    return Batch(
        sum(b.size for b in batches),
        joined([b.positions for b in batches], batches),
        joined([b.splits for b in batches], batches),
        np.concatenate([b.sequence for b in batches]),
        values=None if columns else [v for b in batches for v in b.values],
        table=pa.concat_batches([b.table for b in batches]) if columns else None,
        type=batches[0].type,
        timestamps=np.concatenate([b.stamps for b in batches]) if timed else None,
        time_column=batches[0].time_column if derived else None,
        keys=[k for b in batches for k in b.keys or ()] if all(b.keys is not None for b in batches) else None,
        ordered=False,
    )


def successive(batches: Sequence[Batch]) -> Sequence[Batch]:
    """The batches in an order in which each begins after the one before it has ended, if there is one, as with runs of a
    source's splits without watermarks; then nothing has to be sorted. Otherwise unchanged."""
    if not all(b.ordered and b.size for b in batches):
        return batches
    spans = sorted((_coordinates_at(b, 0), _coordinates_at(b, -1), i) for i, b in enumerate(batches))
    follow = all(before[1] < after[0] for before, after in pairwise(spans))
    return [batches[i] for _, _, i in spans] if follow else batches


def _coordinates_at(batch: Batch, row: int) -> tuple[int, int, int]:
    """What `sort_order` sorts by."""
    at = batch.positions, batch.splits
    position, split = (numbers if isinstance(numbers, int) else int(numbers[row]) for numbers in at)
    return position, split, int(batch.sequence[row])


def joined(parts: list[Longs | int], batches: Sequence[Batch]) -> Longs | int:
    """The positions or splits of several batches as one array, or one int if all are equal."""
    first = parts[0]
    if isinstance(first, int) and all(isinstance(p, int) and p == first for p in parts):
        return first
    return np.concatenate([spread(p, b.size) for p, b in zip(parts, batches, strict=True)])

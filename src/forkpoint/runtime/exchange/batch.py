"""Elements of one edge, with their time and place in the order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.types import TypeInformation
from forkpoint.types.copying import element_type

Longs = npt.NDArray[np.int64]
Indices = npt.NDArray[Any]
Places = tuple[Longs | int, Longs | int, Longs, Longs | None]
"""Positions, splits, sequence, timestamps."""

NO_TIMESTAMP_MS = -(2**63)
EMPTY_LONGS: Longs = np.empty(0, dtype=np.int64)


class Batch:
    """A run of elements as columns (``table``), as Python objects (``values``), or both.

    The order of elements is (``positions``, ``splits``, ``sequence``): place in event time, split, place within the split;
    the first two are one number where all elements share it. Objects are made from columns only when asked for, and so
    are timestamps (int64 ms, None where the stream has none) that are one of the columns (``time_column``). ``pending`` is what
    objects have to pass before anybody sees them; None where they have.
    """

    __slots__ = (
        "_timestamps", "_values", "keys", "ordered", "pending", "positions", "sequence", "size", "splits", "table",
        "time_column", "type",
    )  # fmt: skip

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
        """The objects, for who checks them as strictly as ``pending`` does, and shows them to nobody."""
        return self.values if self._values is None else self._values

    @property
    def has_values(self) -> bool:
        return self._values is not None

    def apart(self) -> Batch:
        """The same elements for another who sees them: what one changes in an element, the other doesn't see."""
        if self.type is not None and self.type.immutable:
            return self
        if self.table is not None:
            return self.slice(0, self.size).without_seen_values()
        values = element_type(self.type).accept_all(self.values)
        return self if values is self._values else self._with_own(values)

    def without_seen_values(self) -> Batch:
        """A batch with columns, whose objects are made anew where those that somebody has seen may have changed."""
        if self.type is None or not self.type.immutable:
            self._values = None
        return self

    def _with_own(self, values: list[Any]) -> Batch:
        twin = self.slice(0, self.size)
        twin._values = values
        return twin

    @property
    def timestamps(self) -> Longs | None:
        if self._timestamps is None and self.time_column is not None and self.table is not None:
            self._timestamps = column_ms(self.table.column(self.table.schema.get_field_index(self.time_column)))
        return self._timestamps

    def stamp(self, timestamps: Longs | None, time_column: str | None) -> None:
        """Set the timestamps; ``time_column`` names the column that they are, if they are one."""
        self._timestamps = timestamps
        self.time_column = time_column

    def with_values(self, values: list[Any], type: TypeInformation | None) -> Batch:
        """The same places and times, other elements, one for one."""
        return Batch(
            self.size, self.positions, self.splits, self.sequence,
            values=values, type=type, timestamps=self.timestamps, ordered=self.ordered,
        )  # fmt: skip

    def with_table(self, table: pa.RecordBatch, order: Indices, type: TypeInformation) -> Batch:
        """Columns that came out of this batch's elements in another order, one for one."""
        return DerivedBatch(self.size, lambda: self.places(order), table=table, type=type)

    def places(self, order: Indices) -> Places:
        """Positions, splits, sequence and timestamps of the elements in another order."""
        timestamps = self.timestamps
        return (
            pick(self.positions, order), pick(self.splits, order), self.sequence[order],
            None if timestamps is None else timestamps[order],
        )  # fmt: skip

    def expand(self, values: list[Any], counts: Sequence[int] | Longs, type: TypeInformation | None) -> Batch:
        """Elements that came out of this batch's, ``counts[i]`` of them out of the i-th."""
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
        values, keys = self._values, self.keys
        picked = indices.tolist() if values is not None or keys is not None else []
        derived = self.time_column is not None and self.table is not None
        taken = Batch(
            len(indices), pick(self.positions, indices), pick(self.splits, indices), self.sequence[indices],
            values=None if values is None else list(map(values.__getitem__, picked)),
            table=None if self.table is None else self.table.take(pa.array(indices)),
            type=self.type,
            timestamps=None if derived or self._timestamps is None else self._timestamps[indices],
            time_column=self.time_column,
            keys=None if keys is None else list(map(keys.__getitem__, picked)),
            ordered=self.ordered,
        )  # fmt: skip
        taken.pending = self.pending
        return taken

    def objects(self, indices: Indices) -> list[Any]:
        """The elements at these places as Python objects; nothing is kept."""
        if self._values is not None:
            return list(map(self.values.__getitem__, indices.tolist()))
        assert self.table is not None
        assert self.type is not None
        return self.type.from_columns(self.table.take(pa.array(indices)).columns)

    def slice(self, start: int, stop: int) -> Batch:
        part = Batch(
            stop - start,
            self.positions if isinstance(self.positions, int) else self.positions[start:stop],
            self.splits if isinstance(self.splits, int) else self.splits[start:stop],
            self.sequence[start:stop],
            values=None if self._values is None else self._values[start:stop],
            table=None if self.table is None else self.table.slice(start, stop - start),
            type=self.type,
            timestamps=None if self._timestamps is None else self._timestamps[start:stop],
            time_column=self.time_column,
            keys=None if self.keys is None else self.keys[start:stop],
            ordered=self.ordered,
        )
        part.pending = self.pending
        return part

    def in_order(self) -> Batch:
        """The same elements sorted by their place; costs nothing where they are sorted already."""
        if self.ordered:
            return self
        order = sort_order(self)
        batch = self if order is None else self.take(order)
        batch.ordered = True
        return batch

    def blocks(self, rows: int) -> Iterator[Batch]:
        for start in range(0, self.size, rows):
            yield self.slice(start, min(self.size, start + rows))


class DerivedBatch(Batch):
    """Elements that came out of others, not in order; their places are worked out only if somebody asks for them."""

    __slots__ = ("_make_places",)

    def __init__(
        self,
        size: int,
        make_places: Callable[[], Places],
        *,
        values: list[Any] | None = None,
        table: pa.RecordBatch | None = None,
        type: TypeInformation | None = None,
    ) -> None:
        self.size = size
        self._make_places = make_places
        self._values = values
        self.table = table
        self.type = type
        self.time_column = None
        self.keys = None
        self.ordered = False
        self.pending = None

    def __getattr__(self, name: str) -> Any:
        # Called for slots that have no value yet.
        if name not in ("positions", "splits", "sequence", "_timestamps"):
            raise AttributeError(name)
        self.positions, self.splits, self.sequence, timestamps = self._make_places()
        try:
            object.__getattribute__(self, "_timestamps")
        except AttributeError:  # nobody has set others
            self._timestamps = timestamps
        return getattr(self, name)


def for_each(batch: Batch, consumers: int) -> list[Batch]:
    """The batch for each of several who read it and don't see what the others change in it."""
    return [batch.apart() for _ in range(consumers - 1)] + [batch] * (consumers > 0)


def stable_order(numbers: Longs) -> tuple[Longs, Longs]:
    """The order that sorts integers, equal ones as they come, and the sorted integers.

    Number and index are packed into one integer where they fit: numpy sorts those many times faster than it makes a
    stable order of the numbers themselves.
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


def pick(numbers: Longs | int, indices: Indices) -> Longs | int:
    return numbers if isinstance(numbers, int) else numbers[indices]


def repeat(numbers: Longs | int, counts: Sequence[int] | Longs) -> Longs | int:
    return numbers if isinstance(numbers, int) else np.repeat(numbers, counts)


def spread(numbers: Longs | int, size: int) -> Longs:
    """One number an element."""
    return np.full(size, numbers, dtype=np.int64) if isinstance(numbers, int) else numbers


def column_ms(column: pa.Array) -> Longs:
    """A column of integers (ms) or of Arrow timestamps as int64 ms."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)


def empty_batch(type: TypeInformation | None) -> Batch:
    return Batch(0, 0, 0, EMPTY_LONGS, values=[], type=type)


def sort_order(batch: Batch) -> Longs | None:
    """The stable order by place, or None where the batch is in order already."""
    if batch.size < 2:
        return None
    positions, splits, sequence = batch.positions, batch.splits, batch.sequence
    if isinstance(splits, int) and isinstance(positions, int):
        return None if (sequence[1:] >= sequence[:-1]).all() else np.argsort(sequence, kind="stable")
    if isinstance(splits, int):
        # Within one split the watermark never goes back, so the sequence alone tells the order of its elements.
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
    """One batch of all elements, as columns if all are columns; not yet in order."""
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
        _join([b.positions for b in batches], batches),
        _join([b.splits for b in batches], batches),
        np.concatenate([b.sequence for b in batches]),
        values=None if columns else [v for b in batches for v in b.values],
        table=pa.concat_batches([b.table for b in batches]) if columns else None,
        type=batches[0].type,
        timestamps=np.concatenate([_timestamps(b) for b in batches]) if timed else None,
        time_column=batches[0].time_column if derived else None,
        keys=[k for b in batches for k in b.keys or ()] if all(b.keys is not None for b in batches) else None,
        ordered=False,
    )


def _join(parts: list[Longs | int], batches: Sequence[Batch]) -> Longs | int:
    first = parts[0]
    if isinstance(first, int) and all(isinstance(p, int) and p == first for p in parts):
        return first
    return np.concatenate([spread(p, b.size) for p, b in zip(parts, batches, strict=True)])


def _timestamps(batch: Batch) -> Longs:
    """Timestamps in int ms; elements without one count as having the smallest."""
    return np.full(batch.size, NO_TIMESTAMP_MS) if batch.timestamps is None else batch.timestamps

"""Elements of one edge, with their time and place in the order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.types import TypeInformation

Longs = npt.NDArray[np.int64]


class Batch:
    """A run of elements as columns (``table``), as Python objects (``values``), or both.

    ``timestamps`` (int64 ms) is None where the stream has none. The order of elements is (``positions``, ``splits``,
    ``sequence``): place in event time, split, place within the split. Objects are made from columns only when asked for.
    """

    __slots__ = ("_values", "keys", "ordered", "positions", "sequence", "size", "splits", "table", "timestamps", "type")

    def __init__(
        self,
        size: int,
        positions: Longs,
        splits: Longs,
        sequence: Longs,
        *,
        values: list[Any] | None = None,
        table: pa.RecordBatch | None = None,
        type: TypeInformation | None = None,
        timestamps: Longs | None = None,
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
        self.timestamps = timestamps
        self.keys = keys
        self.ordered = ordered

    @property
    def values(self) -> list[Any]:
        if self._values is None:
            assert self.table is not None
            assert self.type is not None
            self._values = self.type.from_columns(self.table.columns)
        return self._values

    @property
    def has_values(self) -> bool:
        return self._values is not None

    def with_values(self, values: list[Any], type: TypeInformation | None) -> Batch:
        """The same places and times, other elements, one for one."""
        return Batch(
            self.size, self.positions, self.splits, self.sequence,
            values=values, type=type, timestamps=self.timestamps, ordered=self.ordered,
        )  # fmt: skip

    def expand(self, values: list[Any], counts: Sequence[int] | Longs, type: TypeInformation | None) -> Batch:
        """Elements that came out of this batch's, ``counts[i]`` of them out of the i-th."""
        return Batch(
            len(values),
            np.repeat(self.positions, counts),
            np.repeat(self.splits, counts),
            np.repeat(self.sequence, counts),
            values=values,
            type=type,
            timestamps=None if self.timestamps is None else np.repeat(self.timestamps, counts),
            ordered=self.ordered,
        )

    def take(self, indices: npt.NDArray[Any]) -> Batch:
        values = self._values
        return Batch(
            len(indices), self.positions[indices], self.splits[indices], self.sequence[indices],
            values=None if values is None else list(map(values.__getitem__, indices.tolist())),
            table=None if self.table is None else self.table.take(pa.array(indices)),
            type=self.type,
            timestamps=None if self.timestamps is None else self.timestamps[indices],
            keys=None if self.keys is None else list(map(self.keys.__getitem__, indices.tolist())),
            ordered=self.ordered,
        )  # fmt: skip

    def objects(self, indices: npt.NDArray[Any]) -> list[Any]:
        """The elements at these places as Python objects; nothing is kept."""
        if self._values is not None:
            return list(map(self._values.__getitem__, indices.tolist()))
        assert self.table is not None
        assert self.type is not None
        return self.type.from_columns(self.table.take(pa.array(indices)).columns)

    def slice(self, start: int, stop: int) -> Batch:
        return Batch(
            stop - start, self.positions[start:stop], self.splits[start:stop], self.sequence[start:stop],
            values=None if self._values is None else self._values[start:stop],
            table=None if self.table is None else self.table.slice(start, stop - start),
            type=self.type,
            timestamps=None if self.timestamps is None else self.timestamps[start:stop],
            keys=None if self.keys is None else self.keys[start:stop],
            ordered=self.ordered,
        )  # fmt: skip

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


NO_TIMESTAMP_MS = -(2**63)
EMPTY_LONGS: Longs = np.empty(0, dtype=np.int64)


def empty_batch(type: TypeInformation | None) -> Batch:
    return Batch(0, EMPTY_LONGS, EMPTY_LONGS, EMPTY_LONGS, values=[], type=type)


def sort_order(batch: Batch) -> npt.NDArray[np.int64] | None:
    """The stable order by place, or None where the batch is in order already."""
    positions, splits, sequence = batch.positions, batch.splits, batch.sequence
    if batch.size < 2:
        return None
    ahead = positions[1:] > positions[:-1]
    if not ahead.all():
        same = positions[1:] == positions[:-1]
        later = (splits[1:] > splits[:-1]) | ((splits[1:] == splits[:-1]) & (sequence[1:] >= sequence[:-1]))
        if (ahead | (same & later)).all():
            return None
        return np.lexsort((sequence, splits, positions))
    return None


def timestamps_of(batch: Batch) -> Longs:
    """Timestamps in int ms; elements without one count as having the smallest."""
    return np.full(batch.size, NO_TIMESTAMP_MS) if batch.timestamps is None else batch.timestamps


def concat(batches: Sequence[Batch], type: TypeInformation | None) -> Batch:
    """One batch of all elements, as columns if all are columns; not yet in order."""
    if not batches:
        return empty_batch(type)
    if len(batches) == 1:
        only = batches[0]
        only.ordered = False
        return only
    columns = all(b.table is not None for b in batches)
    keys = [k for b in batches for k in (b.keys or ())] if batches[0].keys is not None else None
    timed = any(b.timestamps is not None for b in batches)
    return Batch(
        sum(b.size for b in batches),
        np.concatenate([b.positions for b in batches]),
        np.concatenate([b.splits for b in batches]),
        np.concatenate([b.sequence for b in batches]),
        values=None if columns else [v for b in batches for v in b.values],
        table=pa.concat_batches([b.table for b in batches]) if columns else None,
        type=batches[0].type,
        timestamps=np.concatenate([timestamps_of(b) for b in batches]) if timed else None,
        keys=keys,
        ordered=False,
    )

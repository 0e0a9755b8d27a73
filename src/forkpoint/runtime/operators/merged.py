"""Two inputs as one batch, in the one order of places."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.graph.transformations import KeyBy
from forkpoint.runtime.exchange.batch import (
    NO_TIMESTAMP_MS,
    Batch,
    Indices,
    Longs,
    pick,
    sort_order,
    spread,
    stable_order,
)
from forkpoint.runtime.exchange.grouping import key_column, python_keys
from forkpoint.types import TypeInformation

KEY = "key"
Methods = tuple[Callable[..., Any], Callable[..., Any]]


class Merged(Batch):
    """The elements of two inputs, in order.

    Its objects are calls: ``call(context)`` gives the element to the method that is for its input. Rows are numbered
    through: those of the second input behind those of the first.
    """

    __slots__ = ("_inputs", "_methods", "rows")

    def __init__(self, first: Batch, second: Batch, methods: Methods) -> None:
        self._inputs = inputs = (first.in_order(), second.in_order())
        self._methods = methods
        self.rows = rows = _order(*inputs)
        super().__init__(
            len(rows),
            pick(_numbers(inputs, inputs[0].positions, inputs[1].positions), rows),
            pick(_numbers(inputs, inputs[0].splits, inputs[1].splits), rows),
            np.concatenate([inputs[0].sequence, inputs[1].sequence])[rows],
            timestamps=_timestamps(inputs, rows),
        )

    @property
    def of_second(self) -> npt.NDArray[np.bool_]:
        """Which elements are the second input's."""
        return np.asarray(self.rows >= self._inputs[0].size)

    def objects(self, indices: Indices) -> list[Any]:
        rows = self.rows[indices]
        limit = self._inputs[0].size
        second = rows >= limit
        calls: list[Any] = []
        for side, mine in enumerate((rows[~second], rows[second] - limit)):
            if len(mine):
                calls.extend(map(partial, repeat(self._methods[side]), self._inputs[side].objects(mine)))
        places = np.empty(len(rows), dtype=np.int64)
        places[np.argsort(second, kind="stable")] = np.arange(len(rows))
        return list(map(calls.__getitem__, places.tolist()))

    def element(self, index: int) -> Any:
        """The element itself, for messages; None behind the last one."""
        return self.objects(np.array([index]))[0].args[0] if index < self.size else None

    def keyed(self, first: KeyBy, second: KeyBy) -> KeyBy:
        """Put the keys of both inputs on the elements, as a column if they are columns. Returns how to find them there."""
        assert first.key_type is not None
        pairs = [(batch, key) for batch, key in zip(self._inputs, (first, second), strict=True) if batch.size]
        columns = [c for batch, key in pairs if (c := key_column(batch, key)) is not None]
        if pairs and len(columns) == len(pairs) and columns[0].type == columns[-1].type:
            column = pa.concat_arrays(columns).take(pa.array(self.rows))
            self.table = pa.RecordBatch.from_arrays([column], names=[KEY])
            return KeyBy(_taken, first.key_type, (KEY,))
        keys = _alike([k for batch, key in pairs for k in python_keys(batch, key)], first.key_type)
        self.keys = list(map(keys.__getitem__, self.rows.tolist()))
        return KeyBy(_taken, first.key_type)


def _order(first: Batch, second: Batch) -> Longs:
    """The order that merges two batches, each in order, as row numbers."""
    size = first.size + second.size
    if not (first.size and second.size):
        return np.arange(size)
    positions = _numbers((first, second), first.positions, second.positions)
    if isinstance(first.splits, int) and isinstance(second.splits, int) and first.splits != second.splits:
        # One split each, which is the usual case: where positions are equal, the split alone decides.
        positions = spread(positions, size)
        if first.splits < second.splits:
            return stable_order(positions)[0]
        turned = stable_order(np.roll(positions, second.size))[0]
        return (turned - second.size) % size
    splits = _numbers((first, second), first.splits, second.splits)
    places = Batch(size, positions, splits, np.concatenate([first.sequence, second.sequence]))
    order = sort_order(places)
    return np.arange(size) if order is None else order


def _numbers(inputs: tuple[Batch, Batch], first: Longs | int, second: Longs | int) -> Longs | int:
    if isinstance(first, int) and isinstance(second, int) and first == second:
        return first
    return np.concatenate([spread(first, inputs[0].size), spread(second, inputs[1].size)])


def _timestamps(inputs: tuple[Batch, Batch], rows: Longs) -> Longs | None:
    found = [batch.timestamps for batch in inputs if batch.size]
    if all(stamps is None for stamps in found):
        return None
    parts = [np.full(b.size, NO_TIMESTAMP_MS) if b.timestamps is None else b.timestamps for b in inputs]
    return np.asarray(np.concatenate(parts)[rows])


def _alike(keys: list[Any], key_type: TypeInformation) -> list[Any]:
    """The keys, those that are stored alike as equal objects: two inputs may have them as objects of two classes."""
    if len(set(map(type, keys))) < 2:
        return keys
    return [key_type.decode(key_type.encode(key)) for key in keys]


def _taken(element: Any) -> Any:
    raise AssertionError("the keys have been taken from the elements")

"""Functions of two inputs, which are merged in order. Each element goes to the method of its input.

Interval joins are functions of two keyed inputs that set their outputs' timestamps.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.functions import Function, KeyedCoProcessFunction
from forkpoint.graph.transformations import KeyBy
from forkpoint.runtime.exchange.batch import Batch, Indices, Longs, joined, sort_order, spread, stable_order
from forkpoint.runtime.exchange.grouping import Groups, group_by_key, key_column, python_keys
from forkpoint.runtime.operators.base import Epoch, Outputs, TaskInfo
from forkpoint.runtime.operators.instances import ManagedState, RunnableSpec
from forkpoint.runtime.operators.keyed_process import KeyedProcess, KeyedProcessSpec, TimestampedProcess
from forkpoint.runtime.operators.stateless import ElementContext, Process
from forkpoint.runtime.state.keyed_backend import KeyedBackend

KEY = "key"
Methods = tuple[Callable[..., Any], Callable[..., Any]]


class Merged(Batch):
    """The elements of two inputs, in order.

    Its objects are calls: ``call(context)`` passes the element to its input's method. ``rows`` numbers the rows of the first
    input, then the rows of the second.
    """

    __slots__ = ("_inputs", "_methods", "rows")

    def __init__(self, first: Batch, second: Batch, methods: Methods) -> None:
        self._inputs = inputs = (first.in_order(), second.in_order())
        self._methods = methods
        both = Batch(
            first.size + second.size,
            joined([batch.positions for batch in inputs], inputs),
            joined([batch.splits for batch in inputs], inputs),
            np.concatenate([batch.sequence for batch in inputs]),
            timestamps=_timestamps(inputs),
        )
        self.rows = rows = _order(*inputs, both)
        positions, splits, sequence, timestamps = both.coordinates(rows)
        super().__init__(both.size, positions, splits, sequence, timestamps=timestamps)

    @property
    def of_second(self) -> npt.NDArray[np.bool_]:
        """The mask of the second input's elements."""
        return np.asarray(self.rows >= self._inputs[0].size)

    @property
    def values(self) -> list[Any]:
        return self.objects(np.arange(self.size))

    def objects(self, indices: Indices) -> list[Any]:
        rows = self.rows[indices]
        limit = self._inputs[0].size
        second = rows >= limit
        calls: list[Any] = []
        for side, own in enumerate((rows[~second], rows[second] - limit)):
            if len(own):
                calls.extend(map(partial, repeat(self._methods[side]), self._inputs[side].objects(own)))
        order = np.empty(len(rows), dtype=np.int64)
        order[np.argsort(second, kind="stable")] = np.arange(len(rows))
        return list(map(calls.__getitem__, order.tolist()))

    def element(self, index: int) -> Any:
        return super().element(index).args[0]

    def keyed(self, first: KeyBy, second: KeyBy) -> KeyBy:
        """Store both inputs' keys in the batch, as a column if they are columns. Returns the KeyBy that reads them."""
        assert first.key_type is not None
        pairs = [(batch, key) for batch, key in zip(self._inputs, (first, second), strict=True) if batch.size]
        columns = [c for batch, key in pairs if (c := key_column(batch, key)) is not None]
        if pairs and len(columns) == len(pairs) and columns[0].type == columns[-1].type:
            column = pa.concat_arrays(columns).take(pa.array(self.rows))
            self.table = pa.RecordBatch.from_arrays([column], names=[KEY])
            return KeyBy(_taken, first.key_type, (KEY,))
        # The second input's keys may be of another class with the same encoding, such as a tuple and a NamedTuple.
        keys = first.key_type.accept_all([k for batch, key in pairs for k in python_keys(batch, key)])
        self.keys = list(map(keys.__getitem__, self.rows.tolist()))
        return KeyBy(_taken, first.key_type)


class KeyedCoProcess(KeyedProcess):
    """Runs one KeyedCoProcessFunction key by key, with the elements of both inputs and due timers in order."""

    def __init__(self, info: TaskInfo, backend: KeyedBackend, fn: KeyedCoProcessFunction) -> None:
        super().__init__(info, backend, fn)
        second = info.operator.key_of(1)
        assert second is not None
        self._second_key = second
        self._process = operator.call  # the elements are calls
        self._methods = (fn.process_element1, fn.process_element2)

    def _elements(self, inputs: list[Batch]) -> tuple[Batch, Groups]:
        merged = Merged(inputs[0], inputs[1], self._methods)
        return merged, group_by_key(merged, merged.keyed(self._key, self._second_key))


class KeyedCoProcessSpec(KeyedProcessSpec):
    """A KeyedCoProcessFunction on two keyed streams."""

    kind = "keyed_co_process"
    runs = KeyedCoProcess


class IntervalJoinOperator(TimestampedProcess, KeyedCoProcess):
    """Runs one IntervalJoin. An element's pairs have its order, and the later timestamp of the pair."""


class IntervalJoinSpec(KeyedCoProcessSpec):
    """An IntervalJoin of two keyed streams."""

    runs = IntervalJoinOperator


@dataclass(frozen=True)
class CoProcessSpec(RunnableSpec):
    """A CoProcessFunction on two streams without keys."""

    kind = "co_process"
    needs_exchange = True  # an epoch's elements of both inputs are merged in order

    fn: Any

    def instance(self, info: TaskInfo, state: ManagedState) -> CoProcess:
        return CoProcess(info, self.fn, (self.fn.process_element1, self.fn.process_element2))


class CoProcess(Process):
    """Runs one function of two inputs without keys. ``methods``: ``f(element, context)`` for each input's elements."""

    rich = Function

    def __init__(self, info: TaskInfo, fn: Function, methods: Methods, context: ElementContext | None = None) -> None:
        super().__init__(info, fn, operator.call, context)  # the elements are calls
        self._methods = methods

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        return super().run([Merged(inputs[0], inputs[1], self._methods)], epoch)


# -- merging


def _order(first: Batch, second: Batch, both: Batch) -> Longs:
    """The row numbers that merge two ordered batches. ``both``: the coordinates of the first and then of the second."""
    if first.size and second.size:
        if isinstance(first.splits, int) and isinstance(second.splits, int) and first.splits != second.splits:
            # The usual case is one split per input: at equal positions, the split alone decides.
            positions = spread(both.positions, both.size)
            if first.splits < second.splits:
                return stable_order(positions)[0]
            rolled = stable_order(np.roll(positions, second.size))[0]
            return (rolled - second.size) % both.size
        order = sort_order(both)
        if order is not None:
            return order
    return np.arange(both.size)


def _timestamps(inputs: tuple[Batch, Batch]) -> Longs | None:
    if all(batch.timestamps is None for batch in inputs if batch.size):
        return None
    return np.concatenate([batch.stamps for batch in inputs])


def _taken(element: Any) -> Any:
    raise AssertionError("the batch holds the keys")

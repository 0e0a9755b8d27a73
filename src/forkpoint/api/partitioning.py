"""Partitioning: key_by, rebalance and the like."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from forkpoint.api.base import StreamBase
from forkpoint.api.keys import ONE_KEY, key_by
from forkpoint.errors import GraphError
from forkpoint.functions import KeySelector, Partitioner
from forkpoint.graph.transformations import Custom, Forward, Rebalance
from forkpoint.types import TypeLike
from forkpoint.types.variables import K, T, T_co

if TYPE_CHECKING:
    from forkpoint.api.streams import DataStream, KeyedStream

FieldNames: TypeAlias = str | int | tuple[str | int, ...]
KeyFunction: TypeAlias = KeySelector[T, K] | Callable[[T], K]


class PartitionMixin(StreamBase[T_co]):
    """key_by, rebalance, partition_custom, forward and their relatives."""

    @overload
    def key_by(self, key_selector: KeyFunction[T_co, K], key_type: Any = None) -> KeyedStream[T_co, K]: ...
    @overload
    def key_by(self, key_selector: FieldNames, key_type: TypeLike[K]) -> KeyedStream[T_co, K]: ...
    @overload
    def key_by(self, key_selector: FieldNames, key_type: Any = None) -> KeyedStream[T_co]: ...
    def key_by(self, key_selector: KeyFunction[T_co, Any] | FieldNames, key_type: Any = None) -> KeyedStream[T_co, Any]:
        """Partition the stream by key, so that functions can keep state per key.

        ``key_selector``: a callable or KeySelector, a field name or index, or a tuple of names and indices. ``key_type``:
        ``Types.*`` or a Python type; by default the type of the key's fields (also if a callable only picks fields), else
        the callable's return annotation, else ``Types.ANY()``. Keys are compared and stored by this type. GraphError for
        an unknown field.
        """
        return self._keyed(key_by(key_selector, key_type, self._type))

    def _under_one_key(self) -> KeyedStream[T_co, int]:
        return self._keyed(ONE_KEY)

    def rebalance(self) -> DataStream[T_co]:
        """Distribute the elements over all subtasks, keeping each split together and in order."""
        return self._stream(self._partitioned(Rebalance()), self._type)

    def partition_custom(
        self, partitioner: Partitioner[K] | Callable[[K, int], int], key_selector: KeyFunction[T_co, K] | FieldNames
    ) -> DataStream[T_co]:
        """Send each element to the downstream subtask ``partitioner(key, number of subtasks)``.

        ``partitioner``: a function or a Partitioner. ``key_selector``: as in ``key_by``. The stream does not become keyed.
        Unless the partitioner is deterministic, output may differ after a failure.
        """
        function = getattr(partitioner, "partition", partitioner)
        if not callable(function):
            raise GraphError(
                f"partition_custom() takes a function of a key and the number of subtasks, not {partitioner!r}"
            )
        selector = key_by(key_selector, None, self._type).selector
        return self._stream(self._partitioned(Custom(function, selector)), self._type)

    def rescale(self) -> DataStream[T_co]:
        """Same as ``rebalance``; the two differ only in Flink's network layer."""
        return self._stream(self._partitioned(Rebalance(ship_strategy="RESCALE")), self._type)

    def shuffle(self) -> DataStream[T_co]:
        """Same as ``rebalance``: random partitioning could not be repeated after a failure."""
        return self._stream(self._partitioned(Rebalance(ship_strategy="SHUFFLE")), self._type)

    def forward(self) -> DataStream[T_co]:
        """Keep the elements on their subtask; undoes a ``rebalance`` on this stream."""
        return self._stream(self._partitioned(Forward()), self._type)

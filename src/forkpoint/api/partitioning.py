"""Methods that say where elements go."""

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
    """key_by, rebalance and its kin."""

    @overload
    def key_by(self, key_selector: KeyFunction[T_co, K], key_type: Any = None) -> KeyedStream[T_co, K]: ...
    @overload
    def key_by(self, key_selector: FieldNames, key_type: TypeLike[K]) -> KeyedStream[T_co, K]: ...
    @overload
    def key_by(self, key_selector: FieldNames, key_type: Any = None) -> KeyedStream[T_co]: ...
    def key_by(self, key_selector: KeyFunction[T_co, Any] | FieldNames, key_type: Any = None) -> KeyedStream[T_co, Any]:
        """Bring the elements of a key together, so that they can have state.

        ``key_selector``: a callable or KeySelector, a field's name or index, or a tuple of names and indices.
        ``key_type``: ``Types.*`` or a Python type; without it, the type of the fields that make up the key (also where
        a callable only picks fields), else the callable's return annotation, else ``Types.ANY()``. Keys are compared
        and stored by this type. GraphError for a field that the elements don't have.
        """
        return self._keyed(key_by(key_selector, key_type, self._type))

    def _under_one_key(self) -> KeyedStream[T_co, int]:
        return self._keyed(ONE_KEY)

    def rebalance(self) -> DataStream[T_co]:
        """Spread the elements over all subtasks, each split as a whole so that its order survives."""
        return self._stream(self._partitioned(Rebalance()), self._type)

    def partition_custom(
        self, partitioner: Partitioner[K] | Callable[[K, int], int], key_selector: KeyFunction[T_co, K] | FieldNames
    ) -> DataStream[T_co]:
        """Each element goes to subtask ``partitioner(key, number of subtasks)`` of what comes next.

        ``key_selector`` as in ``key_by``; a partitioner may also be an object with Flink's
        ``partition(key, num_partitions)``. The stream has no keys by that, and so no keyed state. Where the partitioner
        depends on chance or on what it has seen, output isn't the same after a failure.
        """
        function = getattr(partitioner, "partition", partitioner)
        if not callable(function):
            raise GraphError(
                f"partition_custom() takes a function of a key and a number of subtasks, not {partitioner!r}"
            )
        selector = key_by(key_selector, None, self._type).selector
        return self._stream(self._partitioned(Custom(function, selector)), self._type)

    def rescale(self) -> DataStream[T_co]:
        """The same as ``rebalance``; Flink's distinction is about its network connections."""
        return self._stream(self._partitioned(Rebalance(said="RESCALE")), self._type)

    def shuffle(self) -> DataStream[T_co]:
        """The same as ``rebalance``: what is left to chance can't be repeated after a failure."""
        return self._stream(self._partitioned(Rebalance(said="SHUFFLE")), self._type)

    def forward(self) -> DataStream[T_co]:
        """Leave the elements where they are; takes back a ``rebalance`` on this stream."""
        return self._stream(self._partitioned(Forward()), self._type)

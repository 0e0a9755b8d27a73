"""Connected streams: two streams that share an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, overload

from forkpoint.api.base import StreamBase, check_not_keyed, check_type, operator_name
from forkpoint.api.broadcasting import BroadcastConnectedStream, BroadcastStream
from forkpoint.api.partitioning import FieldNames, KeyFunction
from forkpoint.api.two_inputs import both_types, check_environments, is_keyed, plain, two_inputs
from forkpoint.errors import GraphError
from forkpoint.functions import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    Function,
    KeyedCoProcessFunction,
    MapStateDescriptor,
    as_co_process,
    as_keyed_co_process,
    declared_states,
)
from forkpoint.graph.specs import OperatorSpec
from forkpoint.graph.transformations import Broadcast
from forkpoint.runtime.operators.co_process import CoProcessSpec, KeyedCoProcessSpec
from forkpoint.types import TypeInformation
from forkpoint.types.variables import A, B, K, R, T_co

if TYPE_CHECKING:
    from forkpoint.api.streams import DataStream, KeyedStream


class ConnectMixin(StreamBase[T_co]):
    """connect and broadcast."""

    @overload
    def connect(self, ds: BroadcastStream[B]) -> BroadcastConnectedStream[T_co, B]: ...
    @overload
    def connect(self, ds: KeyedStream[B, K]) -> ConnectedStreams[T_co, B, K]: ...
    @overload
    def connect(self, ds: DataStream[B]) -> ConnectedStreams[T_co, B]: ...
    def connect(
        self, ds: DataStream[B] | BroadcastStream[B]
    ) -> ConnectedStreams[T_co, B, Any] | BroadcastConnectedStream[T_co, B]:
        """Connect this stream with another, for functions with one method per stream.

        If both are keyed (before, or by ``ConnectedStreams.key_by``), the function has keyed state and timers. With a
        BroadcastStream it has broadcast state. GraphError for a stream of another environment.
        """
        if isinstance(ds, BroadcastStream):
            check_environments(self, ds.stream, "connect")
            return BroadcastConnectedStream(self, ds)
        check_environments(self, ds, "connect")
        return ConnectedStreams(self, ds)

    @overload
    def broadcast(self) -> DataStream[T_co]: ...
    @overload
    def broadcast(
        self, broadcast_state_descriptor: MapStateDescriptor[Any, Any], *others: MapStateDescriptor[Any, Any]
    ) -> BroadcastStream[T_co]: ...
    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor[Any, Any] | None = None,
        *others: MapStateDescriptor[Any, Any],
    ) -> DataStream[T_co] | BroadcastStream[T_co]:
        """Send every element to every subtask.

        With descriptors, return a BroadcastStream for ``connect``, with these maps as broadcast state. GraphError for
        descriptors that are not MapStateDescriptors, have a time to live, or share a name.
        """
        if broadcast_state_descriptor is None:
            return self._stream(self._partitioned(Broadcast()), self._type)
        stream = self._stream(self._partitioned(Broadcast(at_next_watermark=True)), self._type)
        return BroadcastStream(stream, (broadcast_state_descriptor, *others))


class ConnectedStreams(Generic[A, B, K]):
    """Two streams whose elements go to one operator, which has one method per stream.

    Within an epoch, the operator processes the elements of both in event-time order, by the watermark of each element's
    split just before it. Without watermarks, elements are processed in the order in which their sources were added.
    """

    def __init__(self, first: StreamBase[A], second: StreamBase[B]) -> None:
        self._first, self._second = first, second

    def key_by(
        self, key_selector1: KeyFunction[A, R] | FieldNames, key_selector2: KeyFunction[B, R] | FieldNames,
        key_type: Any = None,
    ) -> ConnectedStreams[A, B, R]:  # fmt: skip
        """Partition both streams by key. Selectors are as in ``DataStream.key_by``.

        ``key_type``: the type of both keys. Without it each selector determines its own; GraphError, when the job is
        compiled, if they differ.
        """
        first, second = plain(self._first), plain(self._second)
        return ConnectedStreams(first.key_by(key_selector1, key_type), second.key_by(key_selector2, key_type))

    def map(self, func: CoMapFunction[A, B, R], output_type: Any = None) -> DataStream[R]:
        """Apply ``map1`` to the first stream's elements and ``map2`` to the second's. None is not emitted."""
        check_type(func, CoMapFunction, "ConnectedStreams.map")
        found = both_types(output_type, func, ("map1", "map2"), many=False)
        return self._either(func, "map", found)

    def flat_map(self, func: CoFlatMapFunction[A, B, R], output_type: Any = None) -> DataStream[R]:
        """Apply ``flat_map1`` and ``flat_map2``, which return any number of elements for each."""
        check_type(func, CoFlatMapFunction, "ConnectedStreams.flat_map")
        found = both_types(output_type, func, ("flat_map1", "flat_map2"), many=True)
        return self._either(func, "flat_map", found)

    def process(
        self, func: CoProcessFunction[A, B, R] | KeyedCoProcessFunction[K, A, B, R], output_type: Any = None
    ) -> DataStream[R]:
        """Apply a KeyedCoProcessFunction, which has keyed state and timers, if both streams are keyed.

        Otherwise apply a CoProcessFunction. Both can emit to side outputs.
        """
        keyed = self._keyed("process")
        wanted = KeyedCoProcessFunction if keyed else CoProcessFunction
        if not isinstance(func, wanted):
            what = "keyed" if keyed else "not keyed"
            raise GraphError(f"process() takes a {wanted.__name__}, as the connected streams are {what}, not {func!r}")
        found = both_types(output_type, func, ("process_element1", "process_element2"), many=True)
        spec: OperatorSpec = KeyedCoProcessSpec(func) if keyed else CoProcessSpec(func)
        return self._add(spec, func, "process", found)

    def _either(
        self, func: CoMapFunction | CoFlatMapFunction, operator: str, output_type: TypeInformation | None
    ) -> DataStream:
        spec: OperatorSpec = (
            KeyedCoProcessSpec(as_keyed_co_process(func))
            if self._keyed(operator)
            else CoProcessSpec(as_co_process(func))
        )
        return self._add(spec, func, operator, output_type)

    def _add(
        self, spec: OperatorSpec, func: Function, operator: str, output_type: TypeInformation | None
    ) -> DataStream:
        states = declared_states(func)
        if not spec.keyed:
            call = f"{operator}({type(func).__name__})"
            check_not_keyed(states, call, "the connected streams are", "call key_by() on both")
        return two_inputs(self._first, self._second, spec, operator_name(f"co_{operator}", func), output_type)

    def _keyed(self, operator: str) -> bool:
        first, second = is_keyed(self._first), is_keyed(self._second)
        if first != second:
            raise GraphError(
                f"{operator}(): only the {'first' if first else 'second'} of the connected streams is keyed; call key_by() on "
                "both or on neither"
            )
        return first

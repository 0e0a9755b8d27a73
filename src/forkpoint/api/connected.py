"""Two streams with one operator: connected streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, overload

from forkpoint.api.base import StreamBase, operator_name
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
    """Two streams of different kinds for one operator."""

    @overload
    def connect(self, ds: BroadcastStream[B]) -> BroadcastConnectedStream[T_co, B]: ...
    @overload
    def connect(self, ds: KeyedStream[B, K]) -> ConnectedStreams[T_co, B, K]: ...
    @overload
    def connect(self, ds: DataStream[B]) -> ConnectedStreams[T_co, B]: ...
    def connect(
        self, ds: DataStream[B] | BroadcastStream[B]
    ) -> ConnectedStreams[T_co, B, Any] | BroadcastConnectedStream[T_co, B]:
        """This stream and another, for functions that treat the elements of each in a method of its own.

        Both keyed (here, or by ``ConnectedStreams.key_by``), the function has state and timers of the key. A stream made by
        ``broadcast(descriptor, …)`` brings broadcast state. GraphError for a stream of another environment.
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
        """Give every element to every subtask.

        With descriptors: for ``connect``, with these maps as broadcast state. GraphError for descriptors of other state,
        with a time to live, or of one name.
        """
        if broadcast_state_descriptor is None:
            return self._stream(self._partitioned(Broadcast()), self._type)
        stream = self._stream(self._partitioned(Broadcast(at_next_watermark=True)), self._type)
        return BroadcastStream(stream, (broadcast_state_descriptor, *others))


class ConnectedStreams(Generic[A, B, K]):
    """Two streams whose elements go to one operator, each to the method for its stream.

    Within an epoch, the operator takes the elements of both in the order of event time: by the watermark of an element's
    own split just ahead of it. Where there are no watermarks, those of the source added first come first.
    """

    def __init__(self, first: StreamBase[A], second: StreamBase[B]) -> None:
        self._first, self._second = first, second

    def key_by(
        self, key_selector1: KeyFunction[A, R] | FieldNames, key_selector2: KeyFunction[B, R] | FieldNames,
        key_type: Any = None,
    ) -> ConnectedStreams[A, B, R]:  # fmt: skip
        """Bring the elements of a key together, whichever stream they are of. Selectors as in ``DataStream.key_by``.

        ``key_type`` is that of both. Without it each selector tells its own; GraphError, when the job is made, if they
        are not the same.
        """
        first, second = plain(self._first), plain(self._second)
        return ConnectedStreams(first.key_by(key_selector1, key_type), second.key_by(key_selector2, key_type))

    def map(self, func: CoMapFunction[A, B, R], output_type: Any = None) -> DataStream[R]:
        """``map1`` of the first stream's elements, ``map2`` of the second's; what is None is not emitted."""
        if not isinstance(func, CoMapFunction):
            raise GraphError(f"map() of connected streams takes a CoMapFunction, not {func!r}")
        found = both_types(output_type, func, ("map1", "map2"), many=False)
        return self._either(func, "map", as_co_process, as_keyed_co_process, found)

    def flat_map(self, func: CoFlatMapFunction[A, B, R], output_type: Any = None) -> DataStream[R]:
        """Any number of elements out for each element in, by ``flat_map1`` and ``flat_map2``."""
        if not isinstance(func, CoFlatMapFunction):
            raise GraphError(f"flat_map() of connected streams takes a CoFlatMapFunction, not {func!r}")
        found = both_types(output_type, func, ("flat_map1", "flat_map2"), many=True)
        return self._either(func, "flat_map", as_co_process, as_keyed_co_process, found)

    def process(
        self, func: CoProcessFunction[A, B, R] | KeyedCoProcessFunction[K, A, B, R], output_type: Any = None
    ) -> DataStream[R]:
        """Any number of elements out, to the main output and to side outputs.

        Keyed streams take a KeyedCoProcessFunction, which has state and timers; others a CoProcessFunction.
        """
        keyed = self._keyed("process")
        wanted = KeyedCoProcessFunction if keyed else CoProcessFunction
        if not isinstance(func, wanted):
            what = "keyed" if keyed else "not keyed"
            raise GraphError(f"process() takes a {wanted.__name__}, as the connected streams are {what}, not {func!r}")
        found = both_types(output_type, func, ("process_element1", "process_element2"), many=True)
        spec: OperatorSpec = KeyedCoProcessSpec(func) if keyed else CoProcessSpec(func)
        return self._add(spec, func, "process", found)

    def _either(self, func: Any, operator: str, plain: Any, keyed: Any, found: TypeInformation | None) -> DataStream:
        spec: OperatorSpec = KeyedCoProcessSpec(keyed(func)) if self._keyed(operator) else CoProcessSpec(plain(func))
        return self._add(spec, func, operator, found)

    def _add(self, spec: OperatorSpec, func: Function, operator: str, found: TypeInformation | None) -> DataStream:
        if not spec.keyed and (states := declared_states(func)):
            names = ", ".join(repr(d.name) for d in states.values())
            raise GraphError(
                f"{operator}({type(func).__name__}): state {names} belongs to keys, and the connected streams have none; "
                "key both by key_by()"
            )
        declared_states(func)  # GraphError for two of one name
        return two_inputs(self._first, self._second, spec, operator_name(f"co_{operator}", func), found)

    def _keyed(self, operator: str) -> bool:
        first, second = is_keyed(self._first), is_keyed(self._second)
        if first != second:
            raise GraphError(
                f"{operator}(): the {'first' if first else 'second'} of the connected streams is keyed and the other one is "
                "not; call key_by() on both, or on neither"
            )
        return first

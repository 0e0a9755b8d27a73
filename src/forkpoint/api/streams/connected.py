"""Connected and broadcast streams: two streams that share an operator."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, overload

from forkpoint.api.streams.base import FieldNames, KeyFunction, StreamBase, check_not_keyed, check_type, operator_name
from forkpoint.errors import GraphError
from forkpoint.functions import (
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    Function,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    MapStateDescriptor,
    declared_states,
    keyed_states,
)
from forkpoint.functions.base import no_class
from forkpoint.functions.co_functions import CoAdapter, KeyedCoAdapter, KeyedCoProcess
from forkpoint.graph.specs import OperatorSpec
from forkpoint.graph.transformations import Broadcast
from forkpoint.runtime.operators.co_process import CoProcessSpec, KeyedCoProcessSpec
from forkpoint.types import TypeInformation, Types
from forkpoint.types.variables import A, B, K, R, T_co

if TYPE_CHECKING:
    from forkpoint.api.streams.streams import DataStream, KeyedStream


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
            self._check_environment(ds.stream, "connect")
            return BroadcastConnectedStream(self, ds)
        self._check_environment(ds, "connect")
        return ConnectedStreams(self, ds)

    @overload
    def broadcast(self) -> DataStream[T_co]: ...
    @overload
    def broadcast(
        self, broadcast_state_descriptor: MapStateDescriptor[Any, Any], *others: MapStateDescriptor[Any, Any]
    ) -> BroadcastStream[T_co]: ...
    def broadcast(
        self, broadcast_state_descriptor: MapStateDescriptor[Any, Any] | None = None, *others: MapStateDescriptor[Any, Any]
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

    Within an epoch, the operator processes the elements of both streams in event-time order: by the watermark of an element's
    split just before that element. Without watermarks, it processes elements in the order in which their sources were added.
    """

    def __init__(self, first: StreamBase[A], second: StreamBase[B]) -> None:
        self._first, self._second = _with_keys_of_one_type(first, second)

    def key_by(
        self, key_selector1: KeyFunction[A, R] | FieldNames, key_selector2: KeyFunction[B, R] | FieldNames, key_type: Any = None
    ) -> ConnectedStreams[A, B, R]:
        """Partition both streams by key. Selectors are as in ``DataStream.key_by``.

        ``key_type``: the type of both keys. Without it each selector determines its own; GraphError, when the job is
        compiled, if they differ.
        """
        first, second = self._first._plain(), self._second._plain()
        return ConnectedStreams(first.key_by(key_selector1, key_type), second.key_by(key_selector2, key_type))

    def map(self, func: CoMapFunction[A, B, R], output_type: Any = None) -> DataStream[R]:
        """Apply ``map1`` to the first stream's elements and ``map2`` to the second's. None is not emitted."""
        check_type(func, CoMapFunction, "ConnectedStreams.map")
        found = self._first._output_type(output_type, func, "map1", "map2")
        return self._either(func, "map", found)

    def flat_map(self, func: CoFlatMapFunction[A, B, R], output_type: Any = None) -> DataStream[R]:
        """Apply ``flat_map1`` and ``flat_map2``, which return any number of elements for an element."""
        check_type(func, CoFlatMapFunction, "ConnectedStreams.flat_map")
        found = self._first._output_type(output_type, func, "flat_map1", "flat_map2", many=True)
        return self._either(func, "flat_map", found)

    def process(
        self, func: CoProcessFunction[A, B, R] | KeyedCoProcessFunction[K, A, B, R], output_type: Any = None
    ) -> DataStream[R]:
        """Apply a CoProcessFunction, or a KeyedCoProcessFunction if both streams are keyed.

        If both are keyed, either may have keyed state. Only a KeyedCoProcessFunction has timers that call it. Both can emit to
        side outputs.
        """
        keyed = self._keyed("process")
        if not (keyed and isinstance(func, CoProcessFunction)):
            _check_kind(func, KeyedCoProcessFunction, CoProcessFunction, keyed, "the connected streams are")
        found = self._first._output_type(output_type, func, "process_element1", "process_element2", many=True)
        if keyed:
            spec: OperatorSpec = KeyedCoProcessSpec(KeyedCoProcess(func) if isinstance(func, CoProcessFunction) else func)
        else:
            spec = CoProcessSpec(func)
        return self._add(spec, func, "process", found)

    def _either(self, func: CoMapFunction | CoFlatMapFunction, operator: str, output_type: TypeInformation | None) -> DataStream:
        spec: OperatorSpec = KeyedCoProcessSpec(KeyedCoAdapter(func)) if self._keyed(operator) else CoProcessSpec(CoAdapter(func))
        return self._add(spec, func, operator, output_type)

    def _add(self, spec: OperatorSpec, func: Function, operator: str, output_type: TypeInformation | None) -> DataStream:
        states = declared_states(func)
        if not spec.keyed:
            call = f"{operator}({type(func).__name__})"
            check_not_keyed(states, call, "the connected streams are", "call key_by() on both")
        return self._first._two_inputs(self._second, spec, operator_name(f"co_{operator}", func), output_type)

    def _keyed(self, operator: str) -> bool:
        first, second = self._first._key is not None, self._second._key is not None
        if first != second:
            raise GraphError(
                f"{operator}(): only the {'first' if first else 'second'} of the connected streams is keyed; call key_by() on "
                "both or on neither"
            )
        return first


class BroadcastStream(Generic[T_co]):
    """A stream sent to every subtask, with the broadcast states it updates. Created by ``DataStream.broadcast``."""

    def __init__(self, stream: DataStream[T_co], descriptors: tuple[MapStateDescriptor[Any, Any], ...]) -> None:
        names: set[str] = set()
        for descriptor in descriptors:
            if not isinstance(descriptor, MapStateDescriptor):
                raise GraphError(f"broadcast() takes MapStateDescriptors, not {descriptor!r}")
            if descriptor.ttl is not None:
                raise GraphError(
                    f"broadcast({descriptor!r}): broadcast state cannot have a time to live, because its copies would expire at "
                    "different times; remove entries in process_broadcast_element()"
                )
            if descriptor.name in names:
                raise GraphError(f"broadcast(): there are two states named {descriptor.name!r}; give each its own name")
            names.add(descriptor.name)
        self.stream = stream
        self.descriptors = descriptors


class BroadcastConnectedStream(Generic[A, B]):
    """A stream, keyed or not, connected with a broadcast stream.

    An element sees the broadcast elements of earlier epochs, and the elements whose watermark its own stream has reached.
    Without watermarks, elements are processed in the order in which their sources were added.
    """

    def __init__(self, stream: StreamBase[A], broadcast: BroadcastStream[B]) -> None:
        self._stream, self._broadcast = stream, broadcast

    def process(
        self, func: BroadcastProcessFunction[A, B, R] | KeyedBroadcastProcessFunction[Any, A, B, R], output_type: Any = None
    ) -> DataStream[R]:
        """Apply a KeyedBroadcastProcessFunction, which has keyed state and timers, if the stream is keyed.

        Otherwise apply a BroadcastProcessFunction. Both can emit to side outputs.
        """
        from forkpoint.runtime.operators.broadcast import BroadcastProcessSpec, KeyedBroadcastProcessSpec

        keyed = self._stream._key is not None
        _check_kind(func, KeyedBroadcastProcessFunction, BroadcastProcessFunction, keyed, "the stream is")
        descriptors = self._broadcast.descriptors
        states = keyed_states(func, descriptors)
        if not keyed:
            remedy = "call key_by() first, or pass its descriptor to broadcast()"
            check_not_keyed(states, f"process({type(func).__name__})", remedy=remedy)
        methods = ("process_element", "process_broadcast_element")
        found = self._stream._output_type(output_type, func, *methods, many=True)
        spec: OperatorSpec = (KeyedBroadcastProcessSpec if keyed else BroadcastProcessSpec)(
            func, descriptors, self._broadcast.stream._type
        )
        name = operator_name("broadcast_process", func)
        return self._stream._two_inputs(self._broadcast.stream, spec, name, found)


def _with_keys_of_one_type(first: StreamBase[A], second: StreamBase[B]) -> tuple[StreamBase[A], StreamBase[B]]:
    """The streams, both with keys of type ANY if one of them has such keys and only explicit types count."""
    keys = [stream._key for stream in (first, second)]
    untyped = sum(key is not None and key.key_type.kind == "any" for key in keys)
    if None in keys or untyped != 1 or not first._env.explicit_types_only:
        return first, second
    any_keys = [replace(key, key_type=Types.ANY(), columns=None) for key in keys if key is not None]
    return first._plain()._keyed(any_keys[0]), second._plain()._keyed(any_keys[1])


def _check_kind(func: Any, if_keyed: type, if_not: type, keyed: bool, streams: str) -> None:
    expected, state = (if_keyed, "keyed") if keyed else (if_not, "not keyed")
    no_class(func, "process()")
    if not isinstance(func, expected):
        raise GraphError(f"process(): {streams} {state}, so it takes a {expected.__name__}, not {func!r}")

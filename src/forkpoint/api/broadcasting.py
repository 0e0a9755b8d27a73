"""Broadcast streams: what every subtask gets, and the state that it feeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

from forkpoint.api.base import StreamBase, operator_name
from forkpoint.api.two_inputs import both_types, is_keyed, two_inputs
from forkpoint.errors import GraphError
from forkpoint.functions import (
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    MapStateDescriptor,
    keyed_states,
)
from forkpoint.graph.specs import OperatorSpec
from forkpoint.types.variables import A, B, R, T_co

if TYPE_CHECKING:
    from forkpoint.api.streams import DataStream


class BroadcastStream(Generic[T_co]):
    """A stream whose elements every subtask gets, with the broadcast states that they feed. Made by ``broadcast``."""

    def __init__(self, stream: DataStream[T_co], descriptors: tuple[MapStateDescriptor[Any, Any], ...]) -> None:
        names: set[str] = set()
        for descriptor in descriptors:
            if not isinstance(descriptor, MapStateDescriptor):
                raise GraphError(f"broadcast() takes MapStateDescriptors, not {descriptor!r}")
            if descriptor.ttl is not None:
                raise GraphError(
                    f"broadcast({descriptor!r}): broadcast state has no time to live, because its copies would expire apart; "
                    "remove entries by broadcast elements"
                )
            if descriptor.name in names:
                raise GraphError(f"broadcast(): there are two states named {descriptor.name!r}; give each its own name")
            names.add(descriptor.name)
        self.stream = stream
        self.descriptors = descriptors


class BroadcastConnectedStream(Generic[A, B]):
    """A stream, keyed or not, and a broadcast one.

    An element sees the broadcast elements whose watermarks its own stream has reached ahead of it, and all of earlier
    epochs. Where there are no watermarks, sources' elements come in the order in which the sources were added.
    """

    def __init__(self, stream: StreamBase[A], broadcast: BroadcastStream[B]) -> None:
        self._stream, self._broadcast = stream, broadcast

    def process(
        self,
        func: BroadcastProcessFunction[A, B, R] | KeyedBroadcastProcessFunction[Any, A, B, R],
        output_type: Any = None,
    ) -> DataStream[R]:
        """Any number of elements out, to the main output and to side outputs.

        A keyed stream takes a KeyedBroadcastProcessFunction, which has state and timers; another a BroadcastProcessFunction.
        """
        from forkpoint.runtime.operators.broadcast import BroadcastProcessSpec, KeyedBroadcastProcessSpec

        keyed = is_keyed(self._stream)
        wanted = KeyedBroadcastProcessFunction if keyed else BroadcastProcessFunction
        if not isinstance(func, wanted):
            what = "keyed" if keyed else "not keyed"
            raise GraphError(f"process() takes a {wanted.__name__}, as the stream is {what}, not {func!r}")
        descriptors = self._broadcast.descriptors
        states = keyed_states(func, descriptors)
        if states and not keyed:
            names = ", ".join(repr(d.name) for d in states.values())
            raise GraphError(
                f"process({type(func).__name__}): state {names} belongs to keys, and the stream has none; call key_by() "
                "first, or give its descriptor to broadcast()"
            )
        found = both_types(output_type, func, ("process_element", "process_broadcast_element"), many=True)
        spec: OperatorSpec = (KeyedBroadcastProcessSpec if keyed else BroadcastProcessSpec)(func, descriptors)
        return two_inputs(self._stream, self._broadcast.stream, spec, operator_name("broadcast_process", func), found)

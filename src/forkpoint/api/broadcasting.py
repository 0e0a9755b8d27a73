"""Broadcast streams and their connection with other streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

from forkpoint.api.base import StreamBase, check_not_keyed, operator_name
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

    An element sees the broadcast elements of earlier epochs and those whose watermark its own stream has reached.
    Without watermarks, elements are processed in the order in which their sources were added.
    """

    def __init__(self, stream: StreamBase[A], broadcast: BroadcastStream[B]) -> None:
        self._stream, self._broadcast = stream, broadcast

    def process(
        self,
        func: BroadcastProcessFunction[A, B, R] | KeyedBroadcastProcessFunction[Any, A, B, R],
        output_type: Any = None,
    ) -> DataStream[R]:
        """Apply a KeyedBroadcastProcessFunction, which has keyed state and timers, if the stream is keyed.

        Otherwise apply a BroadcastProcessFunction. Both can emit to side outputs.
        """
        from forkpoint.runtime.operators.broadcast import BroadcastProcessSpec, KeyedBroadcastProcessSpec

        keyed = is_keyed(self._stream)
        wanted = KeyedBroadcastProcessFunction if keyed else BroadcastProcessFunction
        if not isinstance(func, wanted):
            what = "keyed" if keyed else "not keyed"
            raise GraphError(f"process() takes a {wanted.__name__}, as the stream is {what}, not {func!r}")
        descriptors = self._broadcast.descriptors
        states = keyed_states(func, descriptors)
        if not keyed:
            remedy = "call key_by() first, or pass its descriptor to broadcast()"
            check_not_keyed(states, f"process({type(func).__name__})", remedy=remedy)
        found = both_types(output_type, func, ("process_element", "process_broadcast_element"), many=True)
        spec: OperatorSpec = (KeyedBroadcastProcessSpec if keyed else BroadcastProcessSpec)(func, descriptors)
        return two_inputs(self._stream, self._broadcast.stream, spec, operator_name("broadcast_process", func), found)

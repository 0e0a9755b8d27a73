"""Broadcast state: the same map on every subtask, fed by a stream of which every subtask gets every element."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Generic

from forkpoint.functions.base import Function
from forkpoint.functions.descriptors import MapStateDescriptor, StateDescriptor, declared_states
from forkpoint.functions.output_tag import Emitted
from forkpoint.functions.process import TimeDomain, TimerService
from forkpoint.functions.state import ReadableMap, WritableMap
from forkpoint.types.variables import IN1, IN2, OUT, K, K_co, K_contra, S, V


class ReadOnlyBroadcastState(ReadableMap[K, V]):
    """Broadcast state as the other stream's elements see it. Its values must not be changed in place.

    Its entries are in the order in which their keys came.
    """


class BroadcastState(ReadOnlyBroadcastState[K, V], WritableMap[K, V]):
    """Broadcast state as the broadcast elements see it.

    Every subtask has a copy of its own, so what is written must follow from the broadcast elements alone.
    """

    @abstractmethod
    def clear(self) -> None:
        """Remove all entries."""


class _BaseContext(ABC):
    @abstractmethod
    def timestamp(self) -> int | None:
        """The timestamp of the element or timer in int milliseconds, None where the element has none."""

    @abstractmethod
    def current_processing_time(self) -> int:
        """The wall clock, read once an epoch so that a replayed epoch sees the same time."""

    @abstractmethod
    def current_watermark(self) -> int:
        """The watermark just before the element or timer at hand; MIN_WATERMARK where none came yet."""


class BroadcastProcessFunction(Function, Generic[IN1, IN2, OUT]):
    """A stream without keys and a broadcast stream."""

    class Context(_BaseContext):
        """What is known about the broadcast element at hand."""

        @abstractmethod
        def get_broadcast_state(self, state_descriptor: MapStateDescriptor[K, V]) -> BroadcastState[K, V]:
            """One of the states given to ``broadcast()``; GraphError for any other."""

    class ReadOnlyContext(_BaseContext):
        """What is known about the element at hand of the other stream."""

        @abstractmethod
        def get_broadcast_state(self, state_descriptor: MapStateDescriptor[K, V]) -> ReadOnlyBroadcastState[K, V]:
            """One of the states given to ``broadcast()``; writing it raises UserFunctionError."""

    @abstractmethod
    def process_element(self, value: IN1, ctx: BroadcastProcessFunction.ReadOnlyContext, /) -> Emitted[OUT]:
        """The elements to emit: ``yield x`` or, to a side output, ``yield tag, x``."""

    @abstractmethod
    def process_broadcast_element(self, value: IN2, ctx: BroadcastProcessFunction.Context, /) -> Emitted[OUT]:
        """Called on every subtask for every broadcast element. What it emits comes out once for each subtask."""


class KeyedBroadcastProcessFunction(Function, Generic[K_contra, IN1, IN2, OUT]):
    """A keyed stream and a broadcast stream: state and timers of the key besides broadcast state.

    A class attribute with a descriptor given to ``broadcast()`` stays the descriptor; others become state of the key.
    """

    class Context(BroadcastProcessFunction.Context, Generic[K_co]):
        """What is known about the broadcast element at hand. It has no key."""

        @abstractmethod
        def apply_to_keyed_state(
            self, state_descriptor: StateDescriptor[S], function: Callable[[K_co, S], None]
        ) -> None:
            """``function(key, state)`` for each key of the subtask that has something in the state; it may change it.

            ``state_descriptor``: the descriptor, or the function's own attribute (``self.count``). Over all subtasks these
            are all keys. Reads the whole state, and keeps what it read until the epoch ends.
            """

    class ReadOnlyContext(BroadcastProcessFunction.ReadOnlyContext, Generic[K_co]):
        """What is known about the element at hand of the keyed stream."""

        @abstractmethod
        def get_current_key(self) -> K_co:
            """The key of the element or timer."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """The clocks, and the timers of the key."""

    class OnTimerContext(ReadOnlyContext[K_co]):
        """What is known about the timer at hand."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Which clock the timer went by."""

    @abstractmethod
    def process_element(
        self, value: IN1, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext[K_contra], /
    ) -> Emitted[OUT]:
        """The elements to emit: ``yield x`` or, to a side output, ``yield tag, x``."""

    @abstractmethod
    def process_broadcast_element(
        self, value: IN2, ctx: KeyedBroadcastProcessFunction.Context[K_contra], /
    ) -> Emitted[OUT]:
        """Called on every subtask for every broadcast element. What it emits comes out once for each subtask."""

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext[K_contra], /) -> Emitted[OUT]:
        """Called when a timer of the key is due; emits like ``process_element``. ``timestamp``: the timer's, in ms."""
        return None


def keyed_states(fn: Function, broadcast: Iterable[StateDescriptor]) -> dict[str, StateDescriptor]:
    """The states declared on a function's class that are not among the broadcast ones: attribute name → descriptor."""
    names = {descriptor.name for descriptor in broadcast}
    return {attribute: d for attribute, d in declared_states(fn).items() if d.name not in names}

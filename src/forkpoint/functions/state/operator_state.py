"""Operator state and broadcast state, and notifications about checkpoints.

Broadcast state is a map that is the same on every subtask, updated by broadcast elements.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Generic

from forkpoint.functions.base import Function
from forkpoint.functions.output_tag import Emitted
from forkpoint.functions.process import KeyedProcessFunction
from forkpoint.functions.state.descriptors import ListStateDescriptor, MapStateDescriptor, StateDescriptor, declared_states
from forkpoint.functions.state.handles import ListState, ReadableMap, WritableMap
from forkpoint.types.variables import IN1, IN2, OUT, K, K_co, K_contra, S, T, V


class ReadOnlyBroadcastState(ReadableMap[K, V]):
    """Broadcast state as seen by the other stream, in insertion order. Do not modify its values in place."""


class BroadcastState(ReadOnlyBroadcastState[K, V], WritableMap[K, V]):
    """Broadcast state as seen by the broadcast stream.

    Every subtask has a copy, so writes must depend on the broadcast elements only.
    """

    @abstractmethod
    def clear(self) -> None:
        """Remove all entries."""


class _BaseContext(ABC):
    @abstractmethod
    def timestamp(self) -> int | None:
        """The timestamp of the element or timer in int milliseconds, None for an element without one."""

    @abstractmethod
    def current_processing_time(self) -> int:
        """The wall clock, read once per epoch so that a replayed epoch sees the same time."""

    @abstractmethod
    def current_watermark(self) -> int:
        """The watermark just before the current element or timer; MIN_WATERMARK before the first watermark."""


class BroadcastProcessFunction(Function, Generic[IN1, IN2, OUT]):
    """Processes a non-keyed stream and a broadcast stream."""

    class Context(_BaseContext):
        """The context of the current broadcast element."""

        @abstractmethod
        def get_broadcast_state(self, state_descriptor: MapStateDescriptor[K, V]) -> BroadcastState[K, V]:
            """A state passed to ``broadcast()``; GraphError for any other."""

    class ReadOnlyContext(_BaseContext):
        """The context of the current element of the other stream."""

        @abstractmethod
        def get_broadcast_state(self, state_descriptor: MapStateDescriptor[K, V]) -> ReadOnlyBroadcastState[K, V]:
            """A state passed to ``broadcast()``. A write to it raises UserFunctionError."""

    @abstractmethod
    def process_element(self, value: IN1, ctx: BroadcastProcessFunction.ReadOnlyContext, /) -> Emitted[OUT]:
        """Return or yield the elements to emit: ``yield x``, or ``yield tag, x`` to a side output."""

    @abstractmethod
    def process_broadcast_element(self, value: IN2, ctx: BroadcastProcessFunction.Context, /) -> Emitted[OUT]:
        """Called on every subtask for every broadcast element, so each output is emitted once per subtask."""


class KeyedBroadcastProcessFunction(Function, Generic[K_contra, IN1, IN2, OUT]):
    """Processes a keyed stream and a broadcast stream, with keyed state and timers as well as broadcast state.

    Descriptors declared on the class become keyed state, except those passed to ``broadcast()``.
    """

    class Context(BroadcastProcessFunction.Context, Generic[K_co]):
        """The context of the current broadcast element, which has no key."""

        @abstractmethod
        def apply_to_keyed_state(self, state_descriptor: StateDescriptor[S], function: Callable[[K_co, S], None]) -> None:
            """Call ``function(key, state)`` for each of the subtask's keys that has the state; it may modify the state.

            ``state_descriptor``: the descriptor, or the function's attribute (``self.count``). All subtasks together cover
            all keys. Reads the entire state and holds it in memory until the epoch ends.
            """

    class ReadOnlyContext(BroadcastProcessFunction.ReadOnlyContext, KeyedProcessFunction.Context[K_co]):
        """The context of the current element of the keyed stream."""

    class OnTimerContext(ReadOnlyContext[K_co], KeyedProcessFunction.OnTimerContext[K_co]):
        """The context of the current timer."""

    @abstractmethod
    def process_element(self, value: IN1, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext[K_contra], /) -> Emitted[OUT]:
        """Return or yield the elements to emit: ``yield x``, or ``yield tag, x`` to a side output."""

    @abstractmethod
    def process_broadcast_element(self, value: IN2, ctx: KeyedBroadcastProcessFunction.Context[K_contra], /) -> Emitted[OUT]:
        """Called on every subtask for every broadcast element, so each output is emitted once per subtask."""

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext[K_contra], /) -> Emitted[OUT]:
        """Called when a timer fires; emits like ``process_element``. ``timestamp``: the timer's, in int ms."""
        return None


def keyed_states(fn: Function, broadcast: Iterable[StateDescriptor]) -> dict[str, StateDescriptor]:
    """The states declared on a function's class, without the broadcast ones: attribute name → descriptor."""
    names = {descriptor.name for descriptor in broadcast}
    return {attribute: d for attribute, d in declared_states(fn).items() if d.name not in names}


class OperatorStateStore(ABC):
    """Operator state: lists whose elements are redistributed when the parallelism changes."""

    @abstractmethod
    def get_list_state(self, descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """A list whose elements a restore divides evenly among the subtasks."""

    @abstractmethod
    def get_union_list_state(self, descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """A list of which a restore gives all elements to every subtask."""


class FunctionInitializationContext(ABC):
    """The context of ``initialize_state``."""

    @abstractmethod
    def is_restored(self) -> bool:
        """Whether the run was restored from a checkpoint or savepoint that contains this operator."""

    @abstractmethod
    def get_operator_state_store(self) -> OperatorStateStore:
        """The operator's state store."""


class FunctionSnapshotContext(ABC):
    """The context of ``snapshot_state``."""

    @abstractmethod
    def get_checkpoint_id(self) -> int:
        """The id of the checkpoint, which is the id of the epoch."""

    @abstractmethod
    def get_checkpoint_timestamp(self) -> int:
        """The start of the epoch, in int milliseconds since 1970-01-01 UTC."""


class CheckpointedFunction(ABC):
    """A function that keeps data in attributes and writes it to operator state at each checkpoint.

    Use it as a mixin: ``class Buffer(MapFunction, CheckpointedFunction)``.
    """

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext, /) -> None:
        """Called once per subtask, before ``open()``. Get the lists, and read them if the context is restored."""

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext, /) -> None:
        """Called at the end of each epoch. Update the lists."""


class CheckpointListener(ABC):  # noqa: B024  (both calls are optional)
    """A function that is notified of complete checkpoints, including the last checkpoint of a job.

    A crash right after the commit loses the notification, but a later notification covers all earlier checkpoints. A
    restart may repeat a notification, and may send it to another copy of the function. So keep prepared work in operator
    state (``CheckpointedFunction``), where every copy finds it.
    """

    def notify_checkpoint_complete(self, checkpoint_id: int, /) -> None:  # noqa: B027
        """The checkpoint and all earlier checkpoints are committed."""

    def notify_checkpoint_aborted(self, checkpoint_id: int, /) -> None:  # noqa: B027
        """The checkpoint was aborted; the job repeats its epoch."""

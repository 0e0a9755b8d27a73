"""Process functions, time and timers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Generic

from forkpoint.functions.base import Function
from forkpoint.functions.output_tag import Emitted
from forkpoint.types.variables import IN, OUT, K_co, K_contra


class TimeDomain(Enum):
    """The clock of a timer."""

    EVENT_TIME = 0
    PROCESSING_TIME = 1


class TimerService(ABC):
    """Clocks and timers. Times are int milliseconds since 1970-01-01 UTC.

    Timers belong to the current key. Registering a timer twice for the same key and time fires it once. Timers are part of
    checkpoints and savepoints.
    """

    @abstractmethod
    def current_processing_time(self) -> int:
        """The wall clock, read once per epoch so that a replayed epoch sees the same time."""

    @abstractmethod
    def current_watermark(self) -> int:
        """The watermark just before the current element or timer; MIN_WATERMARK before the first watermark.

        Non-keyed functions before the first exchange see the watermark of the element's split.
        """

    @abstractmethod
    def register_event_time_timer(self, timestamp: int) -> None:
        """Fire when the watermark reaches the time; if it already has, when the watermark next advances."""

    @abstractmethod
    def register_processing_time_timer(self, timestamp: int) -> None:
        """Fire when the wall clock reaches the time."""

    @abstractmethod
    def delete_event_time_timer(self, timestamp: int) -> None:
        """Delete an event-time timer, if there is one for the time."""

    @abstractmethod
    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Delete a processing-time timer, if there is one for the time."""


class ProcessFunction(Function, Generic[IN, OUT]):
    """Emits any number of elements, to the main output and side outputs. It has neither state nor timers."""

    class Context(ABC):
        """The context of the current element."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """The element's timestamp in int milliseconds, None without one."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """The clocks. Registering a timer raises GraphError, because timers need a key."""

    @abstractmethod
    def process_element(self, value: IN, ctx: ProcessFunction.Context, /) -> Emitted[OUT]:
        """Return or yield the elements to emit: ``yield x``, or ``yield tag, x`` to a side output."""


class KeyedProcessFunction(Function, Generic[K_contra, IN, OUT]):
    """A process function with state and timers of the current key.

    State is declared by descriptors on the class (``armed = ValueStateDescriptor("armed", Armed)``), or obtained from the
    runtime context in ``open()``.
    """

    class Context(ABC, Generic[K_co]):
        """The context of the current element."""

        @abstractmethod
        def get_current_key(self) -> K_co:
            """The key of the element or timer."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """The timestamp of the element or timer in int milliseconds, None for an element without one."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """The clocks and the timers of the current key."""

    class OnTimerContext(Context[K_co]):
        """The context of the current timer."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """The clock of the timer."""

    @abstractmethod
    def process_element(self, value: IN, ctx: KeyedProcessFunction.Context[K_contra], /) -> Emitted[OUT]:
        """Return or yield the elements to emit: ``yield x``, or ``yield tag, x`` to a side output."""

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext[K_contra], /) -> Emitted[OUT]:
        """Called when a timer fires; emits like ``process_element``. ``timestamp``: the timer's, in int ms."""
        return None

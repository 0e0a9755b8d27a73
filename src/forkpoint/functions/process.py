"""Process functions: elements, side outputs, time and timers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Generic

from forkpoint.functions.base import Function
from forkpoint.functions.output_tag import Emitted
from forkpoint.types.variables import IN, OUT, K_co, K_contra


class TimeDomain(Enum):
    """Which clock a timer went by."""

    EVENT_TIME = 0
    PROCESSING_TIME = 1


class TimerService(ABC):
    """Clocks and timers. Times are int milliseconds since 1970-01-01 UTC.

    A timer belongs to the key at hand and is the same as any other with that key and time: registering it twice
    fires it once. Timers are part of checkpoints and savepoints.
    """

    @abstractmethod
    def current_processing_time(self) -> int:
        """The wall clock, read once an epoch so that a replayed epoch sees the same time."""

    @abstractmethod
    def current_watermark(self) -> int:
        """The watermark just before the element or timer at hand; MIN_WATERMARK where none came yet.

        Without a key, ahead of the first exchange: that of the element's own split.
        """

    @abstractmethod
    def register_event_time_timer(self, timestamp: int) -> None:
        """Fire when the watermark reaches the time; when it next moves on if it has passed it already."""

    @abstractmethod
    def register_processing_time_timer(self, timestamp: int) -> None:
        """Fire when the wall clock reaches the time."""

    @abstractmethod
    def delete_event_time_timer(self, timestamp: int) -> None:
        """Take a timer back; nothing happens where there is none."""

    @abstractmethod
    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Take a timer back; nothing happens where there is none."""


class ProcessFunction(Function, Generic[IN, OUT]):
    """Any number of elements out, to the main output and to side outputs. No keys, so neither state nor timers."""

    class Context(ABC):
        """What is known about the element at hand."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """The element's timestamp in int milliseconds, None where it has none."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """The clocks. Registering a timer raises GraphError, because timers belong to keys."""

    @abstractmethod
    def process_element(self, value: IN, ctx: ProcessFunction.Context, /) -> Emitted[OUT]:
        """The elements to emit, usually by being a generator: ``yield x`` or, to a side output, ``yield tag, x``."""


class KeyedProcessFunction(Function, Generic[K_contra, IN, OUT]):
    """A process function with a key: state and timers are those of the key at hand.

    State is declared as descriptors on the class (``armed = ValueStateDescriptor("armed", Armed)``), or taken from
    the runtime context in ``open()``.
    """

    class Context(ABC, Generic[K_co]):
        """What is known about the element at hand."""

        @abstractmethod
        def get_current_key(self) -> K_co:
            """The key of the element or timer."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """The timestamp of the element or timer in int milliseconds, None where the element has none."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """The clocks, and the timers of the key."""

    class OnTimerContext(Context[K_co]):
        """What is known about the timer at hand."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Which clock the timer went by."""

    @abstractmethod
    def process_element(self, value: IN, ctx: KeyedProcessFunction.Context[K_contra], /) -> Emitted[OUT]:
        """The elements to emit, usually by being a generator: ``yield x`` or, to a side output, ``yield tag, x``."""

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext[K_contra], /) -> Emitted[OUT]:
        """Called when a timer of the key is due; emits like ``process_element``. ``timestamp``: the timer's, in ms."""
        return None

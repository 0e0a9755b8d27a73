"""Triggers, which decide when a window fires and whether its contents are then removed."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from typing import Any, Generic, Self, TypeAlias

from forkpoint.errors import ConfigError
from forkpoint.functions.base import Subscripted, no_class
from forkpoint.functions.state.descriptors import ReducingStateDescriptor, StateDescriptor, ValueStateDescriptor
from forkpoint.functions.state.ttl import to_ms
from forkpoint.functions.watermarks import MAX_WATERMARK
from forkpoint.functions.windows.windows import Window
from forkpoint.types.variables import S, T_contra, W_contra


class TriggerResult(Enum):
    """Whether a window's results are emitted (fire), and whether its contents are removed (purge)."""

    CONTINUE = (False, False)
    FIRE = (True, False)
    PURGE = (False, True)
    FIRE_AND_PURGE = (True, True)

    def is_fire(self) -> bool:
        """Whether the results are emitted."""
        return self.value[0]

    def is_purge(self) -> bool:
        """Whether the contents are removed."""
        return self.value[1]


class TriggerContext(Subscripted, ABC):
    """Clocks, timers and state of one window of one key. Times are int milliseconds."""

    @abstractmethod
    def get_current_processing_time(self) -> int:
        """The wall clock, read once per epoch."""

    @abstractmethod
    def get_current_watermark(self) -> int:
        """The watermark; MIN_WATERMARK before the first."""

    @abstractmethod
    def register_event_time_timer(self, time: int) -> None:
        """Call ``on_event_time`` for this window when the watermark reaches the time."""

    @abstractmethod
    def register_processing_time_timer(self, time: int) -> None:
        """Call ``on_processing_time`` for this window when the wall clock reaches the time."""

    @abstractmethod
    def delete_event_time_timer(self, time: int) -> None:
        """Delete a timer of this window."""

    @abstractmethod
    def delete_processing_time_timer(self, time: int) -> None:
        """Delete a timer of this window."""

    @abstractmethod
    def get_partitioned_state(self, state_descriptor: StateDescriptor[S]) -> S:
        """A state of this window. ``Trigger.clear`` must clear it, or it outlives the window."""


class OnMergeContext(TriggerContext):
    """The context of a window that results from a merge."""

    @abstractmethod
    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        """Merge a list, reducing or aggregating state of the merged windows into the state of this window."""


_TriggerContext: TypeAlias = TriggerContext
_OnMergeContext: TypeAlias = OnMergeContext


class Trigger(ABC, Generic[T_contra, W_contra]):
    """Decides when each window fires. A trigger keeps its data in partitioned state, not in attributes."""

    # PyFlink nests both in Trigger.
    TriggerContext: TypeAlias = _TriggerContext
    OnMergeContext: TypeAlias = _OnMergeContext

    @abstractmethod
    def on_element(self, element: T_contra, timestamp: int, window: W_contra, ctx: TriggerContext, /) -> TriggerResult:
        """Called for each element added to the window."""

    @abstractmethod
    def on_processing_time(self, time: int, window: W_contra, ctx: TriggerContext, /) -> TriggerResult:
        """Called when a processing-time timer of the window fires, even one that this trigger did not register."""

    @abstractmethod
    def on_event_time(self, time: int, window: W_contra, ctx: TriggerContext, /) -> TriggerResult:
        """Called when an event-time timer of the window fires, even one that this trigger did not register."""

    def can_merge(self) -> bool:
        """Whether the trigger works with merging windows."""
        return False

    def on_merge(self, window: W_contra, ctx: OnMergeContext, /) -> None:
        """Called when windows have been merged into this window."""

    @abstractmethod
    def clear(self, window: W_contra, ctx: TriggerContext, /) -> None:
        """Called when the window is removed, to delete its timers and state."""

    def describe(self) -> str:
        """The trigger as text. State saved with another description is not restored."""
        return type(self).__qualname__


class _Trigger(Trigger[Any, Window]):
    """Does nothing unless overridden."""

    def on_element(self, element: Any, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        return None


class EventTimeTrigger(_Trigger):
    """Fires when the watermark passes the end of the window, and then for each late element within the allowed lateness."""

    @staticmethod
    def create() -> EventTimeTrigger:
        """The trigger."""
        return EventTimeTrigger()

    def on_element(self, element: Any, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        end = window.max_timestamp()
        if end <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(end)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE if time == window.max_timestamp() else TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        end = window.max_timestamp()
        if end > ctx.get_current_watermark():
            ctx.register_event_time_timer(end)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())


class ProcessingTimeTrigger(_Trigger):
    """Fires when the wall clock passes the end of the window."""

    @staticmethod
    def create() -> ProcessingTimeTrigger:
        """The trigger."""
        return ProcessingTimeTrigger()

    def on_element(self, element: Any, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        ctx.register_processing_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        end = window.max_timestamp()
        if end > ctx.get_current_processing_time():
            ctx.register_processing_time_timer(end)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        ctx.delete_processing_time_timer(window.max_timestamp())


class CountTrigger(_Trigger):
    """Fires every ``window_size`` elements of a window."""

    _count = ReducingStateDescriptor("count", operator.add, int)

    def __init__(self, window_size: int) -> None:
        if not isinstance(window_size, int) or isinstance(window_size, bool) or window_size < 1:
            raise ConfigError(f"CountTrigger: the number of elements is {window_size!r}; give an int of at least 1")
        self._size = window_size

    @staticmethod
    def of(window_size: int) -> CountTrigger:
        """Fire every ``window_size`` elements; at least 1, else ConfigError."""
        return CountTrigger(window_size)

    def on_element(self, element: Any, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        count = ctx.get_partitioned_state(self._count)
        count.add(1)
        if count.get() < self._size:  # type: ignore[operator]  # not None after add()
            return TriggerResult.CONTINUE
        count.clear()
        return TriggerResult.FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        ctx.merge_partitioned_state(self._count)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        ctx.get_partitioned_state(self._count).clear()

    def describe(self) -> str:
        return f"CountTrigger({self._size})"


_Timer = Callable[[int], None]  # registers or deletes a timer


class _Continuous(_Trigger):
    _fire_time = ReducingStateDescriptor("fire-time", min, int)

    def __init__(self, interval: timedelta | int) -> None:
        self._interval_ms = to_ms(interval, f"the interval of {type(self).__name__}", minimum_ms=1)

    @classmethod
    def of(cls, interval: timedelta | int) -> Self:
        """``interval``: a timedelta, or int ms; above 0, else ConfigError."""
        return cls(interval)

    def can_merge(self) -> bool:
        return True

    def describe(self) -> str:
        return f"{type(self).__name__}({self._interval_ms} ms)"

    def _schedule(self, time: int, window: Window, ctx: TriggerContext, register: _Timer) -> None:
        fire_at, end = time + self._interval_ms, window.max_timestamp()
        if time < end:
            fire_at = min(fire_at, end)
        ctx.get_partitioned_state(self._fire_time).add(fire_at)
        register(fire_at)

    def _begin(self, time: int, window: Window, ctx: TriggerContext, register: _Timer) -> TriggerResult:
        if ctx.get_partitioned_state(self._fire_time).get() is None:
            self._schedule(time - time % self._interval_ms, window, ctx, register)
        return TriggerResult.CONTINUE

    def _on_time(self, time: int, window: Window, ctx: TriggerContext, register: _Timer) -> TriggerResult:
        fire_time = ctx.get_partitioned_state(self._fire_time)
        if fire_time.get() != time:
            return TriggerResult.CONTINUE
        fire_time.clear()
        self._schedule(time, window, ctx, register)
        return TriggerResult.FIRE

    def _merge(self, ctx: OnMergeContext, register: _Timer) -> None:
        ctx.merge_partitioned_state(self._fire_time)
        fire_at = ctx.get_partitioned_state(self._fire_time).get()
        if fire_at is not None:
            register(fire_at)

    def _clear(self, ctx: TriggerContext, delete: _Timer) -> None:
        fire_time = ctx.get_partitioned_state(self._fire_time)
        fire_at = fire_time.get()
        if fire_at is not None:
            delete(fire_at)
            fire_time.clear()


class ContinuousEventTimeTrigger(_Continuous):
    """Fires every interval of event time while a window is open, and at its end."""

    def on_element(self, element: Any, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        end = window.max_timestamp()
        if end <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(end)
        return self._begin(timestamp, window, ctx, ctx.register_event_time_timer)

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        if time == window.max_timestamp():
            return TriggerResult.FIRE
        return self._on_time(time, window, ctx, ctx.register_event_time_timer)

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        self._merge(ctx, ctx.register_event_time_timer)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        self._clear(ctx, ctx.delete_event_time_timer)
        ctx.delete_event_time_timer(window.max_timestamp())


class ContinuousProcessingTimeTrigger(_Continuous):
    """Fires every interval of the wall clock while a window is open, and at its end."""

    def on_element(self, element: Any, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return self._begin(ctx.get_current_processing_time(), window, ctx, ctx.register_processing_time_timer)

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return self._on_time(time, window, ctx, ctx.register_processing_time_timer)

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        self._merge(ctx, ctx.register_processing_time_timer)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        self._clear(ctx, ctx.delete_processing_time_timer)


class PurgingTrigger(Trigger[T_contra, Window]):
    """Wraps another trigger and removes the contents whenever it fires."""

    def __init__(self, nested_trigger: Trigger) -> None:
        if not isinstance(nested_trigger, Trigger):
            raise ConfigError(f"PurgingTrigger.of takes a Trigger, not {nested_trigger!r}")
        self._nested = nested_trigger

    @staticmethod
    def of(nested_trigger: Trigger) -> PurgingTrigger:
        """``nested_trigger`` decides when the window fires."""
        return PurgingTrigger(nested_trigger)

    def on_element(self, element: Any, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return _purging(self._nested.on_element(element, timestamp, window, ctx))

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return _purging(self._nested.on_processing_time(time, window, ctx))

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return _purging(self._nested.on_event_time(time, window, ctx))

    def can_merge(self) -> bool:
        return self._nested.can_merge()

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        self._nested.on_merge(window, ctx)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        self._nested.clear(window, ctx)

    def describe(self) -> str:
        return f"PurgingTrigger({self._nested.describe()})"


def _purging(result: TriggerResult) -> TriggerResult:
    return TriggerResult.FIRE_AND_PURGE if result.is_fire() else result


class DeltaTrigger(_Trigger):
    """Fires when an element differs by more than a threshold from the element of the last firing."""

    def __init__(self, threshold: float, delta_function: Callable[[Any, Any], float], element_type: Any) -> None:
        no_class(delta_function, "DeltaTrigger.of()")
        if not callable(delta_function):
            raise ConfigError(f"DeltaTrigger.of takes a callable f(old, new), not {delta_function!r}")
        self._threshold = threshold
        self._delta = delta_function
        self._last = ValueStateDescriptor("last-element", element_type)

    @staticmethod
    def of(threshold: float, delta_function: Callable[[Any, Any], float], element_type: Any) -> DeltaTrigger:
        """Fire if ``delta_function(old, new) > threshold``. ``element_type``: ``Types.*`` or a Python type."""
        return DeltaTrigger(threshold, delta_function, element_type)

    def on_element(self, element: Any, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        last = ctx.get_partitioned_state(self._last)
        old = last.value()
        if old is None:
            last.update(element)
            return TriggerResult.CONTINUE
        if self._delta(old, element) > self._threshold:
            last.update(element)
            return TriggerResult.FIRE
        return TriggerResult.CONTINUE

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        ctx.get_partitioned_state(self._last).clear()

    def describe(self) -> str:
        return f"DeltaTrigger({self._threshold})"


class NeverTrigger(_Trigger):
    """Never fires; the default of GlobalWindows."""


class EndOfStreamTrigger(_Trigger):
    """Fires once, at the end of the input."""

    def on_element(self, element: Any, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        ctx.register_event_time_timer(MAX_WATERMARK)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE_AND_PURGE

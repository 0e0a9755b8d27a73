"""Window assigners, which determine the windows of an element."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from datetime import timedelta
from typing import Any, Generic, Protocol, Self, TypeAlias

from forkpoint.errors import ConfigError, UserFunctionError
from forkpoint.functions.base import Subscripted, no_class
from forkpoint.functions.context import RuntimeContext
from forkpoint.functions.state.descriptors import ValueStateDescriptor
from forkpoint.functions.state.ttl import to_ms
from forkpoint.functions.watermarks import MAX_WATERMARK, MIN_WATERMARK
from forkpoint.functions.windows.triggers import (
    CountTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
)
from forkpoint.functions.windows.windows import (
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
    TimeWindow,
    TimeWindowSerializer,
    WindowSerializer,
)
from forkpoint.types import TypeInformation
from forkpoint.types.variables import T_contra, W


class WindowAssignerContext(ABC):
    """The clock and state that an assigner can access."""

    @abstractmethod
    def get_current_processing_time(self) -> int:
        """The wall clock in int milliseconds, read once per epoch."""

    @abstractmethod
    def get_runtime_context(self) -> RuntimeContext:
        """The assigner's own keyed state."""


_Context: TypeAlias = WindowAssignerContext


class WindowAssigner(ABC, Generic[T_contra, W]):
    """Assigns each element to windows."""

    WindowAssignerContext: TypeAlias = _Context  # where PyFlink has it

    @abstractmethod
    def assign_windows(self, element: T_contra, timestamp: int, context: WindowAssignerContext, /) -> Collection[W]:
        """Return any number of windows for an element. ``timestamp``: int ms, MIN_WATERMARK without a timestamp."""

    @abstractmethod
    def get_default_trigger(self, env: Any = None, /) -> Trigger[T_contra, W]:
        """The trigger to use if the program sets none. ``env`` is for PyFlink programs."""

    @abstractmethod
    def is_event_time(self) -> bool:
        """Whether the windows are event-time windows."""

    def get_window_serializer(self) -> WindowSerializer:
        """The windows' type, as in PyFlink; for windows of your own type, override ``window_type``."""
        return TimeWindowSerializer()

    def window_type(self) -> TypeInformation | None:
        """The type that encodes windows in state; by default the type of ``get_window_serializer``."""
        return self.get_window_serializer().window_type()

    def describe(self) -> str:
        """The assigner as text. State saved with another description is not restored."""
        return type(self).__qualname__


class MergeCallback(Protocol):
    """Receives the merges of windows."""

    def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
        """Merge these windows into ``merge_result``."""


_Callback: TypeAlias = MergeCallback


class MergingWindowAssigner(WindowAssigner[T_contra, W]):
    """An assigner whose windows can merge, as sessions do."""

    MergeCallback: TypeAlias = _Callback  # where PyFlink has it

    @abstractmethod
    def merge_windows(self, windows: Iterable[W], callback: MergeCallback, /) -> None:
        """Call ``callback.merge`` for each group of a key's windows that merge, but not for unchanged windows."""


def merge_time_windows(windows: Iterable[TimeWindow], callback: MergeCallback) -> None:
    """Merge windows that overlap or touch."""
    runs: list[tuple[TimeWindow, dict[TimeWindow, None]]] = []
    for window in sorted(windows):
        if runs and runs[-1][0].intersects(window):
            cover, members = runs[-1]
            runs[-1] = (cover.cover(window), {**members, window: None})
        else:
            runs.append((window, {window: None}))
    for cover, members in runs:
        if len(members) > 1:
            callback.merge(list(members), cover)


_window_start = TimeWindow.get_window_start_with_offset


def _window(start: int, size_ms: int) -> TimeWindow:
    """A window clipped to 64 bits, because results of global windows have the greatest timestamp."""
    return TimeWindow(max(start, MIN_WATERMARK), min(start + size_ms, MAX_WATERMARK))


class _TimeWindows(WindowAssigner[Any, TimeWindow]):
    @abstractmethod
    def _assign(self, element: Any, timestamp: int) -> list[TimeWindow]:
        """The windows of an element at this time."""


class _EventTime(_TimeWindows):
    def assign_windows(self, element: Any, timestamp: int, context: WindowAssignerContext) -> Collection[TimeWindow]:
        if timestamp == MIN_WATERMARK:
            raise UserFunctionError(
                f"{self.describe()}: an element has no timestamp; give the source's WatermarkStrategy a timestamp assigner, "
                "or use processing-time windows"
            )
        return self._assign(element, timestamp)

    def get_default_trigger(self, env: Any = None) -> Trigger:
        return EventTimeTrigger.create()

    def is_event_time(self) -> bool:
        return True


class _ProcessingTime(_TimeWindows):
    def assign_windows(self, element: Any, timestamp: int, context: WindowAssignerContext) -> Collection[TimeWindow]:
        return self._assign(element, context.get_current_processing_time())

    def get_default_trigger(self, env: Any = None) -> Trigger:
        return ProcessingTimeTrigger.create()

    def is_event_time(self) -> bool:
        return False


class _Tumbling(_TimeWindows):
    def __init__(self, size: timedelta | int, offset: timedelta | int | None = None) -> None:
        self._size_ms = to_ms(size, "the size of windows", minimum_ms=1)
        self._offset_ms = 0 if offset is None else _offset_ms(offset, self._size_ms, "size")

    @classmethod
    def of(cls, size: timedelta | int, offset: timedelta | int | None = None) -> Self:
        """Windows ``[n * size + offset, (n + 1) * size + offset)``; timedelta or int ms, else ConfigError.

        ``offset``: between ``-size`` and ``size``, exclusive; with -8 h, days begin at midnight in China.
        """
        return cls(size, offset)

    def describe(self) -> str:
        return f"{type(self).__name__}(size={self._size_ms} ms, offset={self._offset_ms} ms)"

    def _assign(self, element: Any, timestamp: int) -> list[TimeWindow]:
        start = _window_start(timestamp, self._offset_ms, self._size_ms)
        return [_window(start, self._size_ms)]


class _Sliding(_TimeWindows):
    def __init__(self, size: timedelta | int, slide: timedelta | int, offset: timedelta | int | None = None) -> None:
        self._size_ms = to_ms(size, "the size of windows", minimum_ms=1)
        self._slide_ms = to_ms(slide, "the slide of windows", minimum_ms=1)
        self._offset_ms = 0 if offset is None else _offset_ms(offset, self._slide_ms, "slide")

    @classmethod
    def of(cls, size: timedelta | int, slide: timedelta | int, offset: timedelta | int | None = None) -> Self:
        """Windows ``[n * slide + offset, n * slide + offset + size)``; timedelta or int ms, else ConfigError."""
        return cls(size, slide, offset)

    def describe(self) -> str:
        return f"{type(self).__name__}(size={self._size_ms} ms, slide={self._slide_ms} ms, offset={self._offset_ms} ms)"

    def _assign(self, element: Any, timestamp: int) -> list[TimeWindow]:
        last = _window_start(timestamp, self._offset_ms, self._slide_ms)
        return [_window(s, self._size_ms) for s in range(last, timestamp - self._size_ms, -self._slide_ms)]


def _offset_ms(offset: timedelta | int, limit_ms: int, limit: str) -> int:
    ms = to_ms(offset, "the offset of windows", minimum_ms=-limit_ms + 1)
    if ms >= limit_ms:
        raise ConfigError(f"the offset of windows is {ms} ms; it must be less than the {limit}, {limit_ms} ms")
    return ms


class TumblingEventTimeWindows(_Tumbling, _EventTime):
    """Consecutive, non-overlapping windows of a fixed size, by the elements' timestamps."""


class TumblingProcessingTimeWindows(_Tumbling, _ProcessingTime):
    """Consecutive, non-overlapping windows of a fixed size, by the wall clock."""


class SlidingEventTimeWindows(_Sliding, _EventTime):
    """Windows of a fixed size that start every ``slide``, by the elements' timestamps. They may overlap."""


class SlidingProcessingTimeWindows(_Sliding, _ProcessingTime):
    """Windows of a fixed size that start every ``slide``, by the wall clock. They may overlap."""


class SessionWindowTimeGapExtractor(Subscripted, ABC, Generic[T_contra]):
    """The gap of each element, for ``with_dynamic_gap``."""

    @abstractmethod
    def extract(self, element: T_contra, /) -> int:
        """Return how long the session stays open after this element: int milliseconds or a timedelta, above 0."""


Gap = SessionWindowTimeGapExtractor | Callable[[Any], "int | timedelta"]


class _Sessions(MergingWindowAssigner[Any, TimeWindow], _TimeWindows):
    def __init__(self, gap_ms: int | None, extractor: Gap | None) -> None:
        self._gap_ms = gap_ms
        no_class(extractor, "with_dynamic_gap()")
        extract = extractor.extract if isinstance(extractor, SessionWindowTimeGapExtractor) else extractor
        if gap_ms is None and not callable(extract):
            raise ConfigError(f"with_dynamic_gap takes a SessionWindowTimeGapExtractor or a callable, not {extractor!r}")
        self._extract: Callable[[Any], int | timedelta] | None = extract

    @classmethod
    def with_gap(cls, size: timedelta | int) -> Self:
        """The same gap for all elements: a timedelta, or int ms; above 0, else ConfigError."""
        return cls(to_ms(size, "the gap of sessions", minimum_ms=1), None)

    @classmethod
    def with_dynamic_gap(cls, extractor: Gap) -> Self:
        """A gap for each element: a SessionWindowTimeGapExtractor, or ``f(element)`` that returns ms or a timedelta."""
        return cls(None, extractor)

    def describe(self) -> str:
        gap = "dynamic gap" if self._gap_ms is None else f"gap={self._gap_ms} ms"
        return f"{type(self).__name__}({gap})"

    def merge_windows(self, windows: Iterable[Any], callback: MergeCallback) -> None:
        merge_time_windows(windows, callback)

    def _assign(self, element: Any, timestamp: int) -> list[TimeWindow]:
        gap_ms = self._gap_ms
        if gap_ms is None:
            assert self._extract is not None
            try:
                gap_ms = to_ms(self._extract(element), "the gap of a session", minimum_ms=1)
            except ConfigError as error:  # an error of the user's function; the operator adds its uid and the element
                raise ValueError(str(error)) from None
        return [_window(timestamp, gap_ms)]


class EventTimeSessionWindows(_Sessions, _EventTime):
    """Sessions by the elements' timestamps: a window closes once no element has followed within the gap."""


class ProcessingTimeSessionWindows(_Sessions, _ProcessingTime):
    """Sessions by the wall clock: a window closes once no element has followed within the gap."""


class GlobalWindows(WindowAssigner[Any, GlobalWindow]):
    """All elements of a key in one window that never ends. Without a trigger it never fires."""

    @staticmethod
    def create() -> GlobalWindows:
        """The assigner."""
        return GlobalWindows()

    def assign_windows(self, element: Any, timestamp: int, context: WindowAssignerContext) -> Collection[GlobalWindow]:
        return (GlobalWindow(),)

    def get_default_trigger(self, env: Any = None) -> Trigger:
        return NeverTrigger()

    def is_event_time(self) -> bool:
        return False

    def get_window_serializer(self) -> WindowSerializer:
        return GlobalWindowSerializer()


class _Counting(WindowAssigner[Any, CountWindow]):
    _count = ValueStateDescriptor("count", int)

    def __init__(self, size: int, slide: int) -> None:
        for name, number in (("size", size), ("slide", slide)):
            if not isinstance(number, int) or isinstance(number, bool) or number < 1:
                raise ConfigError(f"the {name} of count windows is {number!r}; give an int of at least 1")
        self._size = size
        self._slide = slide

    def assign_windows(self, element: Any, timestamp: int, context: WindowAssignerContext) -> Collection[CountWindow]:
        state = context.get_runtime_context().get_state(self._count)
        index = state.value() or 0
        state.update(index + 1)
        first = max(0, -(-(index - self._size + 1) // self._slide))
        return [CountWindow(i) for i in range(first, index // self._slide + 1)]

    def get_default_trigger(self, env: Any = None) -> Trigger:
        return PurgingTrigger.of(CountTrigger.of(self._size))

    def is_event_time(self) -> bool:
        return False

    def get_window_serializer(self) -> WindowSerializer:
        return CountWindowSerializer()


class CountTumblingWindowAssigner(_Counting):
    """Consecutive windows of ``size`` elements of a key, as in ``count_window(size)``."""

    @staticmethod
    def of(window_size: int) -> CountTumblingWindowAssigner:
        """Windows of ``window_size`` elements; at least 1, else ConfigError."""
        return CountTumblingWindowAssigner(window_size, window_size)

    def describe(self) -> str:
        return f"CountTumblingWindowAssigner(size={self._size})"


class CountSlidingWindowAssigner(_Counting):
    """Windows of ``size`` elements of a key that start every ``slide`` elements. As in PyFlink, only full windows fire."""

    @staticmethod
    def of(window_size: int, window_slide: int) -> CountSlidingWindowAssigner:
        """Windows of ``window_size`` elements that start every ``window_slide``; at least 1, else ConfigError."""
        return CountSlidingWindowAssigner(window_size, window_slide)

    def describe(self) -> str:
        return f"CountSlidingWindowAssigner(size={self._size}, slide={self._slide})"

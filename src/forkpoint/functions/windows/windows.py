"""Windows: the values that elements are assigned to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, NamedTuple, Protocol

from forkpoint.functions.base import Subscripted
from forkpoint.functions.watermarks import MAX_WATERMARK
from forkpoint.types import TypeInformation, type_of
from forkpoint.types.variables import W


class Window(Protocol):
    """A window: a value that can be compared, hashed and encoded (a NamedTuple, say)."""

    def max_timestamp(self) -> int:
        """The last millisecond of the window, which is the timestamp of its results."""


class TimeWindow(NamedTuple):
    """From ``start`` to ``end`` exclusive; int milliseconds since 1970-01-01 UTC."""

    start: int
    end: int

    def max_timestamp(self) -> int:
        """The last millisecond of the window: ``end - 1``, or ``end`` at the end of time, 2**63 - 1."""
        return self.end if self.end == MAX_WATERMARK else self.end - 1

    def intersects(self, other: TimeWindow) -> bool:
        """Whether the two overlap or touch."""
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: TimeWindow) -> TimeWindow:
        """The smallest window that contains both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))

    @staticmethod
    def get_window_start_with_offset(timestamp: int, offset: int, window_size: int) -> int:
        """The start of the window of this size that contains the timestamp; all in int milliseconds."""
        return timestamp - (timestamp - offset) % window_size


class CountWindow(NamedTuple):
    """A window of a fixed number of elements. ``id`` numbers a key's windows from 0."""

    id: int

    def max_timestamp(self) -> int:
        """The end of time, because no clock ends a count window."""
        return MAX_WATERMARK


class GlobalWindow(NamedTuple):
    """The single window of all elements of a key."""

    @staticmethod
    def get() -> GlobalWindow:
        """The window."""
        return GlobalWindow()

    def max_timestamp(self) -> int:
        """The end of time."""
        return MAX_WATERMARK


class WindowSerializer(Subscripted, ABC, Generic[W]):
    """PyFlink's declaration of an assigner's window type; how windows are stored follows from their type."""

    @abstractmethod
    def window_type(self) -> TypeInformation | None:
        """The type of the windows, None for GlobalWindow."""


class TimeWindowSerializer(WindowSerializer[TimeWindow]):
    """For assigners of TimeWindows."""

    def window_type(self) -> TypeInformation | None:
        return type_of(TimeWindow)


class CountWindowSerializer(WindowSerializer[CountWindow]):
    """For assigners of CountWindows."""

    def window_type(self) -> TypeInformation | None:
        return type_of(CountWindow)


class GlobalWindowSerializer(WindowSerializer[GlobalWindow]):
    """For assigners of GlobalWindows."""

    def window_type(self) -> TypeInformation | None:
        return None

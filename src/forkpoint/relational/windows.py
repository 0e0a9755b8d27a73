"""Windows of event time as values: which windows a time is in."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

Longs = npt.NDArray[np.int64]
Role = Literal["start", "end", "time"]
ROLES: tuple[Role, Role, Role] = ("start", "end", "time")
WINDOW_NAMES = ("window_start", "window_end", "window_time")
_UNITS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000))


class Windows(msgspec.Struct, frozen=True):
    """Windows of ``size_ms`` that begin ``offset_ms`` after 1970-01-01 and every ``step_ms`` before and after.

    TUMBLE: the step is the size. CUMULATE: each begins every ``size_ms``, and ends
    ``step_ms``, twice that, and so on up to ``size_ms`` later. SESSION: of rows that are at most ``size_ms``, the gap, apart.
    ``processing``: of the times at which rows are processed.
    """

    kind: Literal["TUMBLE", "HOP", "CUMULATE", "SESSION"]
    size_ms: int
    step_ms: int
    offset_ms: int = 0
    processing: Literal[True] | msgspec.UnsetType = msgspec.UNSET

    def __str__(self) -> str:
        parts = [duration(self.size_ms)]
        if self.kind not in ("TUMBLE", "SESSION"):
            parts.insert(0, duration(self.step_ms))
        if self.offset_ms:
            parts.append(f"offset {duration(self.offset_ms)}")
        return f"{self.kind}({', '.join(parts)}){' of processing time' if self.processing else ''}"

    @property
    def per_row(self) -> int:
        """The largest number of windows that a time is in."""
        return -(-self.size_ms // self.step_ms)


class WindowColumn(NamedTuple):
    """What a column says of the window of its row."""

    role: Role
    of: Windows


class Assigned(NamedTuple):
    """The windows of rows: the row of each window, its start and end in ms, and whether it is the last to end of its row's."""

    rows: Longs
    starts: Longs
    ends: Longs
    last: npt.NDArray[np.bool_]


def assigned(windows: Windows, times_ms: Longs) -> Assigned:
    size, step, offset = windows.size_ms, windows.step_ms, windows.offset_ms
    numbers = np.arange(len(times_ms))
    if windows.kind == "CUMULATE":
        begin = times_ms - (times_ms - offset) % size
        before = (times_ms - begin) // step  # windows that end before the row
        counts = windows.per_row - before
        rows = np.repeat(numbers, counts)
        nth = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts) + before[rows]
        return Assigned(rows, begin[rows], begin[rows] + (nth + 1) * step, nth == windows.per_row - 1)
    rows, nth = np.repeat(numbers, windows.per_row), np.tile(np.arange(windows.per_row), len(times_ms))
    starts = (times_ms - (times_ms - offset) % step)[rows] - nth * step
    found = Assigned(rows, starts, starts + size, nth == 0)
    if size % step == 0:
        return found
    inside = starts + size > times_ms[rows]  # the first window of those may have ended
    return Assigned(*(column[inside] for column in found))


def ends_by(windows: Windows, times_ms: Longs, passed_ms: Longs) -> Longs:
    """How many of the windows that a time is in have their last moment at or before another time, or more, if that is later than
    the last moment of all; less than one for none."""
    following = (windows.offset_ms + (windows.size_ms if windows.kind == "HOP" else 0) - times_ms - 1) % windows.step_ms
    first = times_ms + 1 + following  # the first end
    return (passed_ms + 1 - first) // windows.step_ms + 1


def duration_us(us: int) -> str:
    """A duration in microseconds, which may be negative."""
    return f"{'-' * (us < 0)}{duration(abs(us) // 1000)}" if us % 1000 == 0 else f"{us} us"


def duration(ms: int) -> str:
    """A duration in the largest unit of which it is a multiple."""
    for unit, size in _UNITS:
        if ms and ms % size == 0:
            return f"{ms // size} {unit}{'s' * (ms != size)}"
    return f"{ms} ms"

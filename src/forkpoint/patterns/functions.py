"""The functions that receive matches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeAlias

from forkpoint.functions import Function, OutputTag
from forkpoint.functions.output_tag import Emitted
from forkpoint.types.variables import IN, OUT

Matched: TypeAlias = dict[str, list[Any]]
"""The elements of a match by the name of their stage, in order; stages without elements are missing."""


class PatternProcessFunction(Function, Generic[IN, OUT]):
    """Receives each match, and emits any number of elements, to the main output and side outputs."""

    class Context(ABC):
        """The context of a match."""

        @abstractmethod
        def timestamp(self) -> int:
            """The time of the match's last element, or at which it timed out, in int milliseconds."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """The processing time of the epoch, in int milliseconds."""

    @abstractmethod
    def process_match(self, match: dict[str, list[IN]], ctx: PatternProcessFunction.Context, /) -> Emitted[OUT]:
        """Return or yield the elements to emit: ``yield x``, or ``yield tag, x`` to a side output."""


class TimedOutPartialMatchHandler(ABC, Generic[IN]):
    """A second base of a PatternProcessFunction that also receives partial matches whose time is over."""

    @abstractmethod
    def process_timed_out_match(self, match: dict[str, list[IN]], ctx: PatternProcessFunction.Context, /) -> Emitted[Any]:
        """Return or yield the elements to emit, like ``process_match``; most programs give them to a side output."""


class Selecting(PatternProcessFunction[Any, Any]):
    """Emits one element, or several (``flat``), for each match."""

    def __init__(self, select: Callable[[Matched], Any], *, flat: bool) -> None:
        self._select, self._flat = select, flat

    def process_match(self, match: Matched, _: PatternProcessFunction.Context) -> Iterable[Any] | None:
        found = self._select(match)
        return found if self._flat else (found,)


class SelectingTimedOut(Selecting, TimedOutPartialMatchHandler[Any]):
    """Also emits what a second function makes of a timed-out partial match and its time, to a side output."""

    def __init__(
        self, select: Callable[[Matched], Any], tag: OutputTag[Any], timed_out: Callable[[Matched, int], Any], *, flat: bool
    ) -> None:
        super().__init__(select, flat=flat)
        self._tag, self._timed_out = tag, timed_out

    def process_timed_out_match(self, match: Matched, ctx: PatternProcessFunction.Context) -> Iterable[Any]:
        found = self._timed_out(match, ctx.timestamp())
        return [(self._tag, each) for each in (found if self._flat else (found,)) or ()]

"""CEP: matches patterns in streams."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Generic

from forkpoint.api.streams.base import check_type, operator_name
from forkpoint.api.streams.keys import ONE_KEY
from forkpoint.api.streams.signatures import type_of_output
from forkpoint.api.streams.streams import DataStream, KeyedStream
from forkpoint.errors import GraphError
from forkpoint.functions import OutputTag, to_ms
from forkpoint.functions.base import no_class
from forkpoint.graph.transformations import is_endless
from forkpoint.patterns.compiling import automaton_of
from forkpoint.patterns.functions import Matched, PatternProcessFunction, Selecting, SelectingTimedOut
from forkpoint.patterns.operator import Comparator, PatternSpec
from forkpoint.patterns.pattern import Pattern
from forkpoint.types import TypeInformation
from forkpoint.types.variables import R, T

_log = logging.getLogger("forkpoint")


class CEP:
    """Complex event processing, after Flink's library of that name."""

    @staticmethod
    def pattern(
        stream: DataStream[T],
        pattern: Pattern,
        comparator: Comparator | None = None,
        *,
        keep_events: timedelta | int | None = None,
    ) -> PatternStream[T]:
        """Match a pattern in the elements of each key, in the order of their timestamps.

        ``stream``: keyed; all elements of a stream without keys go through one subtask. ``comparator(a, b)``: negative if ``a``
        comes before ``b``, for elements with one timestamp; without it they keep the order in which they came. ``keep_events``:
        for how long (int: ms) all events of a key stay in state, so that a changed pattern is matched in them, too; without it
        only those of partial matches. ConfigError for less than 1 ms, GraphError for a pattern that can never match, or whose
        end cannot be known.
        """
        check_type(stream, DataStream, "CEP.pattern")
        check_type(pattern, Pattern, "CEP.pattern")
        if comparator is not None and not callable(comparator):
            raise GraphError(f"CEP.pattern() takes a comparator(a, b) that returns a number, not {comparator!r}")
        bound = pattern.bound_to(stream.get_type())
        stage = automaton_of(bound).waits_forever()
        if stage is not None and is_endless(stream._edges):
            _log.warning(
                "the pattern %s keeps partial matches that wait for stage %r for ever, so its state grows as long as its input "
                "goes on: end them with within(…)",
                pattern.outline,
                stage,
            )
        keep_ms = 0 if keep_events is None else to_ms(keep_events, "keep_events of CEP.pattern()", minimum_ms=1)
        return PatternStream(stream, bound, comparator, _keep_ms=keep_ms)


@dataclass(frozen=True)
class PatternStream(Generic[T]):
    """The matches of a pattern, until a function makes a stream of them. Created by ``CEP.pattern``."""

    _input: DataStream[T]
    _pattern: Pattern
    _comparator: Comparator | None = None
    _late_tag: OutputTag[Any] | None = None
    _event_time: bool = True
    _keep_ms: int = 0

    def in_event_time(self) -> PatternStream[T]:
        """Sort elements by their timestamps, each once the watermark has passed it; this is the default."""
        return replace(self, _event_time=True)

    def in_processing_time(self) -> PatternStream[T]:
        """Take elements in the order in which they come; the time is that of the epoch."""
        return replace(self, _event_time=False)

    def with_comparator(self, comparator: Comparator) -> PatternStream[T]:
        """Order elements with one timestamp, as in ``CEP.pattern``."""
        return replace(self, _comparator=comparator)

    def side_output_late_data(self, late_data_output_tag: OutputTag[T]) -> PatternStream[T]:
        """Give elements that come behind the watermark to a side output of the result; else they are dropped, and counted."""
        check_type(late_data_output_tag, OutputTag, "side_output_late_data")
        return replace(self, _late_tag=late_data_output_tag)

    def process(self, pattern_process_function: PatternProcessFunction[T, R], output_type: Any = None) -> DataStream[R]:
        """Apply a function to each match; also to partial matches that time out, if it is a TimedOutPartialMatchHandler."""
        no_class(pattern_process_function, "process()")
        check_type(pattern_process_function, PatternProcessFunction, "process")
        found = type_of_output(output_type, pattern_process_function, "process_match", many=True)
        return self._matches(pattern_process_function, "process", pattern_process_function, found)

    def select(
        self,
        pattern_select_function: Callable[[dict[str, list[T]]], R],
        output_type: Any = None,
        *,
        timed_out_partial_matches_tag: OutputTag[Any] | None = None,
        pattern_timeout_function: Callable[[dict[str, list[T]], int], Any] | None = None,
    ) -> DataStream[R]:
        """Emit one element for each match: ``select(match)``, where ``match`` has the elements by stage.

        ``pattern_timeout_function(partial match, time in int ms)`` makes one element of each partial match that times out, for
        the side output ``timed_out_partial_matches_tag``.
        """
        found = type_of_output(output_type, pattern_select_function, "__call__")
        timed_out = (timed_out_partial_matches_tag, pattern_timeout_function)
        return self._selected(pattern_select_function, "select", timed_out, found, flat=False)

    def flat_select(
        self,
        pattern_flat_select_function: Callable[[dict[str, list[T]]], Iterable[R] | None],
        output_type: Any = None,
        *,
        timed_out_partial_matches_tag: OutputTag[Any] | None = None,
        pattern_flat_timeout_function: Callable[[dict[str, list[T]], int], Iterable[Any] | None] | None = None,
    ) -> DataStream[R]:
        """Like ``select``, with functions that return any number of elements."""
        found = type_of_output(output_type, pattern_flat_select_function, "__call__", many=True)
        timed_out = (timed_out_partial_matches_tag, pattern_flat_timeout_function)
        return self._selected(pattern_flat_select_function, "flat_select", timed_out, found, flat=True)

    def _selected(
        self,
        select: Callable[[Matched], Any],
        method: str,
        timed_out: tuple[OutputTag[Any] | None, Callable[[Matched, int], Any] | None],
        output_type: TypeInformation | None,
        *,
        flat: bool,
    ) -> DataStream[Any]:
        no_class(select, f"{method}()")
        if not callable(select):
            instead = "; give it to process()" if isinstance(select, PatternProcessFunction) else ""
            raise GraphError(f"{method}() takes a function of a match, not {type(select).__name__}{instead}")
        tag, function = timed_out
        if (tag is None) is not (function is None):
            raise GraphError(f"{method}() needs both a tag and a function for partial matches that time out, or neither")
        if tag is None or function is None:
            return self._matches(Selecting(select, flat=flat), method, select, output_type)
        check_type(tag, OutputTag, method)
        if not callable(function):
            raise GraphError(f"{method}() takes a function of a partial match and its time, not {function!r}")
        return self._matches(SelectingTimedOut(select, tag, function, flat=flat), method, select, output_type)

    def _matches(
        self, function: PatternProcessFunction[Any, Any], method: str, named: Any, output_type: TypeInformation | None
    ) -> DataStream[Any]:
        keyed = self._input if isinstance(self._input, KeyedStream) else self._input._keyed(ONE_KEY)
        spec = PatternSpec(
            self._pattern,
            function,
            keyed._element_type,
            self._comparator,
            self._late_tag,
            self._event_time,
            keep_ms=self._keep_ms,
        )
        return keyed._operator(spec, operator_name(f"pattern {method}", named), output_type)

"""Functions for joins and co-groups, and interval and temporal joins as KeyedCoProcessFunctions. Times are int milliseconds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from inspect import isgeneratorfunction
from itertools import chain, product, starmap
from typing import Any, Generic, Literal, NamedTuple

from forkpoint.errors import GraphError
from forkpoint.functions.adapters import FunctionAdapter
from forkpoint.functions.base import Function
from forkpoint.functions.co_functions import KeyedCoProcessFunction
from forkpoint.functions.context import RuntimeContext
from forkpoint.functions.output_tag import Emitted, OutputTag
from forkpoint.functions.process import KeyedProcessFunction
from forkpoint.functions.state.descriptors import MapStateDescriptor, StateDescriptor, declared_states
from forkpoint.functions.state.handles import MapState
from forkpoint.functions.windows.functions import WindowFunction
from forkpoint.types import Field, TypeInformation, Types
from forkpoint.types.kinds.containers import optional
from forkpoint.types.kinds.records import classless
from forkpoint.types.variables import IN1, IN2, OUT


class JoinFunction(Function, Generic[IN1, IN2, OUT]):
    """Joins a pair to one result. ``second`` is None if an outer join found no match."""

    @abstractmethod
    def join(self, first: IN1, second: IN2, /) -> OUT:
        """Return the result for an element of the first stream and one of the second."""


class FlatJoinFunction(Function, Generic[IN1, IN2, OUT]):
    """Joins a pair to any number of results. ``second`` is None if an outer join found no match."""

    @abstractmethod
    def join(self, first: IN1, second: IN2, /) -> Iterable[OUT] | None:
        """Return or yield the results; None for none."""


class CoGroupFunction(Function, Generic[IN1, IN2, OUT]):
    """Processes all elements of two streams with the same key and window."""

    @abstractmethod
    def co_group(self, first: list[IN1], second: list[IN2], /) -> Iterable[OUT] | None:
        """Return or yield the results. At most one of the lists is empty; both are in stream order."""


class ProcessJoinFunction(Function, Generic[IN1, IN2, OUT]):
    """Processes the pairs of an interval join, with any number of results for a pair."""

    class Context(ABC):
        """The context of the current pair."""

        @abstractmethod
        def get_left_timestamp(self) -> int:
            """The left element's timestamp in int milliseconds."""

        @abstractmethod
        def get_right_timestamp(self) -> int:
            """The right element's timestamp in int milliseconds."""

        @abstractmethod
        def timestamp(self) -> int:
            """The greater of the two timestamps, which the results have, in int milliseconds."""

    @abstractmethod
    def process_element(self, left: IN1, right: IN2, ctx: ProcessJoinFunction.Context, /) -> Emitted[OUT]:
        """Return or yield the results: ``yield x``, or ``yield tag, x`` to a side output."""


class TaggedUnion(NamedTuple):
    """An element of one of two joined streams, as assigners, triggers and evictors of window joins see it.

    ``side`` tells which field has the element, ``left`` or ``right``; the other is None.
    """

    side: Literal["left", "right"]
    left: Any
    right: Any


class CallableAdapter(FunctionAdapter):
    """Wraps a user function or plain callable. ``call``: the function's ``method``, or the callable."""

    def __init__(self, function: Any, method: str) -> None:
        super().__init__(function)
        self._is_function = isinstance(function, Function)
        self.call: Callable[..., Any] = getattr(function, method) if self._is_function else function

    def open(self, runtime_context: RuntimeContext) -> None:
        if self._is_function:
            super().open(runtime_context)

    def close(self) -> None:
        if self._is_function:
            super().close()


def is_flat(function: Any) -> bool:
    """Whether a join function gives any number of results: a FlatJoinFunction or generator function."""
    if isinstance(function, Function):
        return isinstance(function, FlatJoinFunction)
    return isgeneratorfunction(function) or isgeneratorfunction(getattr(type(function), "__call__", None))  # noqa: B004


class JoinedWindow(CallableAdapter, WindowFunction):
    """Calls a join function for all pairs of a window."""

    def __init__(self, function: Any) -> None:
        super().__init__(function, "join")
        self._flat = is_flat(function)

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        first, second = sides(inputs)
        pairs = starmap(self.call, product(first, second))
        return chain.from_iterable(filter(None, pairs)) if self._flat else pairs


class CoGroupedWindow(CallableAdapter, WindowFunction):
    """Calls a co-group function with a window's elements of either stream."""

    def __init__(self, function: Any) -> None:
        super().__init__(function, "co_group")

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any] | None:
        results: Iterable[Any] | None = self.call(*sides(inputs))
        return results


def sides(inputs: Iterable[Any]) -> tuple[list[Any], list[Any]]:
    """Split tagged elements into the elements of the two streams."""
    left: list[Any] = []
    right: list[Any] = []
    for side, first, second in inputs:
        if side == "left":
            left.append(first)
        else:
            right.append(second)
    return left, right


def tag_left(value: Any) -> TaggedUnion:
    return TaggedUnion("left", value, None)


def tag_right(value: Any) -> TaggedUnion:
    return TaggedUnion("right", None, value)


def tagged_type(left: TypeInformation, right: TypeInformation) -> TypeInformation:
    """The TaggedUnion type of two streams. Decoded elements are namedtuples with the same fields."""
    members = (Field("side", Types.STRING()), Field("left", optional(left)), Field("right", optional(right)))
    return classless("namedtuple", "TaggedUnion", members)


@dataclass(frozen=True)
class TaggedKey:
    """Selects the key of a tagged element with the selector of its side."""

    left: Callable[[Any], Any]
    right: Callable[[Any], Any]

    def __call__(self, element: TaggedUnion) -> Any:
        return self.left(element.left) if element.side == "left" else self.right(element.right)


@dataclass(frozen=True)
class Interval:
    """The time bounds of an interval join: ``lower_ms <= right - left <= upper_ms``."""

    lower_ms: int
    upper_ms: int

    @property
    def left_kept_ms(self) -> int:
        """How long left elements are kept to match later ones."""
        return max(0, self.upper_ms)

    @property
    def right_kept_ms(self) -> int:
        """How long right elements are kept to match later ones."""
        return max(0, -self.lower_ms)


class _JoinAdapter(CallableAdapter, KeyedCoProcessFunction):
    """Wraps a user function, and declares the states of the join and of the function."""

    def __init__(self, function: Any, method: str, own: Mapping[str, StateDescriptor]) -> None:
        super().__init__(function, method)
        self._own = own

    def declare_states(self) -> dict[str, StateDescriptor]:
        of_function = declared_states(self.function)
        for name in {d.name for d in self._own.values()} & {d.name for d in of_function.values()}:
            raise GraphError(
                f"{type(self.function).__name__}: the join itself has a state named {name!r}; rename the function's state"
            )
        return {**self._own, **of_function}


class IntervalJoin(_JoinAdapter):
    """Flink's IntervalJoinOperator: matches each element with the buffered elements of the other side.

    ``stamps`` collects the timestamps of outputs; ``dropped`` counts late elements without a side output.
    """

    left: MapState[int, list[Any]]
    right: MapState[int, list[Any]]

    def __init__(
        self,
        function: Any,
        interval: Interval,
        left_type: TypeInformation,
        right_type: TypeInformation,
        left_late: OutputTag | None,
        right_late: OutputTag | None,
    ) -> None:
        fingerprint = f"interval join from {interval.lower_ms} ms to {interval.upper_ms} ms"
        own = {
            "left": _by_time("left-buffer", Types.LIST(left_type), fingerprint),
            "right": _by_time("right-buffer", Types.LIST(right_type), fingerprint),
        }
        super().__init__(function, "process_element", own)
        self._interval, self._left_late, self._right_late = interval, left_late, right_late
        self._context = _PairContext()
        self.stamps: list[int] = []
        self.dropped = 0

    def process_element1(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        timestamp, interval = timestamp_of(ctx), self._interval
        if timestamp < ctx.timer_service().current_watermark():
            yield from self._late(self._left_late, value, timestamp)
            return
        _append(self.left, timestamp, value)
        ctx.timer_service().register_event_time_timer(timestamp + interval.left_kept_ms)
        for time, others in _between(self.right, timestamp + interval.lower_ms, timestamp + interval.upper_ms):
            for other in others:
                yield from self._emit(value, other, timestamp, time)

    def process_element2(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        timestamp, interval = timestamp_of(ctx), self._interval
        if timestamp < ctx.timer_service().current_watermark():
            yield from self._late(self._right_late, value, timestamp)
            return
        _append(self.right, timestamp, value)
        ctx.timer_service().register_event_time_timer(timestamp + interval.right_kept_ms)
        for time, others in _between(self.left, timestamp - interval.upper_ms, timestamp - interval.lower_ms):
            for other in others:
                yield from self._emit(other, value, time, timestamp)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> None:
        """Remove expired elements. A cleanup time corresponds to one timestamp on each side."""
        self.left.remove(timestamp - self._interval.left_kept_ms)
        self.right.remove(timestamp - self._interval.right_kept_ms)

    def _late(self, tag: OutputTag | None, value: Any, timestamp: int) -> Iterator[Any]:
        if tag is None:
            self.dropped += 1
        else:
            self.stamps.append(timestamp)
            yield tag, value

    def _emit(self, left: Any, right: Any, left_ms: int, right_ms: int) -> Iterator[Any]:
        context = self._context
        context.left_ms, context.right_ms = left_ms, right_ms
        results = self.call(left, right, context)
        for result in () if results is None else results:
            self.stamps.append(max(left_ms, right_ms))
            yield result


class _PairContext(ProcessJoinFunction.Context):
    """Reused for all pairs."""

    left_ms = right_ms = 0

    def get_left_timestamp(self) -> int:
        return self.left_ms

    def get_right_timestamp(self) -> int:
        return self.right_ms

    def timestamp(self) -> int:
        return max(self.left_ms, self.right_ms)


class TemporalJoin(_JoinAdapter):
    """Flink SQL's event-time temporal join: matches each element with the version valid at its timestamp.

    It buffers elements until the watermark reaches their timestamp, because all versions up to it have then arrived. Of the
    versions behind the watermark, it keeps only the latest.
    """

    waiting: MapState[int, list[Any]]
    versions: MapState[int, Any]

    def __init__(self, function: Any, left_type: TypeInformation, right_type: TypeInformation, *, outer: bool) -> None:
        own = {"waiting": _by_time("waiting", Types.LIST(left_type)), "versions": _by_time("versions", right_type)}
        super().__init__(function, "join", own)
        self._outer, self._flat = outer, is_flat(function)

    def process_element1(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        timestamp = timestamp_of(ctx)
        _append(self.waiting, timestamp, value)
        ctx.timer_service().register_event_time_timer(timestamp)

    def process_element2(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        timestamp = timestamp_of(ctx)
        self.versions.put(timestamp, value)
        ctx.timer_service().register_event_time_timer(timestamp)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        known = [time for time in self.versions.keys() if time <= timestamp]  # noqa: SIM118
        latest = max(known, default=None)
        version = None if latest is None else self.versions.get(latest)
        elements = self.waiting.get(timestamp)
        if elements is not None:
            self.waiting.remove(timestamp)
            if latest is not None or self._outer:
                for element in elements:
                    result = self.call(element, version)
                    if not self._flat:
                        yield result
                    elif result is not None:
                        yield from result
        for time in known:
            if time != latest:
                self.versions.remove(time)


def _by_time(name: str, value_type: TypeInformation, fingerprint: str | None = None) -> MapStateDescriptor[int, Any]:
    descriptor: MapStateDescriptor[int, Any] = MapStateDescriptor(name, Types.LONG(), value_type)
    descriptor.fingerprint = fingerprint
    return descriptor


def _append(buffer: MapState[int, list[Any]], timestamp: int, value: Any) -> None:
    found = buffer.get(timestamp)
    elements = [] if found is None else found
    elements.append(value)
    buffer.put(timestamp, elements)


def _between(buffer: MapState[int, list[Any]], first: int, last: int) -> list[tuple[int, list[Any]]]:
    """The entries from ``first`` to ``last``, in time order."""
    return sorted((entry for entry in buffer.items() if first <= entry[0] <= last), key=lambda entry: entry[0])


def timestamp_of(ctx: KeyedProcessFunction.Context) -> int:
    """The timestamp of the current element; ValueError without one."""
    timestamp = ctx.timestamp()
    if timestamp is None:
        raise ValueError("the element has no timestamp, which this join needs; assign timestamps and watermarks on both streams")
    return timestamp

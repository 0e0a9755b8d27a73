"""Interval and temporal joins as KeyedCoProcessFunctions. Times are int milliseconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from forkpoint.errors import GraphError
from forkpoint.functions.co_functions import KeyedCoProcessFunction
from forkpoint.functions.descriptors import MapStateDescriptor, StateDescriptor, declared_states
from forkpoint.functions.join_functions import CallableAdapter, ProcessJoinFunction, is_flat
from forkpoint.functions.output_tag import OutputTag
from forkpoint.functions.process import KeyedProcessFunction
from forkpoint.functions.state import MapState
from forkpoint.types import TypeInformation, Types


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


class _Joining(CallableAdapter, KeyedCoProcessFunction):
    """Wraps a user function, whose states it declares together with its own."""

    def __init__(self, function: Any, method: str, own: Mapping[str, StateDescriptor]) -> None:
        super().__init__(function, method)
        self._own = own

    def declare_states(self) -> dict[str, StateDescriptor]:
        theirs = declared_states(self.function)
        for name in {d.name for d in self._own.values()} & {d.name for d in theirs.values()}:
            raise GraphError(
                f"{type(self.function).__name__}: the join itself has a state named {name!r}; rename the function's state"
            )
        return {**self._own, **theirs}


class IntervalJoin(_Joining):
    """Flink's IntervalJoinOperator: matches each element with the buffered ones of the other side.

    ``stamps`` collects the timestamp of each output, ``dropped`` counts late elements without a side output.
    """

    left: MapState[int, list[Any]]
    right: MapState[int, list[Any]]

    def __init__(
        self, function: Any, interval: Interval, left_type: TypeInformation, right_type: TypeInformation,
        left_late: OutputTag | None, right_late: OutputTag | None,
    ) -> None:  # fmt: skip
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
        """Remove expired elements of both sides: a cleanup time corresponds to one timestamp on each side."""
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


class TemporalJoin(_Joining):
    """Flink SQL's event-time temporal join: matches each element with the version valid at its timestamp.

    Elements are buffered until the watermark reaches their timestamp, when all versions up to it have arrived. Of the
    versions behind the watermark, only the latest is kept.
    """

    waiting: MapState[int, list[Any]]
    versions: MapState[int, Any]

    def __init__(self, function: Any, left_type: TypeInformation, right_type: TypeInformation, *, outer: bool) -> None:
        own = {
            "waiting": _by_time("waiting", Types.LIST(left_type)),
            "versions": _by_time("versions", right_type),
        }
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
        raise ValueError(
            "the element has no timestamp, which this join needs; assign timestamps and watermarks on both streams"
        )
    return timestamp

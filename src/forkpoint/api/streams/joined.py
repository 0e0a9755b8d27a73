"""Window joins, co-groups, interval joins and temporal joins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, cast, overload

from typing_extensions import TypeVar

from forkpoint.api.streams.base import FieldNames, KeyFunction, StreamBase, check_type, operator_name
from forkpoint.api.streams.windowed import WindowSettings
from forkpoint.errors import GraphError
from forkpoint.functions import (
    MIN_WATERMARK,
    CheckpointedFunction,
    CoGroupFunction,
    FlatJoinFunction,
    Function,
    JoinFunction,
    OutputTag,
    ProcessJoinFunction,
    TaggedUnion,
    WindowAssigner,
    joins,
    to_ms,
)
from forkpoint.functions.base import no_class
from forkpoint.functions.joins import (
    CoGroupedWindow,
    Interval,
    JoinedWindow,
    TaggedKey,
    is_flat,
    tag_left,
    tag_right,
    tagged_type,
)
from forkpoint.graph.transformations import KeyBy
from forkpoint.runtime.operators.co_process import IntervalJoinSpec, KeyedCoProcessSpec
from forkpoint.runtime.operators.stateless import MapSpec
from forkpoint.types import TypeInformation, same_keys
from forkpoint.types.variables import A, B, K, K_co, R, T_co

if TYPE_CHECKING:
    from forkpoint.api.streams.streams import DataStream, KeyedStream

ProcessJoinCallable: TypeAlias = ProcessJoinFunction[A, B, R] | Callable[[A, B, ProcessJoinFunction.Context], Iterable[R] | None]
CoGroupCallable: TypeAlias = CoGroupFunction[A, B, R] | Callable[[list[A], list[B]], Iterable[R] | None]


class JoinMixin(StreamBase[T_co]):
    """Window joins."""

    def join(self, other_stream: DataStream[B]) -> JoinedStreams[T_co, B, JoinedWindows[T_co, B]]:
        """Join the elements of two streams that have the same key and window.

        ``first.join(second).where(key).equal_to(key).window(assigner).apply(function)``
        """
        return JoinedStreams(self, other_stream, "join", JoinedWindows)

    def co_group(self, other_stream: DataStream[B]) -> JoinedStreams[T_co, B, CoGroupedWindows[T_co, B]]:
        """Group the elements of two streams by key and window, even if only one stream has elements.

        ``first.co_group(second).where(key).equal_to(key).window(assigner).apply(function)``
        """
        return JoinedStreams(self, other_stream, "co_group", CoGroupedWindows)


class KeyedJoinMixin(StreamBase[T_co], Generic[T_co, K_co]):
    """Joins of two keyed streams by time."""

    def interval_join(self, other_stream: KeyedStream[B, K_co]) -> IntervalJoin[T_co, B]:
        """Join the elements of a key whose timestamps lie within an interval of each other.

        ``left.interval_join(right).between(lower, upper).process(function)``
        """
        check_both_keyed("interval_join", self, other_stream)
        return IntervalJoin(self, other_stream)

    def temporal_join(self, versions: KeyedStream[B, K_co]) -> TemporalJoin[T_co, B]:
        """Join each element with its key's version valid at its timestamp (Flink SQL's ``FOR SYSTEM_TIME AS OF``).

        An element of ``versions`` is valid from its timestamp until the key's next one.
        ``orders.temporal_join(rates).apply(function)``
        """
        check_both_keyed("temporal_join", self, versions)
        return TemporalJoin(self, versions)


class _OverTwoStreams(WindowSettings[TaggedUnion, Any], Generic[A, B]):
    """Windows over two streams. Assigner, trigger and evictor get the elements as TaggedUnion."""

    _tagged = True


class JoinedWindows(_OverTwoStreams[A, B]):
    """A window join. A late element emits all pairs of its window again."""

    @overload
    def apply(
        self, function: FlatJoinFunction[A, B, R] | Callable[[A, B], Iterator[R]], output_type: Any = None
    ) -> DataStream[R]: ...
    @overload
    def apply(self, function: JoinFunction[A, B, R] | Callable[[A, B], R], output_type: Any = None) -> DataStream[R]: ...
    def apply(self, function: Any, output_type: Any = None) -> DataStream[Any]:
        """Call ``function(first, second)`` for each pair of elements in a window.

        A FlatJoinFunction or generator function gives any number of results; a JoinFunction or other callable gives one.
        Results have the timestamp ``window.max_timestamp()``.
        """
        found = check_join("join", self._stream, function, output_type)
        return self._add(operator_name("join", function), "list", self._value_type, None, JoinedWindow(function), found)


class CoGroupedWindows(_OverTwoStreams[A, B]):
    """A window co-group."""

    def apply(self, function: CoGroupCallable[A, B, R], output_type: Any = None) -> DataStream[R]:
        """Call ``function(first, second)`` with the two lists of a window's elements; it returns an iterable or None.

        Results have the timestamp ``window.max_timestamp()``.
        """
        check_pair_function("co_group", function, CoGroupFunction)
        found = self._stream._output_type(output_type, function, "co_group", many=True)
        name = operator_name("co_group", function)
        return self._add(name, "list", self._value_type, None, CoGroupedWindow(function), found)


WINDOWS = TypeVar("WINDOWS", bound=_OverTwoStreams[Any, Any], default=Any)


@dataclass(frozen=True)
class _Side:
    stream: StreamBase[Any]
    key: KeyBy


class JoinedStreams(Generic[A, B, WINDOWS]):
    """Two streams to join; ``where`` sets the first key."""

    def __init__(self, first: StreamBase[A], second: StreamBase[B], operator: str, windows: type[WINDOWS]) -> None:
        first._check_environment(second, operator)
        self._first, self._second, self._operator, self._windows = first, second, operator, windows

    def where(self, key_selector: KeyFunction[A, K] | FieldNames, key_type: Any = None) -> Where[A, B, WINDOWS, K]:
        """Set the key of the first stream; selector and type are as in ``key_by``."""
        return Where(self, _Side(self._first, self._first._key_of(key_selector, key_type)))


class Where(Generic[A, B, WINDOWS, K]):
    """Two streams to join, the first with its key; ``equal_to`` sets the second."""

    def __init__(self, streams: JoinedStreams[A, B, WINDOWS], first: _Side) -> None:
        self._streams, self._first = streams, first

    def equal_to(self, key_selector: KeyFunction[B, K] | FieldNames, key_type: Any = None) -> EqualTo[WINDOWS]:
        """Set the key of the second stream. GraphError if its type differs from the first key's."""
        streams = self._streams
        second = _Side(streams._second, streams._second._key_of(key_selector, key_type))
        check_keys(streams._operator, self._first.key, second.key)
        return EqualTo(streams, self._first, second)


class EqualTo(Generic[WINDOWS]):
    """Two streams to join, with their keys; ``window`` sets the windows."""

    def __init__(self, streams: JoinedStreams[Any, Any, WINDOWS], first: _Side, second: _Side) -> None:
        self._streams, self._first, self._second = streams, first, second

    def window(self, window_assigner: WindowAssigner[TaggedUnion, Any]) -> WINDOWS:
        """Assign the elements of both streams to windows. A custom WindowAssigner gets them as TaggedUnion."""
        return self._streams._windows(_tagged(self._first, self._second), window_assigner)


def _tagged(first: _Side, second: _Side) -> KeyedStream[TaggedUnion]:
    """Both streams as one stream of TaggedUnion."""
    type = tagged_type(first.stream._element_type, second.stream._element_type)
    left, right = (
        side.stream._plain().forward()._operator(MapSpec(tag), name, type)
        for side, tag, name in ((first, tag_left, "first"), (second, tag_right, "second"))
    )
    key = KeyBy(TaggedKey(first.key.selector, second.key.selector), first.key.key_type)
    return left.union(right)._keyed(key)


class IntervalJoin(Generic[A, B]):
    """Two keyed streams to join; ``between`` sets the interval."""

    def __init__(self, left: StreamBase[A], right: StreamBase[B]) -> None:
        self._left, self._right = left, right

    def between(self, lower_bound: timedelta | int, upper_bound: timedelta | int) -> IntervalJoined[A, B]:
        """Join pairs whose timestamps satisfy ``left + lower_bound <= right <= left + upper_bound``.

        Bounds are timedelta or int ms and may be negative. ConfigError if ``lower_bound`` exceeds ``upper_bound``.
        """
        lower_ms = to_ms(lower_bound, "the lower bound", MIN_WATERMARK)
        upper_ms = to_ms(upper_bound, "the upper bound", lower_ms)
        return IntervalJoined(self._left, self._right, Interval(lower_ms, upper_ms))


class IntervalJoined(Generic[A, B]):
    """An interval join. Setters modify the object and return it, for chaining; ``process`` adds the operator."""

    def __init__(self, left: StreamBase[A], right: StreamBase[B], interval: Interval) -> None:
        self._left, self._right, self._interval = left, right, interval
        self._left_late: OutputTag | None = None
        self._right_late: OutputTag | None = None
        self._lower_exclusive = self._upper_exclusive = 0

    def lower_bound_exclusive(self) -> Self:
        """Exclude pairs exactly ``lower_bound`` apart."""
        self._lower_exclusive = 1
        return self

    def upper_bound_exclusive(self) -> Self:
        """Exclude pairs exactly ``upper_bound`` apart."""
        self._upper_exclusive = 1
        return self

    def side_output_left_late_data(self, output_tag: OutputTag) -> Self:
        """Send late elements of the left stream to a side output instead of dropping them."""
        check_type(output_tag, OutputTag, "side_output_left_late_data")
        self._left_late = output_tag
        return self

    def side_output_right_late_data(self, output_tag: OutputTag) -> Self:
        """Send late elements of the right stream to a side output instead of dropping them."""
        check_type(output_tag, OutputTag, "side_output_right_late_data")
        self._right_late = output_tag
        return self

    def process(self, process_join_function: ProcessJoinCallable[A, B, R], output_type: Any = None) -> DataStream[R]:
        """Call ``function(left, right, ctx)`` for each pair; it returns an iterable or None.

        Results are emitted when the second element of a pair arrives, with the greater of the two timestamps.
        """
        fn = process_join_function
        check_pair_function("interval_join", fn, ProcessJoinFunction)
        found = self._left._output_type(output_type, fn, "process_element", many=True)
        exact = Interval(self._interval.lower_ms + self._lower_exclusive, self._interval.upper_ms - self._upper_exclusive)
        types = (self._left._element_type, self._right._element_type)
        spec = IntervalJoinSpec(joins.IntervalJoin(fn, exact, *types, self._left_late, self._right_late))
        return self._left._two_inputs(self._right, spec, operator_name("interval_join", fn), found)


class TemporalJoin(Generic[A, B]):
    """A temporal join. Elements without a valid version are dropped, unless it is ``left_outer``."""

    def __init__(self, left: StreamBase[A], versions: StreamBase[B]) -> None:
        self._left, self._versions, self._outer = left, versions, False

    def left_outer(self) -> TemporalJoin[A, B | None]:
        """Join elements without a valid version with None. Modifies and returns the object."""
        self._outer = True
        return cast(TemporalJoin[A, B | None], self)

    @overload
    def apply(
        self, function: FlatJoinFunction[A, B, R] | Callable[[A, B], Iterator[R]], output_type: Any = None
    ) -> DataStream[R]: ...
    @overload
    def apply(self, function: JoinFunction[A, B, R] | Callable[[A, B], R], output_type: Any = None) -> DataStream[R]: ...
    def apply(self, function: Any, output_type: Any = None) -> DataStream[Any]:
        """Call ``function(element, version)`` for each element once the watermark has reached its timestamp.

        A FlatJoinFunction or generator function gives any number of results; a JoinFunction or other callable gives one.
        Results have the element's timestamp.
        """
        found = check_join("temporal_join", self._left, function, output_type)
        types = (self._left._element_type, self._versions._element_type)
        spec = KeyedCoProcessSpec(joins.TemporalJoin(function, *types, outer=self._outer))
        return self._left._two_inputs(self._versions, spec, operator_name("temporal_join", function), found)


def check_both_keyed(operator: str, first: StreamBase, second: StreamBase) -> None:
    """Raise GraphError unless both are keyed streams of one environment with the same key type."""
    first._check_environment(second, operator)
    if first._key is None or second._key is None:
        raise GraphError(f"{operator}() takes a keyed stream; call key_by() on the other stream, too")
    check_keys(operator, first._key, second._key)


def check_keys(operator: str, first: KeyBy, second: KeyBy) -> None:
    """Raise GraphError unless both keys have the same type: they are compared by their encoding."""
    if not same_keys(second.key_type.describe(), first.key_type.describe()):
        raise GraphError(
            f"{operator}(): the keys of the two streams have different types, {first.key_type!r} and {second.key_type!r}; "
            "give both the same key_type"
        )


def check_pair_function(operator: str, function: Any, *kinds: type[Function]) -> None:
    """Raise GraphError unless the function is one of these kinds or a plain callable, and has no operator state."""
    no_class(function, f"{operator}()")
    if not isinstance(function, kinds) and (isinstance(function, Function) or not callable(function)):
        names = ", a ".join(kind.__name__ for kind in kinds)
        raise GraphError(f"{operator}(): the function is a {names} or a callable, not {function!r}")
    if isinstance(function, CheckpointedFunction):
        raise GraphError(
            f"{operator}({type(function).__name__}): operator state (CheckpointedFunction) is not available in joins; "
            "declare keyed state on the function, or keep operator state in a function after the join"
        )


def check_join(operator: str, stream: StreamBase, function: Any, output_type: Any) -> TypeInformation | None:
    """The output type of a join function; GraphError if it is not one."""
    check_pair_function(operator, function, JoinFunction, FlatJoinFunction)
    return stream._output_type(output_type, function, "join", many=is_flat(function))

"""The streams: what a program chains its operators on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Generic, overload

from forkpoint.api.aggregating import check_batch_function, running_aggregates
from forkpoint.api.base import check_function, operator_name
from forkpoint.api.connected import ConnectMixin
from forkpoint.api.joined import JoinMixin, KeyedJoinMixin
from forkpoint.api.operator_settings import NamingMixin
from forkpoint.api.outputs import SinkMixin
from forkpoint.api.partitioning import PartitionMixin
from forkpoint.api.signatures import output_type as type_of_output
from forkpoint.api.sorting import sorted_by_event_time
from forkpoint.api.transforming import TransformMixin
from forkpoint.api.windowed import AllWindowedStream, WindowedStream, windowed_all
from forkpoint.errors import GraphError
from forkpoint.functions import (
    Aggregator,
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    CountWindow,
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedBatchFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    ReduceFunction,
    WindowAssigner,
    as_keyed_process,
    declared_states,
    to_ms,
)
from forkpoint.functions.fold import RunningFold
from forkpoint.graph.transformations import Edge, KeyBy, Partitioning
from forkpoint.runtime.operators.iteration import FeedbackSpec, IterationSpec
from forkpoint.runtime.operators.keyed_functions import MapWithStateSpec, ReduceSpec
from forkpoint.runtime.operators.keyed_process import KeyedProcessSpec
from forkpoint.runtime.operators.rolling import RollingKind
from forkpoint.types import TypeInformation, TypeLike, Types, infer_type, type_of
from forkpoint.types.variables import A, K_co, R, S, T_co, W

_loops = itertools.count()


class DataStream(
    TransformMixin[T_co], PartitionMixin[T_co], ConnectMixin[T_co], JoinMixin[T_co], SinkMixin[T_co], NamingMixin
):
    """A stream of elements. Methods add operators to the job and return new streams; nothing runs yet."""

    def iterate(self, max_wait_time: timedelta | int | None = None) -> IterativeStream[T_co]:
        """The start of a loop: build its body on the stream returned, and feed elements back with ``close_with``.

        ``max_wait_time`` is accepted for Flink's programs without effect: a bounded job ends when nothing goes round any
        more, which is known exactly.
        """
        if max_wait_time is not None:
            to_ms(max_wait_time, "the longest wait of an iteration")
        spec = IterationSpec(next(_loops), self._type or Types.ANY())
        return IterativeStream(self._env, (Edge(self._add(spec, "iteration", self._type)),), self._type)

    def window_all(self, window_assigner: WindowAssigner[T_co, W]) -> AllWindowedStream[T_co, W]:
        """Cut the stream into windows without regard to keys. All elements go through one subtask."""
        return windowed_all(self, window_assigner)

    def sort_by_event_time(self, late_data_tag: OutputTag[Any] | None = None) -> DataStream[T_co]:
        """The elements in the order of their timestamps, each once the watermark has passed it. All go through one subtask;
        see the keyed stream's ``sort_by_event_time``.
        """
        return sorted_by_event_time(self._under_one_key(), late_data_tag)

    def _stream(self, edges: tuple[Edge, ...], output_type: TypeInformation | None) -> DataStream:
        return DataStream(self._env, edges, output_type)

    def _keyed(self, key: KeyBy) -> KeyedStream[T_co]:
        return KeyedStream(self._env, self._partitioned(key), self._type)


class KeyedStream(KeyedJoinMixin[T_co, K_co], DataStream[T_co], Generic[T_co, K_co]):
    """A stream whose elements are brought together by key, so that functions can keep state for each key.

    Made by ``key_by``. What its operators emit is an ordinary stream again.
    """

    @property
    def key(self) -> KeyBy:
        """How the key is taken, and its type."""
        partitioning = self._edges[0].partitioning
        assert isinstance(partitioning, KeyBy)
        return partitioning

    def _partitioned(self, partitioning: Partitioning) -> tuple[Edge, ...]:
        if not isinstance(partitioning, KeyBy):
            raise GraphError(
                "the elements of a keyed stream go by their key, and not by forward(), rebalance(), rescale(), shuffle(), "
                "broadcast() or partition_custom() as well; call that on the stream ahead of key_by()"
            )
        return super()._partitioned(partitioning)

    def map(self, func: MapFunction[T_co, R] | Callable[[T_co], R], output_type: Any = None) -> DataStream[R]:
        """One element out for each element in. A MapFunction may have state for the element's key."""
        if not isinstance(func, MapFunction):
            return super().map(func, output_type)
        return self._with_key(func, MapFunction, "map", type_of_output(output_type, func, "map"))

    def flat_map(
        self, func: FlatMapFunction[T_co, R] | Callable[[T_co], Iterable[R] | None], output_type: Any = None
    ) -> DataStream[R]:
        """Any number of elements out for each element in. A FlatMapFunction may have state for the element's key."""
        if not isinstance(func, FlatMapFunction):
            return super().flat_map(func, output_type)
        return self._with_key(
            func, FlatMapFunction, "flat_map", type_of_output(output_type, func, "flat_map", many=True)
        )

    def filter(self, func: FilterFunction[T_co] | Callable[[T_co], bool]) -> DataStream[T_co]:
        """The elements for which the function is true. A FilterFunction may have state for the element's key."""
        if not isinstance(func, FilterFunction):
            return super().filter(func)
        return self._with_key(func, FilterFunction, "filter", self._type)

    def process(  # type: ignore[override]
        self, func: KeyedProcessFunction[K_co, T_co, R], output_type: Any = None
    ) -> DataStream[R]:
        """Any number of elements out, with state and timers of the key; see KeyedProcessFunction."""
        if isinstance(func, ProcessFunction):
            raise GraphError(
                f"process({type(func).__name__}): on a keyed stream it takes a KeyedProcessFunction; derive from that, "
                "or call process() ahead of key_by()"
            )
        if not isinstance(func, KeyedProcessFunction):
            raise GraphError(f"process() takes a KeyedProcessFunction, not {func!r}")
        declared_states(func)
        found = type_of_output(output_type, func, "process_element", many=True)
        return self._operator(KeyedProcessSpec(func), operator_name("process", func), found)

    def reduce(self, func: ReduceFunction[T_co] | Callable[[T_co, T_co], T_co]) -> DataStream[T_co]:
        """The running reduction: each element comes out as the result over its key's elements so far.

        ``func(result_so_far, element)`` returns the elements' own type, which is that of the state too.
        """
        check_function(func, ReduceFunction, "reduce", keyed=True)
        if declared_states(func):
            raise GraphError(
                f"reduce({type(func).__name__}): the result so far is its only state; use process() for more"
            )
        return self._operator(ReduceSpec(func, self._state_type), operator_name("reduce", func), self._type)

    def fold(self, initial_value: A, function: Callable[[A, T_co], A], output_type: Any = None) -> DataStream[A]:
        """The running fold: ``function(folded so far, element)`` for each element, from ``initial_value`` on for each key.

        ``output_type``: that of the folded value, by default that of ``initial_value``.
        """
        type = infer_type([initial_value]) if output_type is None else type_of(output_type)
        return self.map_with_state(RunningFold(initial_value, function), type, type)

    def sum(self, position_to_sum: int | str = 0) -> DataStream[T_co]:
        """Each element with its field (by index or name) replaced by the sum over the key's elements so far."""
        return self._rolling("sum", position_to_sum)

    def min(self, position_to_min: int | str = 0) -> DataStream[T_co]:
        """Each element with its field replaced by the least so far; other fields are the key's first element's."""
        return self._rolling("min", position_to_min)

    def max(self, position_to_max: int | str = 0) -> DataStream[T_co]:
        """Each element with its field replaced by the greatest so far; other fields are the key's first element's."""
        return self._rolling("max", position_to_max)

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream[T_co]:
        """For each element, the key's element with the least value of the field so far; of equals, the first."""
        return self._rolling("min_by", position_to_min_by)

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream[T_co]:
        """For each element, the key's element with the greatest value of the field so far; of equals, the first."""
        return self._rolling("max_by", position_to_max_by)

    def agg(self, **aggregates: Aggregator[Any]) -> DataStream[Any]:
        """Running aggregates: ``agg(total=fp.Sum("price"), n=fp.Count())``, one row for each element.

        A row has the key, in columns named after the fields that make it up (``key`` where it is computed), and the
        aggregates over the key's elements so far, this one included. Where elements are columns they are computed so.
        """
        spec = running_aggregates(self.key, aggregates, self._type)
        return self._operator(spec, f"agg({', '.join(aggregates)})", spec.shape.type)

    @overload
    def process_batch(self, func: KeyedBatchFunction, output_type: TypeLike[R]) -> DataStream[R]: ...
    @overload
    def process_batch(self, func: KeyedBatchFunction, output_type: Any = None) -> DataStream[Any]: ...
    def process_batch(self, func: KeyedBatchFunction, output_type: Any = None) -> DataStream[Any]:
        """All of an epoch's elements of a subtask at once, as an Arrow table; see KeyedBatchFunction.

        ``output_type``: the type whose fields are the columns that come out.
        """
        from forkpoint.runtime.columnar.batch_process import KeyedBatchSpec

        found = None if output_type is None else type_of(output_type)
        check_batch_function(func, found, self._type)
        return self._operator(KeyedBatchSpec(func), operator_name("process_batch", func), found)

    @overload
    def map_with_state(
        self, func: Callable[[T_co, S | None], tuple[R, S | None]], state_type: TypeLike[S], output_type: Any = None
    ) -> DataStream[R]: ...
    @overload
    def map_with_state(
        self, func: Callable[[T_co, Any], tuple[R, Any]], state_type: Any, output_type: Any = None
    ) -> DataStream[R]: ...
    def map_with_state(
        self, func: Callable[[T_co, Any], tuple[R, Any]], state_type: Any, output_type: Any = None
    ) -> DataStream[R]:
        """``func(element, state or None) -> (output, new state or None)``, with one state for each key.

        None as the new state removes it. ``state_type``: ``Types.*`` or a Python type. An annotation
        ``-> tuple[Output, State | None]`` tells the output type where it isn't given.
        """
        return self._stateful("map_with_state", func, state_type, output_type, flat=False)

    @overload
    def flat_map_with_state(
        self, func: Callable[[T_co, S | None], tuple[Iterable[R] | None, S | None]], state_type: TypeLike[S],
        output_type: Any = None,
    ) -> DataStream[R]: ...  # fmt: skip
    @overload
    def flat_map_with_state(
        self, func: Callable[[T_co, Any], tuple[Iterable[R] | None, Any]], state_type: Any, output_type: Any = None
    ) -> DataStream[R]: ...
    def flat_map_with_state(
        self, func: Callable[[T_co, Any], tuple[Iterable[R] | None, Any]], state_type: Any, output_type: Any = None
    ) -> DataStream[R]:
        """As ``map_with_state`` with many outputs: ``func(element, state) -> (iterable or None, new state)``."""
        return self._stateful("flat_map_with_state", func, state_type, output_type, flat=True)

    def window(self, window_assigner: WindowAssigner[T_co, W]) -> WindowedStream[T_co, K_co, W]:
        """Cut each key's elements into windows: by time, sessions, or a WindowAssigner of your own."""
        return WindowedStream(self, window_assigner)

    def count_window(self, size: int, slide: int = 0) -> WindowedStream[T_co, K_co, CountWindow]:
        """Windows of ``size`` elements of a key, each beginning ``slide`` elements behind the last; 0: ``size``.

        Full windows come out. ConfigError for sizes below 1.
        """
        if slide == 0:
            return WindowedStream(self, CountTumblingWindowAssigner.of(size))
        return WindowedStream(self, CountSlidingWindowAssigner.of(size, slide))

    def sort_by_event_time(self, late_data_tag: OutputTag[Any] | None = None) -> DataStream[T_co]:
        """Each key's elements in the order of their timestamps, those with the same as they came (Flink SQL's ``ORDER BY``
        a time attribute).

        An element comes out once the watermark has passed its timestamp; until then it is state. Late ones, at or behind
        the watermark when they come, go to ``late_data_tag`` (``get_side_output`` of the result has them), nowhere
        without one. An element without a timestamp is a GraphError while the job runs.
        """
        return sorted_by_event_time(self, late_data_tag)

    @property
    def _state_type(self) -> TypeInformation[T_co]:
        return self._type or Types.ANY()

    def _with_key(
        self, func: MapFunction | FlatMapFunction | FilterFunction, kind: type[Function], operator: str,
        output_type: TypeInformation | None,
    ) -> DataStream:  # fmt: skip
        check_function(func, kind, operator, keyed=True)
        return self._operator(KeyedProcessSpec(as_keyed_process(func)), operator_name(operator, func), output_type)

    def _rolling(self, kind: RollingKind, position: int | str) -> DataStream:
        from forkpoint.runtime.columnar.running import RollingSpec

        self._check_field(kind, position)
        return self._operator(RollingSpec(kind, position, self._state_type), f"{kind}({position})", self._type)

    def _check_field(self, kind: str, position: int | str) -> None:
        fields = self._type.fields if self._type is not None else None
        if fields is not None:
            names = [f.name for f in fields]
            known = position in names if isinstance(position, str) else -len(names) <= position < len(names)
            if not known:
                raise GraphError(f"{kind}({position!r}): the elements have no such field; they have {', '.join(names)}")

    def _stateful(self, operator: str, func: Any, state_type: Any, output_type: Any, *, flat: bool) -> DataStream:
        if not callable(func):
            raise GraphError(f"{operator}() takes a callable func(element, state), not {func!r}")
        found = type_of_output(output_type, func, "__call__", many=flat, with_state=True)
        return self._operator(MapWithStateSpec(func, type_of(state_type), flat), operator_name(operator, func), found)


class IterativeStream(DataStream[T_co]):
    """The start of a loop: the elements of the stream it was made of, and those that are fed back.

    Made by ``iterate``. Needs a uid, as the elements that are on their way at an epoch's end are saved with it.
    """

    def close_with(self, feedback_stream: DataStream[R]) -> DataStream[R]:
        """Feed a stream that was made from this one back to the start; returns that stream.

        What an epoch feeds back comes in again at the start of the next one, with its timestamp. GraphError where the type
        is another one, or (when the job is compiled) where the stream does not come from this iteration or a second one
        is fed back.
        """
        if not isinstance(feedback_stream, DataStream) or feedback_stream._env is not self._env:
            raise GraphError(f"close_with() takes a stream that was made from this iteration, not {feedback_stream!r}")
        mine, other = self._type, feedback_stream._type
        if mine is not None and other is not None and mine != other:
            raise GraphError(
                f"close_with(): the iteration's elements are of type {mine}, those fed back are of type {other}"
            )
        start = self._edges[0].upstream.spec
        assert isinstance(start, IterationSpec)
        feedback_stream._add(FeedbackSpec(start.loop, start.element_type), "feedback", None)
        return feedback_stream

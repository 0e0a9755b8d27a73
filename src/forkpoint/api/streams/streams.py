"""DataStream, KeyedStream and IterativeStream."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from datetime import timedelta
from operator import itemgetter
from typing import Any, Generic, overload

from forkpoint.api.streams.aggregates import aggregates_of, check_batch_function
from forkpoint.api.streams.base import check_function, check_type, operator_name
from forkpoint.api.streams.connected import ConnectMixin
from forkpoint.api.streams.joined import JoinMixin, KeyedJoinMixin
from forkpoint.api.streams.keys import ONE_KEY, PickFields, timestamp_column
from forkpoint.api.streams.lookups import LookupJoinMixin
from forkpoint.api.streams.operator_settings import NamingMixin
from forkpoint.api.streams.outputs import SinkMixin
from forkpoint.api.streams.windowed import AllWindowedStream, WindowedStream
from forkpoint.errors import GraphError
from forkpoint.functions import (
    Aggregator,
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    CountWindow,
    FilterFunction,
    FlatMapFunction,
    KeyedBatchFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    ReduceFunction,
    WatermarkStrategy,
    WindowAssigner,
    declared_states,
    to_ms,
)
from forkpoint.functions.adapters import KeyedAdapter, RunningFold
from forkpoint.functions.base import no_class
from forkpoint.graph.specs import OperatorSpec, TimestampsSpec
from forkpoint.graph.transformations import Edge, KeyBy, Partitioning
from forkpoint.runtime.operators.iteration import FeedbackSpec, IterationSpec
from forkpoint.runtime.operators.keyed_functions import MapWithStateSpec, ReduceSpec
from forkpoint.runtime.operators.keyed_process import KeyedProcessSpec
from forkpoint.runtime.operators.rolling import RollingKind
from forkpoint.runtime.operators.stateless import FilterSpec, FlatMapSpec, MapSpec, ProcessSpec
from forkpoint.types import TypeInformation, TypeLike, Types, infer_type, type_of
from forkpoint.types.variables import A, K_co, R, S, T_co, W

_loops = itertools.count()


class DataStream(ConnectMixin[T_co], JoinMixin[T_co], LookupJoinMixin[T_co], SinkMixin[T_co], NamingMixin):
    """A stream of elements. Its methods add operators to the job and return new streams; nothing runs yet."""

    def map(self, func: MapFunction[T_co, R] | Callable[[T_co], R], output_type: Any = None) -> DataStream[R]:
        """Apply a function to each element. On a keyed stream a MapFunction may have keyed state.

        ``output_type`` (``Types.*`` or a Python type), here and below, defaults to the function's return annotation. Without
        either, elements are untyped and travel as Python objects within a run. A value that does not fit the type raises
        TypeNotSupported at run time.
        """
        return self._element_wise(MapSpec, func, MapFunction, "map", self._output_type(output_type, func, "map"))

    def flat_map(
        self, func: FlatMapFunction[T_co, R] | Callable[[T_co], Iterable[R] | None], output_type: Any = None
    ) -> DataStream[R]:
        """Apply a function that returns an iterable of outputs for each element, or None for no outputs.

        ``output_type`` is the type of one output; a return annotation names the iterable (``-> Iterator[Word]``). On a keyed
        stream a FlatMapFunction may have keyed state.
        """
        found = self._output_type(output_type, func, "flat_map", many=True)
        return self._element_wise(FlatMapSpec, func, FlatMapFunction, "flat_map", found)

    def filter(self, func: FilterFunction[T_co] | Callable[[T_co], bool]) -> DataStream[T_co]:
        """Keep the elements for which the function is true. On a keyed stream a FilterFunction may have keyed state."""
        return self._element_wise(FilterSpec, func, FilterFunction, "filter", self._type)

    def process(self, func: ProcessFunction[T_co, R], output_type: Any = None) -> DataStream[R]:
        """Apply a ProcessFunction, which emits to the main output (``yield x``) and side outputs (``yield tag, x``).

        State and timers need a key: ``key_by(...).process(...)``.
        """
        if isinstance(func, KeyedProcessFunction):
            raise GraphError(f"process({type(func).__name__}): a KeyedProcessFunction needs a key; call key_by() first")
        check_type(func, ProcessFunction, "process")
        check_function(func, ProcessFunction, "process", keyed=False)
        found = self._output_type(output_type, func, "process_element", many=True)
        return self._operator(ProcessSpec(func), operator_name("process", func), found)

    def project(self, *field_indexes: int) -> DataStream[tuple[Any, ...]]:
        """Emit tuples of the given fields, in the given order.

        GraphError unless the stream is typed as a record with these fields.
        """
        fields = () if self._type is None else self._type.fields or ()
        if not field_indexes or not all(isinstance(i, int) and 0 <= i < len(fields) for i in field_indexes):
            raise GraphError(
                f"project{field_indexes} needs elements of a tuple type with these fields, but the type is {self._type!r}; "
                "declare it with output_type on the preceding operator"
            )
        kept = itemgetter(*field_indexes) if len(field_indexes) > 1 else PickFields((itemgetter(*field_indexes),))
        found = Types.TUPLE([fields[i].type for i in field_indexes])
        return self._operator(MapSpec(kept), "Projection", found)

    def union(self, *streams: DataStream[R]) -> DataStream[T_co | R]:
        """Merge this stream and others. The result is typed if all have the same type, else untyped.

        Partitioning is lost: call ``key_by`` after the union. GraphError for a stream of another environment.
        """
        for stream in streams:
            self._check_environment(stream, "union")
        same_type = all(stream._type == self._type for stream in streams)
        edges = tuple(Edge(edge.upstream, edge.tag) for stream in (self, *streams) for edge in stream._edges)
        return self._stream(edges, self._type if same_type else None)

    def get_side_output(self, output_tag: OutputTag[R]) -> DataStream[R]:
        """The elements emitted with ``yield tag, x``, typed by the tag."""
        check_type(output_tag, OutputTag, "get_side_output")
        upstream = self._producer("get_side_output()")
        return self._stream((Edge(upstream, output_tag),), output_tag.type_info)

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy[T_co]) -> DataStream[T_co]:
        """Assign timestamps and generate watermarks, which replace the timestamps and watermarks from upstream.

        Call it before any ``key_by`` or ``rebalance``, while each split is still in order.
        """
        check_type(watermark_strategy, WatermarkStrategy, "assign_timestamps_and_watermarks")
        column = timestamp_column(watermark_strategy, self._type)
        return self._operator(TimestampsSpec(watermark_strategy, column), "timestamps", self._type)

    def iterate(self, max_wait_time: timedelta | int | None = None) -> IterativeStream[T_co]:
        """Start an iteration: build its body on the returned stream, and feed elements back with ``close_with``.

        ``max_wait_time`` has no effect and is accepted for compatibility with Flink: a bounded job ends as soon as its
        loops are empty.
        """
        if max_wait_time is not None:
            to_ms(max_wait_time, "the maximum wait time of an iteration")
        spec = IterationSpec(next(_loops), self._element_type)
        return IterativeStream(self._env, (Edge(self._add(spec, "iteration", self._type)),), self._type)

    def window_all(self, window_assigner: WindowAssigner[T_co, W]) -> AllWindowedStream[T_co, W]:
        """Assign all elements to windows, regardless of key. All elements go through one subtask."""
        return AllWindowedStream(self._keyed(ONE_KEY), window_assigner)

    def sort_by_event_time(self, late_data_tag: OutputTag[Any] | None = None) -> DataStream[T_co]:
        """Sort the elements by timestamp. All elements go through one subtask; see ``KeyedStream.sort_by_event_time``."""
        return self._keyed(ONE_KEY).sort_by_event_time(late_data_tag)

    def _element_wise(
        self,
        spec: Callable[[Any], OperatorSpec],
        func: Any,
        kind: type[MapFunction | FlatMapFunction | FilterFunction],
        operator: str,
        output_type: TypeInformation | None,
    ) -> DataStream:
        name = operator_name(operator, func)
        if self._key is not None and isinstance(func, kind):
            declared_states(func)
            return self._operator(KeyedProcessSpec(KeyedAdapter(func)), name, output_type)
        check_function(func, kind, operator, keyed=False)
        return self._operator(spec(func), name, output_type)

    def _stream(self, edges: tuple[Edge, ...], output_type: TypeInformation | None) -> DataStream:
        return DataStream(self._env, edges, output_type)

    def _keyed(self, key: KeyBy) -> KeyedStream[T_co]:
        return KeyedStream(self._env, self._partitioned(key), self._type)


class KeyedStream(KeyedJoinMixin[T_co, K_co], DataStream[T_co], Generic[T_co, K_co]):
    """A stream partitioned by key, whose functions can keep state and timers per key.

    Created by ``key_by``. Its operators return plain DataStreams.
    """

    @property
    def key(self) -> KeyBy:
        """The key selector and the type of the key."""
        assert self._key is not None
        return self._key

    def _partitioned(self, partitioning: Partitioning) -> tuple[Edge, ...]:
        if not isinstance(partitioning, KeyBy):
            raise GraphError(
                "a keyed stream is already partitioned, so forward(), rebalance(), rescale(), shuffle(), broadcast() and "
                "partition_custom() do not apply; call them before key_by()"
            )
        return super()._partitioned(partitioning)

    def process(  # type: ignore[override]
        self, func: KeyedProcessFunction[K_co, T_co, R], output_type: Any = None
    ) -> DataStream[R]:
        """Apply a KeyedProcessFunction, which has keyed state, timers and side outputs."""
        if isinstance(func, ProcessFunction):
            raise GraphError(
                f"process({type(func).__name__}): on a keyed stream it takes a KeyedProcessFunction; derive from that, "
                "or call process() before key_by()"
            )
        check_type(func, KeyedProcessFunction, "process")
        declared_states(func)
        found = self._output_type(output_type, func, "process_element", many=True)
        return self._operator(KeyedProcessSpec(func), operator_name("process", func), found)

    def reduce(self, func: ReduceFunction[T_co] | Callable[[T_co, T_co], T_co]) -> DataStream[T_co]:
        """Reduce each key's elements, and emit the result so far for every element.

        ``func(result_so_far, element)`` returns the same type as the elements.
        """
        check_function(func, ReduceFunction, "reduce", keyed=True)
        if declared_states(func):
            raise GraphError(f"reduce({type(func).__name__}): a ReduceFunction cannot declare state; use process()")
        return self._operator(ReduceSpec(func, self._element_type), operator_name("reduce", func), self._type)

    def fold(self, initial_value: A, function: Callable[[A, T_co], A], output_type: Any = None) -> DataStream[A]:
        """Fold each key's elements with ``function(accumulator, element)``, and emit the result for every element.

        ``initial_value``: each key's first accumulator. ``output_type``: the accumulator's type, by default inferred from
        ``initial_value``.
        """
        type = infer_type([initial_value]) if output_type is None else type_of(output_type)
        return self.map_with_state(RunningFold(initial_value, function), type, type)

    def sum(self, position_to_sum: int | str = 0) -> DataStream[T_co]:
        """Emit, for each element, the key's first element with the field (name or index) replaced by the sum so far."""
        return self._rolling("sum", position_to_sum)

    def min(self, position_to_min: int | str = 0) -> DataStream[T_co]:
        """Emit, for each element, the key's first element with the field replaced by its minimum so far."""
        return self._rolling("min", position_to_min)

    def max(self, position_to_max: int | str = 0) -> DataStream[T_co]:
        """Emit, for each element, the key's first element with the field replaced by its maximum so far."""
        return self._rolling("max", position_to_max)

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream[T_co]:
        """Emit, for each element, the key's element with the smallest field so far; the first among equals."""
        return self._rolling("min_by", position_to_min_by)

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream[T_co]:
        """Emit, for each element, the key's element with the largest field so far; the first among equals."""
        return self._rolling("max_by", position_to_max_by)

    def agg(self, **aggregates: Aggregator[Any]) -> DataStream[Any]:
        """Compute running aggregates: ``agg(total=fp.Sum("price"), n=fp.Count())`` emits one row for each element.

        A row has the key, in columns named after its fields (``key`` if it is computed), and the aggregates over the
        key's elements so far, including this one. Columnar input is aggregated column-wise.
        """
        from forkpoint.runtime.columnar.running_aggregates import RunningAggregatesSpec

        computed, shape = aggregates_of(self.key, aggregates, self._type, windows=False)
        spec = RunningAggregatesSpec(computed, shape, computed.accumulator_type(self._type))
        return self._operator(spec, f"agg({', '.join(aggregates)})", shape.type)

    @overload
    def process_batch(self, func: KeyedBatchFunction, output_type: TypeLike[R]) -> DataStream[R]: ...
    @overload
    def process_batch(self, func: KeyedBatchFunction, output_type: Any = None) -> DataStream[Any]: ...
    def process_batch(self, func: KeyedBatchFunction, output_type: Any = None) -> DataStream[Any]:
        """Apply a KeyedBatchFunction to all of a subtask's elements of an epoch at once, as an Arrow table.

        ``output_type``: a record type whose fields are the output columns.
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
        """Apply ``func(element, state or None) -> (output, new state or None)`` with one state value per key.

        A new state of None removes it. ``state_type``: ``Types.*`` or a Python type. ``output_type``: by default taken
        from the annotation ``-> tuple[Output, State | None]``.
        """
        return self._stateful("map_with_state", func, state_type, output_type, flat=False)

    @overload
    def flat_map_with_state(
        self,
        func: Callable[[T_co, S | None], tuple[Iterable[R] | None, S | None]],
        state_type: TypeLike[S],
        output_type: Any = None,
    ) -> DataStream[R]: ...
    @overload
    def flat_map_with_state(
        self, func: Callable[[T_co, Any], tuple[Iterable[R] | None, Any]], state_type: Any, output_type: Any = None
    ) -> DataStream[R]: ...
    def flat_map_with_state(
        self, func: Callable[[T_co, Any], tuple[Iterable[R] | None, Any]], state_type: Any, output_type: Any = None
    ) -> DataStream[R]:
        """Like ``map_with_state``, with any number of outputs: ``func(element, state) -> (iterable or None, new state)``."""
        return self._stateful("flat_map_with_state", func, state_type, output_type, flat=True)

    def window(self, window_assigner: WindowAssigner[T_co, W]) -> WindowedStream[T_co, K_co, W]:
        """Assign each key's elements to windows, with a built-in or custom WindowAssigner."""
        return WindowedStream(self, window_assigner)

    def count_window(self, size: int, slide: int = 0) -> WindowedStream[T_co, K_co, CountWindow]:
        """Assign each key's elements to windows of ``size`` elements; a window starts every ``slide`` elements (0: ``size``).

        Windows fire when full. ConfigError for sizes below 1.
        """
        if slide == 0:
            return WindowedStream(self, CountTumblingWindowAssigner.of(size))
        return WindowedStream(self, CountSlidingWindowAssigner.of(size, slide))

    def sort_by_event_time(self, late_data_tag: OutputTag[Any] | None = None) -> DataStream[T_co]:
        """Sort each key's elements by timestamp, ties in arrival order (Flink SQL's ``ORDER BY`` on a time attribute).

        An element stays in state until the watermark reaches its timestamp, and is then emitted. Elements that arrive at or
        behind the watermark are late: they go to the side output ``late_data_tag``, or are dropped without a tag. Elements
        without a timestamp raise GraphError at run time.
        """
        from forkpoint.runtime.operators.event_time_sort import EventTimeSortSpec

        if late_data_tag is not None and not isinstance(late_data_tag, OutputTag):
            raise GraphError(f"sort_by_event_time() takes an OutputTag for late elements, not {late_data_tag!r}")
        return self._operator(EventTimeSortSpec(self._element_type, late_data_tag), "sort_by_event_time", self._type)

    def _rolling(self, kind: RollingKind, position: int | str) -> DataStream:
        from forkpoint.runtime.columnar.running_aggregates import RollingSpec

        self._check_field(kind, position)
        return self._operator(RollingSpec(kind, position, self._element_type), f"{kind}({position})", self._type)

    def _check_field(self, kind: str, position: int | str) -> None:
        fields = self._type.fields if self._type is not None else None
        if fields is not None:
            names = [f.name for f in fields]
            known = position in names if isinstance(position, str) else -len(names) <= position < len(names)
            if not known:
                raise GraphError(f"{kind}({position!r}): the elements have no such field; they have {', '.join(names)}")

    def _stateful(self, operator: str, func: Any, state_type: Any, output_type: Any, *, flat: bool) -> DataStream:
        no_class(func, f"{operator}()")
        if not callable(func):
            raise GraphError(f"{operator}() takes a callable func(element, state), not {func!r}")
        found = self._output_type(output_type, func, "__call__", many=flat, with_state=True)
        return self._operator(MapWithStateSpec(func, type_of(state_type), flat), operator_name(operator, func), found)


class IterativeStream(DataStream[T_co]):
    """The head of an iteration, with the elements of the original stream and the fed-back elements.

    Created by ``iterate``. Needs a uid, under which the elements in flight at the end of an epoch are saved.
    """

    def close_with(self, feedback_stream: DataStream[R]) -> DataStream[R]:
        """Feed a stream derived from this one back to the head of the iteration, and return that stream.

        Elements fed back in an epoch re-enter at the start of the next one, with their timestamps. GraphError if the types
        differ, or, when the job is compiled, if the stream is not derived from this iteration or the iteration is closed
        twice.
        """
        if not isinstance(feedback_stream, DataStream) or feedback_stream._env is not self._env:
            raise GraphError(f"close_with() takes a stream derived from this iteration, not {feedback_stream!r}")
        own, other = self._type, feedback_stream._type
        if own is not None and other is not None and own != other:
            raise GraphError(f"close_with(): the iteration has elements of type {own}, but the feedback stream has {other}")
        start = self._edges[0].upstream.spec
        assert isinstance(start, IterationSpec)
        feedback_stream._add(FeedbackSpec(start.loop, start.element_type), "feedback", None)
        return feedback_stream

"""Element-wise transformations, unions, side outputs and timestamps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from forkpoint.api.base import StreamBase, check_function, check_type, operator_name
from forkpoint.api.keys import PickFields, timestamp_column
from forkpoint.api.signatures import type_of_output
from forkpoint.api.two_inputs import check_environments
from forkpoint.errors import GraphError
from forkpoint.functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    WatermarkStrategy,
)
from forkpoint.graph.specs import TimestampsSpec
from forkpoint.graph.transformations import Edge
from forkpoint.runtime.operators.stateless import FilterSpec, FlatMapSpec, MapSpec, ProcessSpec
from forkpoint.types import Types
from forkpoint.types.variables import R, T_co

if TYPE_CHECKING:
    from forkpoint.api.streams import DataStream


class TransformMixin(StreamBase[T_co]):
    """map, flat_map, filter, process, union, side outputs, timestamps.

    ``output_type`` (``Types.*`` or a Python type) is by default taken from the function's return annotation; without
    either, elements are untyped and travel as Python objects within a run. A value that does not fit the type raises
    TypeNotSupported at run time.
    """

    def map(self, func: MapFunction[T_co, R] | Callable[[T_co], R], output_type: Any = None) -> DataStream[R]:
        """Apply a function to each element."""
        check_function(func, MapFunction, "map", keyed=False)
        return self._operator(MapSpec(func), operator_name("map", func), type_of_output(output_type, func, "map"))

    def flat_map(
        self, func: FlatMapFunction[T_co, R] | Callable[[T_co], Iterable[R] | None], output_type: Any = None
    ) -> DataStream[R]:
        """Apply a function that returns an iterable of any number of elements for each, or None for none.

        ``output_type`` is the type of one element; a return annotation is that of the iterable (``-> Iterator[Word]``).
        """
        check_function(func, FlatMapFunction, "flat_map", keyed=False)
        found = type_of_output(output_type, func, "flat_map", many=True)
        return self._operator(FlatMapSpec(func), operator_name("flat_map", func), found)

    def filter(self, func: FilterFunction[T_co] | Callable[[T_co], bool]) -> DataStream[T_co]:
        """Keep the elements for which the function is true."""
        check_function(func, FilterFunction, "filter", keyed=False)
        return self._operator(FilterSpec(func), operator_name("filter", func), self._type)

    def process(self, func: ProcessFunction[T_co, R], output_type: Any = None) -> DataStream[R]:
        """Apply a ProcessFunction, which emits to the main output (``yield x``) and side outputs (``yield tag, x``).

        State and timers need a key: ``key_by(...).process(...)``.
        """
        if isinstance(func, KeyedProcessFunction):
            raise GraphError(f"process({type(func).__name__}): a KeyedProcessFunction needs a key; call key_by() first")
        check_type(func, ProcessFunction, "process")
        check_function(func, ProcessFunction, "process", keyed=False)
        found = type_of_output(output_type, func, "process_element", many=True)
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
        kept = PickFields(tuple(itemgetter(i) for i in field_indexes))
        found = Types.TUPLE([fields[i].type for i in field_indexes])
        return self._operator(MapSpec(kept), "Projection", found)

    def union(self, *streams: DataStream[R]) -> DataStream[T_co | R]:
        """Merge this stream and others. The result is typed if all have the same type, else untyped.

        Partitioning is lost: call ``key_by`` after the union. GraphError for a stream of another environment.
        """
        for stream in streams:
            check_environments(self, stream, "union")
        every = (self, *streams)
        same = all(stream._type == self._type for stream in every)
        edges = tuple(Edge(edge.upstream, edge.tag) for stream in every for edge in stream._edges)
        return self._stream(edges, self._type if same else None)

    def get_side_output(self, output_tag: OutputTag[R]) -> DataStream[R]:
        """The elements emitted with ``yield tag, x``, typed by the tag."""
        check_type(output_tag, OutputTag, "get_side_output")
        upstream = self._producer("get_side_output()")
        return self._stream((Edge(upstream, output_tag),), output_tag.type_info)

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy[T_co]) -> DataStream[T_co]:
        """Assign timestamps and generate watermarks, replacing those from upstream.

        Call it before any ``key_by`` or ``rebalance``, while each split is still in order.
        """
        check_type(watermark_strategy, WatermarkStrategy, "assign_timestamps_and_watermarks")
        column = timestamp_column(watermark_strategy, self._type)
        return self._operator(TimestampsSpec(watermark_strategy, column), "timestamps", self._type)

"""Methods that make one stream of another, an element at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from forkpoint.api.base import StreamBase, check_function, operator_name
from forkpoint.api.keys import PickFields, timestamp_column
from forkpoint.api.signatures import output_type as type_of_output
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

    Wherever an ``output_type`` can be given (``Types.*`` or a Python type), leaving it out takes the function's return
    annotation, and without one leaves the elements untyped: they travel as Python objects within a run. The function
    must return what the type says; TypeNotSupported, while the job runs, names a value that doesn't fit.
    """

    def map(self, func: MapFunction[T_co, R] | Callable[[T_co], R], output_type: Any = None) -> DataStream[R]:
        """One element out for each element in."""
        check_function(func, MapFunction, "map", keyed=False)
        return self._operator(MapSpec(func), operator_name("map", func), type_of_output(output_type, func, "map"))

    def flat_map(
        self, func: FlatMapFunction[T_co, R] | Callable[[T_co], Iterable[R] | None], output_type: Any = None
    ) -> DataStream[R]:
        """Any number of elements out for each element in: the function returns an iterable, or None for none.

        ``output_type`` is that of one element; an annotation is of the iterable (``-> Iterator[Word]``).
        """
        check_function(func, FlatMapFunction, "flat_map", keyed=False)
        found = type_of_output(output_type, func, "flat_map", many=True)
        return self._operator(FlatMapSpec(func), operator_name("flat_map", func), found)

    def filter(self, func: FilterFunction[T_co] | Callable[[T_co], bool]) -> DataStream[T_co]:
        """The elements for which the function is true."""
        check_function(func, FilterFunction, "filter", keyed=False)
        return self._operator(FilterSpec(func), operator_name("filter", func), self._type)

    def process(self, func: ProcessFunction[T_co, R], output_type: Any = None) -> DataStream[R]:
        """Any number of elements out, to the main output (``yield x``) and to side outputs (``yield tag, x``).

        Without a key there is neither state nor timers; ``key_by(...).process`` has them.
        """
        if isinstance(func, KeyedProcessFunction):
            raise GraphError(f"process({type(func).__name__}): a KeyedProcessFunction needs a key; call key_by() first")
        if not isinstance(func, ProcessFunction):
            raise GraphError(f"process() takes a ProcessFunction, not {func!r}")
        check_function(func, ProcessFunction, "process", keyed=False)
        found = type_of_output(output_type, func, "process_element", many=True)
        return self._operator(ProcessSpec(func), operator_name("process", func), found)

    def project(self, *field_indexes: int) -> DataStream[tuple[Any, ...]]:
        """Tuples of some fields only, in the order in which they are named here.

        GraphError where the stream's type is not known to be a tuple with these fields.
        """
        fields = () if self._type is None else self._type.fields or ()
        if not field_indexes or not all(isinstance(i, int) and 0 <= i < len(fields) for i in field_indexes):
            raise GraphError(
                f"project{field_indexes}: the elements have to be tuples of a known type with these fields, and the type is "
                f"{self._type!r}; say it with output_type ahead of this"
            )
        kept = PickFields(tuple(itemgetter(i) for i in field_indexes))
        found = Types.TUPLE([fields[i].type for i in field_indexes])
        return self._operator(MapSpec(kept), "Projection", found)

    def union(self, *streams: DataStream[R]) -> DataStream[T_co | R]:
        """The elements of this stream and others. It is typed if all have the same type, else untyped.

        Keys and other partitioning are given up: say ``key_by`` after the union. GraphError for a stream of another
        environment.
        """
        for stream in streams:
            if stream._env is not self._env:
                raise GraphError("union(): the streams belong to two environments; a job is made in one")
        every = (self, *streams)
        same = all(stream._type == self._type for stream in every)
        edges = tuple(Edge(edge.upstream, edge.tag) for stream in every for edge in stream._edges)
        return self._stream(edges, self._type if same else None)

    def get_side_output(self, output_tag: OutputTag[R]) -> DataStream[R]:
        """What the operator emitted with ``yield tag, x``, typed by the tag."""
        if not isinstance(output_tag, OutputTag):
            raise GraphError(f"get_side_output() takes an OutputTag, not {output_tag!r}")
        upstream = self._source_of("get_side_output()")
        return self._stream((Edge(upstream, output_tag),), output_tag.type_info)

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy[T_co]) -> DataStream[T_co]:
        """Timestamps and watermarks by the strategy, in place of those from upstream.

        Has to stand ahead of any ``key_by`` or ``rebalance``, where each split still has its own order.
        """
        if not isinstance(watermark_strategy, WatermarkStrategy):
            raise GraphError(
                f"assign_timestamps_and_watermarks() takes a WatermarkStrategy, not {watermark_strategy!r}"
            )
        column = timestamp_column(watermark_strategy, self._type)
        return self._operator(TimestampsSpec(watermark_strategy, column), "timestamps", self._type)

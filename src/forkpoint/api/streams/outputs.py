"""Sinks, and results collected by the program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any, NoReturn, overload

from forkpoint.api.results import CloseableIterator
from forkpoint.api.streams.base import StreamBase, operator_name
from forkpoint.api.streams.operator_settings import NamingMixin
from forkpoint.connectors.sinks import PrintSink
from forkpoint.contract.sink import Sink
from forkpoint.errors import GraphError
from forkpoint.functions.base import no_class
from forkpoint.graph.specs import EpochSinkSpec, SinkSpec
from forkpoint.graph.transformations import Transformation
from forkpoint.types.variables import T_co


@dataclass(frozen=True)
class DataFrameSink:
    """Writes each epoch with a Spark writer: ``DataFrameSink(lambda w: w.format("delta").save(path))``.

    ``fn(writer)`` gets the epoch's ``DataFrameWriter`` in append mode, on the driver, before the epoch's commit. An epoch
    repeated after a crash is written again, so delivery is at-least-once. ``stream.for_each_epoch(fn)`` passes the epoch
    number, which a target can use to deduplicate.
    """

    fn: Callable[[Any], Any]

    def __call__(self, frame: Any, epoch: int) -> None:
        """Write one epoch. ``frame``: its elements as a Spark DataFrame."""
        self.fn(frame.write.mode("append"))


class DataStreamSink(NamingMixin):
    """A sink, which can be given a uid, a name and a parallelism."""

    def __init__(self, transformation: Transformation) -> None:
        self.transformation = transformation

    def _producer(self, call: str) -> Transformation:
        return self.transformation


class SinkMixin(StreamBase[T_co]):
    """sink_to, print, for_each_epoch, execute_and_collect."""

    def sink_to(self, sink: Sink[T_co] | DataFrameSink) -> DataStreamSink:
        """Write the elements to a sink, or with a Spark writer if it is a DataFrameSink."""
        if isinstance(sink, DataFrameSink):
            return self._epoch_sink(sink, operator_name("sink", sink.fn))
        no_class(sink, "sink_to()")
        if not isinstance(sink, Sink):
            raise GraphError(f"sink_to() takes a Sink or a DataFrameSink, not {sink!r}")
        return DataStreamSink(self._add(SinkSpec(sink), operator_name("sink", sink), None))

    def add_sink(self, sink_func: Any) -> DataStreamSink:
        """Same as ``sink_to()``. GraphError unless ``sink_func`` is a Sink."""
        if isinstance(sink_func, Sink):
            return self.sink_to(sink_func)
        raise GraphError("add_sink() takes a SinkFunction in Java, which cannot run here; use sink_to() with a Sink, or print()")

    def cache(self) -> NoReturn:
        """Not supported: raises GraphError."""
        raise GraphError("cache(): a stream does not outlive its job; write it with sink_to(FileSink…) and read that")

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Print each element's ``repr``, prefixed by the identifier, on the driver once its epoch is committed."""
        return DataStreamSink(self._add(SinkSpec(PrintSink(sink_identifier or "")), "print", None))

    def for_each_epoch(self, func: Callable[[Any, int], Any]) -> DataStreamSink:
        """Call ``func(df, epoch)`` on the driver with each epoch's elements as a Spark DataFrame, before the commit.

        Columns are the type's fields (``value`` for other types). An epoch that is repeated after a crash has the same
        number and elements, so a function that is idempotent per epoch gives exactly-once results.
        """
        if not callable(func):
            raise GraphError(f"for_each_epoch() takes a callable func(df, epoch), not {func!r}")
        return self._epoch_sink(func, operator_name("for_each_epoch", func))

    @overload
    def execute_and_collect(self, job_execution_name: str | None = None, limit: None = None) -> CloseableIterator[T_co]: ...
    @overload
    def execute_and_collect(self, job_execution_name: str | None = None, *, limit: int) -> list[T_co]: ...
    @overload
    def execute_and_collect(self, job_execution_name: str | None, limit: int) -> list[T_co]: ...
    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator[T_co] | list[T_co]:
        """Run the job and return the elements of this stream: an iterator, or a list of at most ``limit``.

        The iterator yields elements as their epochs are committed; closing it cancels the job.
        """
        if limit is not None and limit <= 0:
            raise GraphError(f"execute_and_collect(limit={limit}): the limit must be above 0, or None for all elements")
        elements = CloseableIterator(self._env.collect(self._plain(), limit, job_execution_name))
        if limit is None:
            return elements
        with elements:
            return list(islice(elements, limit))

    def _epoch_sink(self, func: Callable[[Any, int], Any], name: str) -> DataStreamSink:
        return DataStreamSink(self._add(EpochSinkSpec(func, self._element_type), name, None))

"""Streams that go round: Flink's IterativeStream."""

from __future__ import annotations

import itertools
from datetime import timedelta

from forkpoint.api.streams import DataStream
from forkpoint.errors import GraphError
from forkpoint.functions import to_ms
from forkpoint.graph.transformations import Edge
from forkpoint.runtime.operators.iteration import FeedbackSpec, IterationSpec
from forkpoint.types import Types
from forkpoint.types.variables import R, T, T_co

_loops = itertools.count()


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


def iterative(stream: DataStream[T], max_wait_time: timedelta | int | None) -> IterativeStream[T]:
    """The start of a loop over a stream."""
    if max_wait_time is not None:
        to_ms(max_wait_time, "the longest wait of an iteration")
    spec = IterationSpec(next(_loops), stream._type or Types.ANY())
    return IterativeStream(stream._env, (Edge(stream._add(spec, "iteration", stream._type)),), stream._type)

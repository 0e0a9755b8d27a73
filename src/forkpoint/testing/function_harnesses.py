"""Harnesses for functions with one or two inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from forkpoint.api.streams.streams import DataStream
from forkpoint.errors import GraphError
from forkpoint.functions import (
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    MapStateDescriptor,
    ProcessFunction,
)
from forkpoint.runtime.operators.broadcast import BroadcastSpec
from forkpoint.runtime.state.broadcast_state import BroadcastMap
from forkpoint.testing.harness import Harness

Timestamp = int | datetime | None


class OperatorHarness(Harness):
    """An operator with one input: ``OperatorHarness(lambda stream: stream.key_by("user").sum("amount"))``.

    ``build`` takes the input stream and adds exactly one operator; else GraphError. ``input_type``: the type of the elements.
    Other arguments: see Harness.
    """

    def __init__(self, build: Callable[[DataStream], DataStream], *, input_type: Any = None, **more: Any) -> None:
        super().__init__(build, (input_type,), **more)

    def process_element(self, value: Any, timestamp: Timestamp = None) -> None:
        """Push an element. ``timestamp``: int ms or an aware datetime; None for no timestamp."""
        self._process(0, [(value, timestamp)])

    def process_elements(self, elements: Iterable[tuple[Any, Timestamp]]) -> None:
        """Push pairs of element and timestamp as one epoch."""
        self._process(0, elements)


class KeyedProcessHarness(OperatorHarness):
    """A function on a keyed stream: a KeyedProcessFunction, or a MapFunction, FlatMapFunction or FilterFunction.

    ``key``, ``key_type``: as in ``key_by``. Other arguments: see OperatorHarness.
    """

    def __init__(
        self,
        fn: KeyedProcessFunction | MapFunction | FlatMapFunction | FilterFunction,
        *,
        key: Any,
        key_type: Any = None,
        output_type: Any = None,
        **more: Any,
    ) -> None:
        super().__init__(lambda stream: _with_function(stream.key_by(key, key_type), fn, output_type), **more)


class ProcessHarness(OperatorHarness):
    """A function on a stream without keys: a ProcessFunction, MapFunction, FlatMapFunction or FilterFunction.

    Other arguments: see OperatorHarness.
    """

    def __init__(
        self, fn: ProcessFunction | MapFunction | FlatMapFunction | FilterFunction, *, output_type: Any = None, **more: Any
    ) -> None:
        super().__init__(lambda stream: _with_function(stream, fn, output_type), **more)


class TwoInputHarness(Harness):
    """An operator with two inputs: ``TwoInputHarness(lambda first, second: first.connect(second).map(Merge()))``.

    ``build`` takes both streams and adds exactly one operator; else GraphError. ``input_type1``, ``input_type2``: the types of
    the elements. Other arguments: see Harness. Each push is a separate epoch, so the operator processes elements in the
    order of the pushes.
    """

    def __init__(
        self,
        build: Callable[[DataStream, DataStream], DataStream],
        *,
        input_type1: Any = None,
        input_type2: Any = None,
        **more: Any,
    ) -> None:
        super().__init__(build, (input_type1, input_type2), **more)

    def process_element1(self, value: Any, timestamp: Timestamp = None) -> None:
        """Push an element to the first input. ``timestamp``: int ms or an aware datetime; None for no timestamp."""
        self._process(0, [(value, timestamp)])

    def process_element2(self, value: Any, timestamp: Timestamp = None) -> None:
        """Push an element to the second input."""
        self._process(1, [(value, timestamp)])

    def process_elements1(self, elements: Iterable[tuple[Any, Timestamp]]) -> None:
        """Push pairs of element and timestamp to the first input as one epoch."""
        self._process(0, elements)

    def process_elements2(self, elements: Iterable[tuple[Any, Timestamp]]) -> None:
        """Push pairs of element and timestamp to the second input as one epoch."""
        self._process(1, elements)

    def process_watermark1(self, watermark: int | datetime) -> None:
        """Push the first input's watermark. The operator's watermark is the smaller of both; timers fire as it advances."""
        self._process_watermark(watermark, 0)

    def process_watermark2(self, watermark: int | datetime) -> None:
        """Push the second input's watermark."""
        self._process_watermark(watermark, 1)


class CoProcessHarness(TwoInputHarness):
    """A function on two streams without keys: a CoProcessFunction, CoMapFunction or CoFlatMapFunction.

    Other arguments: see TwoInputHarness.
    """

    def __init__(self, fn: CoProcessFunction | CoMapFunction | CoFlatMapFunction, **more: Any) -> None:
        super().__init__(lambda first, second: _with_function(first.connect(second), fn), **more)


class KeyedCoProcessHarness(TwoInputHarness):
    """A function on two keyed streams: a KeyedCoProcessFunction, CoMapFunction or CoFlatMapFunction.

    ``key1``, ``key2``, ``key_type``: as in ``ConnectedStreams.key_by``. Other arguments: see TwoInputHarness.
    """

    def __init__(
        self,
        fn: KeyedCoProcessFunction | CoMapFunction | CoFlatMapFunction,
        *,
        key1: Any,
        key2: Any,
        key_type: Any = None,
        **more: Any,
    ) -> None:
        super().__init__(lambda first, second: _with_function(first.connect(second).key_by(key1, key2, key_type), fn), **more)


class _BroadcastInput(TwoInputHarness):
    """The second input is broadcast."""

    def process_element(self, value: Any, timestamp: Timestamp = None) -> None:
        """Push an element. ``timestamp``: int ms or an aware datetime; None for no timestamp."""
        self.process_element1(value, timestamp)

    def process_elements(self, elements: Iterable[tuple[Any, Timestamp]]) -> None:
        """Push pairs of element and timestamp as one epoch."""
        self.process_elements1(elements)

    def process_broadcast_element(self, value: Any, timestamp: Timestamp = None) -> None:
        """Push an element to all subtasks."""
        self.process_element2(value, timestamp)

    def broadcast_state(self, name: str | MapStateDescriptor[Any, Any]) -> Mapping[Any, Any]:
        """The content of a broadcast state. GraphError if there is no state with this name, or the subtasks' copies differ."""
        spec = self._operator.spec
        assert isinstance(spec, BroadcastSpec)
        wanted = name if isinstance(name, str) else name.name
        found = next((d for d in spec.descriptors if d.name == wanted), None)
        if found is None:
            known = ", ".join(repr(d.name) for d in spec.descriptors)
            raise GraphError(f"the operator has no broadcast state {wanted!r}; it has {known}")
        uid = self._operator.uid
        copies = [dict(BroadcastMap(subtask.store, uid, index, found).items()) for index, subtask in enumerate(self._subtasks)]
        if any(list(copy.items()) != list(copies[0].items()) for copy in copies):
            raise GraphError(
                f"broadcast state {wanted!r} is not the same on all subtasks: {copies}; process_broadcast_element must write "
                "values that depend on the broadcast elements only"
            )
        return copies[0]


class BroadcastProcessHarness(_BroadcastInput):
    """A BroadcastProcessFunction. ``descriptors``: as in ``broadcast``. Other arguments: see TwoInputHarness."""

    def __init__(self, fn: BroadcastProcessFunction, *descriptors: MapStateDescriptor[Any, Any], **more: Any) -> None:
        super().__init__(lambda first, second: first.connect(second.broadcast(*descriptors)).process(fn), **more)


class KeyedBroadcastProcessHarness(_BroadcastInput):
    """A KeyedBroadcastProcessFunction. ``key``, ``key_type``: as in ``key_by``; ``descriptors``: as in ``broadcast``.

    Other arguments: see TwoInputHarness.
    """

    def __init__(
        self,
        fn: KeyedBroadcastProcessFunction,
        *descriptors: MapStateDescriptor[Any, Any],
        key: Any,
        key_type: Any = None,
        **more: Any,
    ) -> None:
        def build(first: DataStream, second: DataStream) -> DataStream:
            return first.key_by(key, key_type).connect(second.broadcast(*descriptors)).process(fn)

        super().__init__(build, **more)


def _with_function(stream: Any, fn: Any, *more: Any) -> DataStream:
    """Adds the operator for a function of any kind to a stream."""
    result: DataStream
    match fn:
        case MapFunction() | CoMapFunction():
            result = stream.map(fn, *more)
        case FlatMapFunction() | CoFlatMapFunction():
            result = stream.flat_map(fn, *more)
        case FilterFunction():
            result = stream.filter(fn)
        case _:
            result = stream.process(fn, *more)
    return result

"""Harnesses for functions of one input."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from forkpoint.api.streams import DataStream
from forkpoint.functions import FilterFunction, FlatMapFunction, KeyedProcessFunction, MapFunction, ProcessFunction
from forkpoint.testing.harness import Harness, with_function


class OperatorHarness(Harness):
    """One operator with one input: ``OperatorHarness(lambda stream: stream.key_by("user").sum("amount"))``.

    ``build`` takes the input stream and adds exactly one operator; else GraphError. ``input_type``: the
    elements' type. The other arguments are those of Harness.
    """

    def __init__(self, build: Callable[[DataStream], DataStream], *, input_type: Any = None, **more: Any) -> None:
        super().__init__(build, (input_type,), **more)

    def process_element(self, value: Any, timestamp: int | datetime | None = None) -> None:
        """Push one element. ``timestamp``: int ms or an aware datetime; None for an element without one."""
        self._process(0, [(value, timestamp)])

    def process_elements(self, elements: Iterable[tuple[Any, int | datetime | None]]) -> None:
        """Push pairs of element and timestamp as one epoch."""
        self._process(0, elements)


class KeyedProcessHarness(OperatorHarness):
    """A function on a keyed stream: a KeyedProcessFunction, or a MapFunction, FlatMapFunction or FilterFunction.

    ``key``, ``key_type``: as in ``key_by``. The other arguments are those of OperatorHarness.
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
        super().__init__(lambda stream: with_function(stream.key_by(key, key_type), fn, output_type), **more)


class ProcessHarness(OperatorHarness):
    """A function on a stream without keys: a ProcessFunction, MapFunction, FlatMapFunction or FilterFunction.

    The other arguments are those of OperatorHarness.
    """

    def __init__(
        self,
        fn: ProcessFunction | MapFunction | FlatMapFunction | FilterFunction,
        *,
        output_type: Any = None,
        **more: Any,
    ) -> None:
        super().__init__(lambda stream: with_function(stream, fn, output_type), **more)

"""Window functions that wrap those of windows without keys, and those of ``count``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from forkpoint.functions.adapters import FunctionAdapter
from forkpoint.functions.base import AggregateFunction
from forkpoint.functions.window_functions import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)


class KeylessProcess(FunctionAdapter, ProcessWindowFunction):
    """Runs a ProcessAllWindowFunction under the single key of all elements."""

    function: ProcessAllWindowFunction

    def process(
        self, key: Any, context: ProcessWindowFunction.Context, elements: Iterable[Any]
    ) -> Iterable[Any] | None:
        return self.function.process(context, elements)

    def clear(self, context: ProcessWindowFunction.Context) -> None:
        self.function.clear(context)


class KeylessWindow(FunctionAdapter, WindowFunction):
    """Runs an AllWindowFunction under the single key of all elements."""

    function: AllWindowFunction

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any] | None:
        return self.function.apply(window, inputs)


class Count(AggregateFunction):
    """The number of elements."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class WithKey(WindowFunction):
    """Pairs of key and result."""

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        return [(key, value) for value in inputs]

"""Adapters that run functions of one kind as process, window or aggregate functions."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

from forkpoint.functions.base import AggregateFunction, FilterFunction, FlatMapFunction, Function, MapFunction
from forkpoint.functions.context import RuntimeContext
from forkpoint.functions.process import KeyedProcessFunction
from forkpoint.functions.state.descriptors import StateDescriptor, declared_states
from forkpoint.functions.windows.functions import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)


class FunctionAdapter(Function):
    """Wraps a user function: exposes its declared states, opens and closes it.

    Operator state and checkpoint notifications go to the user function itself; see ``user_function``.
    """

    def __init__(self, function: Any) -> None:
        self.function = function

    def declare_states(self) -> dict[str, StateDescriptor]:
        """The user function's states. The runtime sets the handles here, and ``open`` passes them on."""
        return declared_states(self.function)

    def open(self, runtime_context: RuntimeContext) -> None:
        own = vars(self)
        vars(self.function).update({attribute: own[attribute] for attribute in declared_states(self.function)})
        self.function.open(runtime_context)

    def close(self) -> None:
        self.function.close()


def user_function(fn: Any) -> Any:
    """The user function of an adapter; any other object is returned unchanged."""
    return fn.function if isinstance(fn, FunctionAdapter) else fn


class KeyedAdapter(FunctionAdapter, KeyedProcessFunction):
    """Runs a MapFunction, FlatMapFunction or FilterFunction as a keyed process function."""

    function: MapFunction | FlatMapFunction | FilterFunction

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any] | None:
        match self.function:
            case MapFunction():
                return (self.function.map(value),)
            case FlatMapFunction():
                return self.function.flat_map(value)
            case _:
                return (value,) if self.function.filter(value) else None


class KeylessProcess(FunctionAdapter, ProcessWindowFunction):
    """Runs a ProcessAllWindowFunction under the single key of all elements."""

    function: ProcessAllWindowFunction

    def process(self, key: Any, context: ProcessWindowFunction.Context, elements: Iterable[Any]) -> Iterable[Any] | None:
        return self.function.process(context, elements)

    def clear(self, context: ProcessWindowFunction.Context) -> None:
        self.function.clear(context)


class KeylessWindow(FunctionAdapter, WindowFunction):
    """Runs an AllWindowFunction under the single key of all elements."""

    function: AllWindowFunction

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any] | None:
        return self.function.apply(window, inputs)


class WithKey(WindowFunction):
    """Pairs of key and result."""

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        return [(key, value) for value in inputs]


class Fold(AggregateFunction):
    """Flink's fold before 2.0, with ``function(accumulator, element)``; each window starts from its own copy of ``initial``."""

    def __init__(self, initial: Any, function: Callable[[Any, Any], Any]) -> None:
        self._initial = initial
        self._function = function

    def create_accumulator(self) -> Any:
        return copy.deepcopy(self._initial)

    def add(self, value: Any, accumulator: Any) -> Any:
        return self._function(accumulator, value)

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        raise NotImplementedError("folded values cannot be merged; use aggregate()")


class RunningFold:
    """A running fold as a function for ``map_with_state`` that emits its state."""

    def __init__(self, initial: Any, function: Callable[[Any, Any], Any]) -> None:
        self._initial = initial
        self._function = function

    def __call__(self, element: Any, folded: Any) -> tuple[Any, Any]:
        # Emitted values must not change with the next element, so each fold works on a copy.
        before = self._initial if folded is None else folded
        after = self._function(copy.deepcopy(before), element)
        return after, after

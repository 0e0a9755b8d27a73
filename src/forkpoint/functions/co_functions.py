"""Functions of two connected streams, with one method per stream."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, TypeAlias

from forkpoint.functions.adapters import FunctionAdapter
from forkpoint.functions.base import Function
from forkpoint.functions.output_tag import Emitted
from forkpoint.functions.process import KeyedProcessFunction, ProcessFunction
from forkpoint.types.variables import IN1, IN2, OUT, K_co, K_contra


class CoMapFunction(Function, Generic[IN1, IN2, OUT]):
    """Maps each element of two streams to at most one element; None emits nothing, as in PyFlink."""

    @abstractmethod
    def map1(self, value: IN1, /) -> OUT | None:
        """Return the element to emit for an element of the first stream."""

    @abstractmethod
    def map2(self, value: IN2, /) -> OUT | None:
        """Return the element to emit for an element of the second stream."""


class CoFlatMapFunction(Function, Generic[IN1, IN2, OUT]):
    """Maps each element of two streams to any number of elements."""

    @abstractmethod
    def flat_map1(self, value: IN1, /) -> Iterable[OUT] | None:
        """Return or yield the elements to emit for an element of the first stream; None for none."""

    @abstractmethod
    def flat_map2(self, value: IN2, /) -> Iterable[OUT] | None:
        """Return or yield the elements to emit for an element of the second stream; None for none."""


class CoProcessFunction(Function, Generic[IN1, IN2, OUT]):
    """Processes two non-keyed streams, with side outputs but neither state nor timers."""

    Context: TypeAlias = ProcessFunction.Context

    @abstractmethod
    def process_element1(self, value: IN1, ctx: ProcessFunction.Context, /) -> Emitted[OUT]:
        """Return or yield the elements to emit: ``yield x``, or ``yield tag, x`` to a side output."""

    @abstractmethod
    def process_element2(self, value: IN2, ctx: ProcessFunction.Context, /) -> Emitted[OUT]:
        """Like ``process_element1``, for an element of the second stream."""


class KeyedCoProcessFunction(Function, Generic[K_contra, IN1, IN2, OUT]):
    """Processes two keyed streams with the same key type, which share the key's state and timers.

    State and contexts are as in a KeyedProcessFunction.
    """

    Context = KeyedProcessFunction.Context[K_co]
    OnTimerContext = KeyedProcessFunction.OnTimerContext[K_co]

    @abstractmethod
    def process_element1(self, value: IN1, ctx: KeyedProcessFunction.Context[K_contra], /) -> Emitted[OUT]:
        """Return or yield the elements to emit: ``yield x``, or ``yield tag, x`` to a side output."""

    @abstractmethod
    def process_element2(self, value: IN2, ctx: KeyedProcessFunction.Context[K_contra], /) -> Emitted[OUT]:
        """Like ``process_element1``, for an element of the second stream."""

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext[K_contra], /) -> Emitted[OUT]:
        """Called when a timer fires; emits like ``process_element1``. ``timestamp``: the timer's, in int ms."""
        return None


class _CoAdapter(FunctionAdapter):
    """Runs a CoMapFunction or CoFlatMapFunction as a process function."""

    function: CoMapFunction | CoFlatMapFunction

    def process_element1(self, value: Any, ctx: Any) -> Iterable[Any] | None:
        if isinstance(self.function, CoFlatMapFunction):
            return self.function.flat_map1(value)
        result = self.function.map1(value)
        return None if result is None else (result,)

    def process_element2(self, value: Any, ctx: Any) -> Iterable[Any] | None:
        if isinstance(self.function, CoFlatMapFunction):
            return self.function.flat_map2(value)
        result = self.function.map2(value)
        return None if result is None else (result,)


class CoAdapter(_CoAdapter, CoProcessFunction): ...


class KeyedCoAdapter(_CoAdapter, KeyedCoProcessFunction): ...


class KeyedCoProcess(FunctionAdapter, KeyedCoProcessFunction):
    """Runs a CoProcessFunction on keyed streams."""

    function: CoProcessFunction

    def process_element1(self, value: Any, ctx: Any) -> Emitted[Any]:
        return self.function.process_element1(value, ctx)

    def process_element2(self, value: Any, ctx: Any) -> Emitted[Any]:
        return self.function.process_element2(value, ctx)

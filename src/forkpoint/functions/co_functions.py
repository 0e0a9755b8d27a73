"""Functions of two connected streams: one method for the elements of each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, TypeAlias

from forkpoint.functions.adapters import CheckpointedStandIn, ListeningFunctionAdapter
from forkpoint.functions.base import Function
from forkpoint.functions.checkpointed import CheckpointedFunction
from forkpoint.functions.output_tag import Emitted
from forkpoint.functions.process import KeyedProcessFunction, ProcessFunction
from forkpoint.types.variables import IN1, IN2, OUT, K_co, K_contra


class CoMapFunction(Function, Generic[IN1, IN2, OUT]):
    """At most one element out for each element in; None emits nothing (so it is in PyFlink)."""

    @abstractmethod
    def map1(self, value: IN1, /) -> OUT | None:
        """What to emit for an element of the first stream."""

    @abstractmethod
    def map2(self, value: IN2, /) -> OUT | None:
        """What to emit for an element of the second stream."""


class CoFlatMapFunction(Function, Generic[IN1, IN2, OUT]):
    """Any number of elements out for each element in."""

    @abstractmethod
    def flat_map1(self, value: IN1, /) -> Iterable[OUT] | None:
        """The elements to emit for one of the first stream: any iterable, usually by being a generator; None for none."""

    @abstractmethod
    def flat_map2(self, value: IN2, /) -> Iterable[OUT] | None:
        """The elements to emit for one of the second stream."""


class CoProcessFunction(Function, Generic[IN1, IN2, OUT]):
    """Two streams without keys: side outputs and clocks, but neither state nor timers."""

    Context: TypeAlias = ProcessFunction.Context

    @abstractmethod
    def process_element1(self, value: IN1, ctx: ProcessFunction.Context, /) -> Emitted[OUT]:
        """The elements to emit for one of the first stream: ``yield x`` or, to a side output, ``yield tag, x``."""

    @abstractmethod
    def process_element2(self, value: IN2, ctx: ProcessFunction.Context, /) -> Emitted[OUT]:
        """The elements to emit for one of the second stream."""


class KeyedCoProcessFunction(Function, Generic[K_contra, IN1, IN2, OUT]):
    """Two streams of one kind of key: state and timers are those of the key at hand, whichever stream an element is of.

    State is declared and used as in a KeyedProcessFunction; the contexts are the same.
    """

    Context = KeyedProcessFunction.Context[K_co]
    OnTimerContext = KeyedProcessFunction.OnTimerContext[K_co]

    @abstractmethod
    def process_element1(self, value: IN1, ctx: KeyedProcessFunction.Context[K_contra], /) -> Emitted[OUT]:
        """The elements to emit for one of the first stream: ``yield x`` or, to a side output, ``yield tag, x``."""

    @abstractmethod
    def process_element2(self, value: IN2, ctx: KeyedProcessFunction.Context[K_contra], /) -> Emitted[OUT]:
        """The elements to emit for one of the second stream."""

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext[K_contra], /) -> Emitted[OUT]:
        """Called when a timer of the key is due; emits like ``process_element1``. ``timestamp``: the timer's, in ms."""
        return None


class _CoAdapter(ListeningFunctionAdapter):
    """A CoMapFunction or CoFlatMapFunction as a process function; all calls are passed on to it."""

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


class CheckpointedCoAdapter(CheckpointedStandIn, CoAdapter): ...


class KeyedCoAdapter(_CoAdapter, KeyedCoProcessFunction): ...


class CheckpointedKeyedCoAdapter(CheckpointedStandIn, KeyedCoAdapter): ...


def as_co_process(function: CoMapFunction | CoFlatMapFunction) -> CoProcessFunction:
    """A CoProcessFunction that does what the function does."""
    return (CheckpointedCoAdapter if isinstance(function, CheckpointedFunction) else CoAdapter)(function)


def as_keyed_co_process(function: CoMapFunction | CoFlatMapFunction) -> KeyedCoProcessFunction:
    """The same with state of the key."""
    return (CheckpointedKeyedCoAdapter if isinstance(function, CheckpointedFunction) else KeyedCoAdapter)(function)

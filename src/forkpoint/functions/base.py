"""What user functions are: PyFlink's classes, for those who need more than a plain function."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic

from forkpoint.functions.context import RuntimeContext
from forkpoint.types.variables import ACC, IN, OUT, K_co, K_contra, T


class Function(ABC):  # noqa: B024  (a function overrides what it needs)
    """Base of all user functions. An instance is copied to every subtask, so its attributes must be picklable."""

    def open(self, runtime_context: RuntimeContext, /) -> None:  # noqa: B027
        """Called once a subtask, before the first element, after state was restored."""

    def close(self) -> None:  # noqa: B027
        """Called once a subtask at the end, also after a failure."""


class MapFunction(Function, Generic[IN, OUT]):
    """One element in, one out."""

    @abstractmethod
    def map(self, value: IN, /) -> OUT:
        """The element to emit."""


class FlatMapFunction(Function, Generic[IN, OUT]):
    """One element in, any number out."""

    @abstractmethod
    def flat_map(self, value: IN, /) -> Iterable[OUT] | None:
        """The elements to emit: any iterable, usually by being a generator; None for none."""


class FilterFunction(Function, Generic[IN]):
    """Keeps elements or drops them."""

    @abstractmethod
    def filter(self, value: IN, /) -> bool:
        """True to keep the element."""


class ReduceFunction(Function, Generic[T]):
    """Combines two elements into one of the same type. Must be associative."""

    @abstractmethod
    def reduce(self, value1: T, value2: T, /) -> T:
        """``value1`` is the result so far, ``value2`` the next element. Neither may be changed in place."""


class AggregateFunction(Function, Generic[IN, ACC, OUT]):
    """Folds elements into an accumulator, and makes a result of it; the three types may differ."""

    @abstractmethod
    def create_accumulator(self) -> ACC:
        """A new accumulator, with nothing added."""

    @abstractmethod
    def add(self, value: IN, accumulator: ACC, /) -> ACC:
        """The accumulator with one element added; it may be changed in place, and must be returned."""

    @abstractmethod
    def get_result(self, accumulator: ACC, /) -> OUT:
        """The result of an accumulator."""

    @abstractmethod
    def merge(self, acc_a: ACC, acc_b: ACC, /) -> ACC:
        """One accumulator of two; needed by session windows."""


class Partitioner(Function, Generic[K_contra]):
    """Says where a key's elements go, for ``partition_custom``."""

    @abstractmethod
    def partition(self, key: K_contra, num_partitions: int, /) -> int:
        """The subtask, from 0 up to below ``num_partitions``; the same for equal keys."""


class KeySelector(Function, Generic[IN, K_co]):
    """Takes the key out of an element."""

    @abstractmethod
    def get_key(self, value: IN, /) -> K_co:
        """The key: the same for equal elements at any time, on any machine."""

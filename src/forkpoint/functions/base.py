"""What user functions are: PyFlink's classes, for those who need more than a plain function."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from forkpoint.functions.context import RuntimeContext
from forkpoint.functions.subscripts import Subscripted


class Function(Subscripted, ABC):
    """Base of all user functions. An instance is copied to every subtask, so its attributes must be picklable."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Called once a subtask, before the first element, after state was restored."""

    def close(self) -> None:
        """Called once a subtask at the end, also after a failure."""


class MapFunction(Function):
    """One element in, one out."""

    @abstractmethod
    def map(self, value: Any) -> Any:
        """The element to emit."""


class FlatMapFunction(Function):
    """One element in, any number out."""

    @abstractmethod
    def flat_map(self, value: Any) -> Iterable[Any] | None:
        """The elements to emit: any iterable, usually by being a generator; None for none."""


class FilterFunction(Function):
    """Keeps elements or drops them."""

    @abstractmethod
    def filter(self, value: Any) -> bool:
        """True to keep the element."""


class ReduceFunction(Function):
    """Combines two elements into one of the same type. Must be associative."""

    @abstractmethod
    def reduce(self, value1: Any, value2: Any) -> Any:
        """``value1`` is the result so far, ``value2`` the next element. Neither may be changed in place."""


class AggregateFunction(Function):
    """Folds elements into an accumulator, and makes a result of it; the three types may differ."""

    @abstractmethod
    def create_accumulator(self) -> Any:
        """A new accumulator, with nothing added."""

    @abstractmethod
    def add(self, value: Any, accumulator: Any) -> Any:
        """The accumulator with one element added; it may be changed in place, and must be returned."""

    @abstractmethod
    def get_result(self, accumulator: Any) -> Any:
        """The result of an accumulator."""

    @abstractmethod
    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        """One accumulator of two; needed by session windows."""


class Partitioner(Function):
    """Says where a key's elements go, for ``partition_custom``."""

    @abstractmethod
    def partition(self, key: Any, num_partitions: int) -> int:
        """The subtask, from 0 up to below ``num_partitions``; the same for equal keys."""


class KeySelector(Function):
    """Takes the key out of an element."""

    @abstractmethod
    def get_key(self, value: Any) -> Any:
        """The key: the same for equal elements at any time, on any machine."""

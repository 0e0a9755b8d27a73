"""The base classes of user functions, as in PyFlink."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from types import GenericAlias
from typing import Any, Generic

from forkpoint.errors import GraphError
from forkpoint.functions.context import RuntimeContext
from forkpoint.types.variables import ACC, IN, OUT, K_co, K_contra, T


class Subscripted:
    """Accepts any type parameters at run time, as PyFlink programs pass them. Must precede Generic in the bases."""

    __slots__ = ()

    __class_getitem__: Any = classmethod(GenericAlias)


class Function(ABC):  # noqa: B024  (both methods are optional)
    """Base of all user functions. Each subtask gets a copy of the instance, so its attributes must be picklable."""

    def open(self, runtime_context: RuntimeContext, /) -> None:  # noqa: B027
        """Called once per subtask, after state is restored and before the first element."""

    def close(self) -> None:  # noqa: B027
        """Called once per subtask at the end, also after a failure."""


def no_class(given: Any, call: str) -> None:
    """Raise GraphError for a class derived from a forkpoint class (``map(MyMap)``): the program forgot to instantiate it.

    Any other class is a valid function that creates its instances.
    """
    if isinstance(given, type) and any(base.__module__.startswith("forkpoint.") for base in given.__mro__[1:]):
        raise GraphError(f"{call}: {given.__name__} is a class; give an instance, {given.__name__}()")


class MapFunction(Function, Generic[IN, OUT]):
    """Maps each element to one element."""

    @abstractmethod
    def map(self, value: IN, /) -> OUT:
        """Return the element to emit."""


class FlatMapFunction(Function, Generic[IN, OUT]):
    """Maps each element to any number of elements."""

    @abstractmethod
    def flat_map(self, value: IN, /) -> Iterable[OUT] | None:
        """Return or yield the elements to emit; None for none."""


class FilterFunction(Function, Generic[IN]):
    """Keeps or drops elements."""

    @abstractmethod
    def filter(self, value: IN, /) -> bool:
        """Return True to keep the element."""


class ReduceFunction(Function, Generic[T]):
    """Combines two elements into one of the same type. Must be associative."""

    @abstractmethod
    def reduce(self, value1: T, value2: T, /) -> T:
        """Combine the result so far, ``value1``, with the next element, ``value2``. Neither may be modified in place."""


class AggregateFunction(Function, Generic[IN, ACC, OUT]):
    """Adds elements to an accumulator and computes a result from it; the three types may differ."""

    @abstractmethod
    def create_accumulator(self) -> ACC:
        """Return a new, empty accumulator."""

    @abstractmethod
    def add(self, value: IN, accumulator: ACC, /) -> ACC:
        """Return the accumulator with one element added; it may be modified in place."""

    @abstractmethod
    def get_result(self, accumulator: ACC, /) -> OUT:
        """Return the result of an accumulator."""

    @abstractmethod
    def merge(self, acc_a: ACC, acc_b: ACC, /) -> ACC:
        """Return the combination of two accumulators; required by session windows."""


class Partitioner(Function, Generic[K_contra]):
    """Chooses the subtask of a key's elements, for ``partition_custom``."""

    @abstractmethod
    def partition(self, key: K_contra, num_partitions: int, /) -> int:
        """Return the subtask, 0 ≤ subtask < ``num_partitions``; the same for equal keys."""


class KeySelector(Function, Generic[IN, K_co]):
    """Extracts the key of an element."""

    @abstractmethod
    def get_key(self, value: IN, /) -> K_co:
        """Return the key. It must be deterministic, on any machine."""

"""The handles through which a function sees its state. Each refers to the key of the element (or timer) at hand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic

from forkpoint.types.variables import IN, NOTHING, OUT, K, T, V


class State(ABC):
    """What every kind of state can do."""

    @abstractmethod
    def clear(self) -> None:
        """Remove everything that is stored under the current key."""


class ValueState(State, Generic[T, NOTHING]):
    """One value a key. ``NOTHING``: the type of what ``value()`` returns where there is none."""

    @abstractmethod
    def value(self) -> T | NOTHING:
        """The current value; the descriptor's default (None unless given) where there is none."""

    @abstractmethod
    def update(self, value: T | None) -> None:
        """Replace the value. None removes it, as ``clear()`` does.

        A value that the declared type cannot hold raises TypeNotSupported.
        """


class ListState(State, Generic[T]):
    """A list of elements a key, in the order of adding."""

    @abstractmethod
    def get(self) -> Iterable[T]:
        """The elements, oldest first; empty where there are none."""

    @abstractmethod
    def add(self, value: T) -> None:
        """Append one element."""

    @abstractmethod
    def add_all(self, values: Iterable[T]) -> None:
        """Append elements in their order."""

    @abstractmethod
    def update(self, values: Iterable[T]) -> None:
        """Replace the whole list. An empty one removes the state."""

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())


class ReadableMap(ABC, Generic[K, V]):
    """What can be asked of every state that is a dictionary."""

    @abstractmethod
    def get(self, key: K) -> V | None:
        """The value of an entry, None where there is none."""

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Whether there is an entry."""

    @abstractmethod
    def items(self) -> Iterable[tuple[K, V]]:
        """All entries."""

    @abstractmethod
    def keys(self) -> Iterable[K]:
        """The keys of all entries."""

    @abstractmethod
    def values(self) -> Iterable[V]:
        """The values of all entries."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Whether there are no entries."""

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())


class WritableMap(ReadableMap[K, V]):
    """What can be done to one, too, but for clearing it."""

    @abstractmethod
    def put(self, key: K, value: V) -> None:
        """Set one entry."""

    @abstractmethod
    def put_all(self, entries: Mapping[K, V]) -> None:
        """Set many entries."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Remove one entry; nothing happens where there is none."""

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)


class MapState(State, WritableMap[K, V]):
    """A dictionary a key, of which single entries are read and written without touching the others.

    Its entries are in no order that a program may rely on.
    """


class ReducingState(State, Generic[T]):
    """The elements added so far, reduced to one by the descriptor's function."""

    @abstractmethod
    def get(self) -> T | None:
        """The reduced element, None where nothing was added."""

    @abstractmethod
    def add(self, value: T) -> None:
        """Reduce one more element into the state."""


class AggregatingState(State, Generic[IN, OUT]):
    """An accumulator, fed and read through the descriptor's AggregateFunction."""

    @abstractmethod
    def get(self) -> OUT | None:
        """The result of the accumulator, None where nothing was added."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Add one element to the accumulator."""

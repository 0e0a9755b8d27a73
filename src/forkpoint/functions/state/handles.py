"""State handles, which access the state of the current key: the key of the current element or timer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic

from forkpoint.types.variables import IN, NOTHING, OUT, K, T, V


class State(ABC):
    """Base of all keyed state."""

    @abstractmethod
    def clear(self) -> None:
        """Remove the state of the current key."""


class ValueState(State, Generic[T, NOTHING]):
    """One value per key. ``NOTHING``: the type that ``value()`` returns without one."""

    @abstractmethod
    def value(self) -> T | NOTHING:
        """The current value, or the descriptor's default (None unless given)."""

    @abstractmethod
    def update(self, value: T | None) -> None:
        """Set the value; None removes it. TypeNotSupported for a value that does not fit the declared type."""


class ListState(State, Generic[T]):
    """A list per key, in insertion order."""

    @abstractmethod
    def get(self) -> Iterable[T]:
        """The elements, oldest first."""

    @abstractmethod
    def add(self, value: T) -> None:
        """Append one element."""

    @abstractmethod
    def add_all(self, values: Iterable[T]) -> None:
        """Append several elements."""

    @abstractmethod
    def update(self, values: Iterable[T]) -> None:
        """Replace the list; an empty one removes the state."""

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())


class ReadableMap(ABC, Generic[K, V]):
    """The read access of map and broadcast state."""

    @abstractmethod
    def get(self, key: K) -> V | None:
        """The value for a map key, None without an entry."""

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Whether there is an entry for a map key."""

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
    """The read and write access of map and broadcast state."""

    @abstractmethod
    def put(self, key: K, value: V) -> None:
        """Set one entry."""

    @abstractmethod
    def put_all(self, entries: Mapping[K, V] | Iterable[tuple[K, V]]) -> None:
        """Set several entries, given as a mapping or as pairs of a key and a value."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Remove one entry, if it exists."""

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)


class MapState(State, WritableMap[K, V]):
    """A map per key, whose entries are read and written individually. Their order is unspecified."""


class ReducingState(State, Generic[T]):
    """One value per key: the added elements, reduced by the descriptor's function."""

    @abstractmethod
    def get(self) -> T | None:
        """The reduced value, None if nothing was added."""

    @abstractmethod
    def add(self, value: T) -> None:
        """Reduce an element into the state."""


class AggregatingState(State, Generic[IN, OUT]):
    """An accumulator per key, updated and read by the descriptor's AggregateFunction."""

    @abstractmethod
    def get(self) -> OUT | None:
        """The result of the accumulator, None if nothing was added."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Add an element to the accumulator."""

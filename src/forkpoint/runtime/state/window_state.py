"""Keyed state with a namespace: entries that belong to a key and a window. Handles are bound to the window at hand.

Entries are read one by one when they are first needed in an epoch, because which windows those will be is not known
ahead. A window's encoding (msgpack) is never the beginning of another's, so all entries of a window are one range of
the store.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from forkpoint.errors import UserFunctionError
from forkpoint.functions import (
    AggregateFunction,
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.types import TypeInformation

_CHUNK = struct.Struct(">Q")


class Space:
    """The window at hand, encoded; shared by all handles that are bound to it."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = b""


class _Spaced:
    """What cells and lists share: the current key's entries by namespace."""

    def __init__(self, backend: KeyedBackend, name: str) -> None:
        self._backend = backend
        self.sid = backend.sid(name)
        self._prefixes: list[bytes] = []
        self._entries: dict[int, dict[bytes, Any]] = {}
        self._current: dict[bytes, Any] = {}
        self._index = 0

    def begin(self) -> None:
        self._prefixes = self._backend.prefixes(self.sid)
        self._entries = {}

    def enter(self, index: int) -> None:
        self._index = index
        found = self._entries.get(index)
        if found is None:
            found = self._entries[index] = {}
        self._current = found

    def leave(self, index: int) -> None:
        pass


class _Entry:
    """What is kept of a cell's value; ``saved``: whether the store has one, ``dirty``: whether it is another."""

    __slots__ = ("dirty", "kept", "saved")

    def __init__(self, kept: Any) -> None:
        self.kept = kept
        self.saved = kept is not None
        self.dirty = False


class Cells(_Spaced):
    """One value for each key and window; None is empty."""

    def __init__(self, backend: KeyedBackend, name: str, type: TypeInformation) -> None:
        super().__init__(backend, name)
        self.guard = backend.guard(name, type)

    def _entry(self, space: bytes) -> _Entry:
        entry: _Entry | None = self._current.get(space)
        if entry is None:
            raw = self._backend.store.get_many([self._prefixes[self._index] + space])[0]
            entry = self._current[space] = _Entry(None if raw is None else self.guard.decoded(raw))
        return entry

    def read(self, space: bytes) -> Any:
        kept = self._entry(space).kept
        return None if kept is None else self.guard.give(kept)

    def write(self, space: bytes, value: Any) -> None:
        kept = None if value is None else self.guard.keep(value)
        entry = self._entry(space)
        entry.kept = kept
        entry.dirty = True

    def clear(self, space: bytes) -> None:
        self.write(space, None)

    def collect(self, log: ChangeLog) -> None:
        for index, entries in self._entries.items():
            prefix = self._prefixes[index]
            for space, entry in entries.items():
                if entry.dirty and (entry.saved or entry.kept is not None):
                    log.keys.append(prefix + space)
                    log.values.append(None if entry.kept is None else self.guard.encoded(entry.kept))
        self._entries, self._current = {}, {}


class _Chunks:
    """What is kept of a list in an epoch: what was added, and, once somebody looked or overwrote, the whole."""

    __slots__ = ("added", "replaced", "whole")

    def __init__(self) -> None:
        self.added: list[Any] = []
        self.whole: list[Any] | None = None
        self.replaced = False


class Lists(_Spaced):
    """A list for each key and window, stored in chunks, one for each epoch that appended."""

    def __init__(self, backend: KeyedBackend, name: str, type: TypeInformation) -> None:
        super().__init__(backend, name)
        self.guard = backend.guard(name, type)

    def _chunks(self, space: bytes) -> _Chunks:
        chunks: _Chunks | None = self._current.get(space)
        if chunks is None:
            chunks = self._current[space] = _Chunks()
        return chunks

    def add(self, space: bytes, value: Any) -> None:
        self._append(space, [self.guard.keep(value)])

    def _append(self, space: bytes, kept: list[Any]) -> None:
        chunks = self._chunks(space)
        chunks.added.extend(kept)
        if chunks.whole is not None:
            chunks.whole.extend(kept)

    def _whole(self, space: bytes) -> list[Any]:
        chunks = self._chunks(space)
        if chunks.whole is None:
            stored = self._backend.scan(self._prefixes[self._index] + space)
            chunks.whole = [kept for _, raw in stored for kept in self.guard.decoded_all(raw)]
            chunks.whole.extend(chunks.added)
        return chunks.whole

    def read(self, space: bytes) -> list[Any]:
        return self.guard.give_all(self._whole(space))

    def write(self, space: bytes, values: Iterable[Any]) -> None:
        kept, chunks = self.guard.keep_all(values), self._chunks(space)
        chunks.whole, chunks.added, chunks.replaced = kept, [], True

    def move(self, space: bytes, target: bytes) -> None:
        """Append a window's list to another's."""
        self._append(target, self._whole(space)[:])
        self.clear(space)

    def clear(self, space: bytes) -> None:
        self.write(space, ())

    def collect(self, log: ChangeLog) -> None:
        chunk = _CHUNK.pack(self._backend.store.version + 1)
        for index, entries in self._entries.items():
            for space, chunks in entries.items():
                name = self._prefixes[index] + space
                values = chunks.added
                if chunks.replaced:
                    stored = [key for key, _ in self._backend.scan(name)]
                    log.keys.extend(stored)
                    log.values.extend([None] * len(stored))
                    values = chunks.whole or []
                if values:
                    log.keys.append(name + chunk)
                    log.values.append(self.guard.encoded_all(values))
        self._entries, self._current = {}, {}


class BoundValue(ValueState[Any]):
    def __init__(self, cells: Cells, space: Space, descriptor: ValueStateDescriptor[Any]) -> None:
        self.cells, self._space = cells, space
        default = descriptor.default_value
        self._default = None if default is None else cells.guard.keep(default)

    def value(self) -> Any:
        value = self.cells.read(self._space.now)
        if value is None and self._default is not None:
            return self.cells.guard.give(self._default)
        return value

    def update(self, value: Any) -> None:
        self.cells.write(self._space.now, value)

    def clear(self) -> None:
        self.cells.clear(self._space.now)

    def merge(self, target: bytes, sources: Sequence[bytes]) -> None:
        raise UserFunctionError("a value state cannot be merged; use a list, reducing or aggregating state")


class BoundReducing(ReducingState[Any]):
    def __init__(self, cells: Cells, space: Space, reduce: Callable[[Any, Any], Any]) -> None:
        self.cells, self._space, self._reduce = cells, space, reduce

    def get(self) -> Any:
        return self.cells.read(self._space.now)

    def add(self, value: Any) -> None:
        cells, space = self.cells, self._space.now
        if value is None:
            cells.clear(space)
            return
        so_far = cells.read(space)
        cells.write(space, value if so_far is None else self._reduce(so_far, cells.guard.settled(value)))

    def clear(self) -> None:
        self.cells.clear(self._space.now)

    def merge(self, target: bytes, sources: Sequence[bytes]) -> None:
        merge_cells(self.cells, target, sources, self._reduce)


class BoundAggregating(AggregatingState[Any, Any]):
    def __init__(self, cells: Cells, space: Space, aggregate: AggregateFunction) -> None:
        self.cells, self._space, self._aggregate = cells, space, aggregate

    def get(self) -> Any:
        accumulator = self.cells.read(self._space.now)
        return None if accumulator is None else self._aggregate.get_result(accumulator)

    def add(self, value: Any) -> None:
        cells, space = self.cells, self._space.now
        if value is None:
            cells.clear(space)
            return
        accumulator = cells.read(space)
        if accumulator is None:
            accumulator = self._aggregate.create_accumulator()
        cells.write(space, self._aggregate.add(value, accumulator))

    def clear(self) -> None:
        self.cells.clear(self._space.now)

    def merge(self, target: bytes, sources: Sequence[bytes]) -> None:
        merge_cells(self.cells, target, sources, self._aggregate.merge)


class BoundList(ListState[Any]):
    def __init__(self, lists: Lists, space: Space) -> None:
        self.cells, self._space = lists, space

    def get(self) -> Any:
        return self.cells.read(self._space.now)

    def add(self, value: Any) -> None:
        self.cells.add(self._space.now, value)

    def add_all(self, values: Iterable[Any]) -> None:
        for value in values:
            self.add(value)

    def update(self, values: Iterable[Any]) -> None:
        self.cells.write(self._space.now, values)

    def clear(self) -> None:
        self.cells.clear(self._space.now)

    def merge(self, target: bytes, sources: Sequence[bytes]) -> None:
        for source in sources:
            self.cells.move(source, target)


def merge_cells(cells: Cells, target: bytes, sources: Sequence[bytes], merge: Callable[[Any, Any], Any]) -> None:
    """Merge the values of windows into that of another, in order; they are gone behind this."""
    value = cells.read(target)
    for source in sources:
        other = cells.read(source)
        if other is not None:
            value = other if value is None else merge(value, other)
            cells.clear(source)
    if value is not None:
        cells.write(target, value)


Bound = BoundValue | BoundReducing | BoundAggregating | BoundList


class SpacedStates:
    """A family of states by key and window. ``prefix`` keeps its names apart from other states of the operator."""

    def __init__(
        self, backend: KeyedBackend, prefix: str, window_type: TypeInformation | None, space: Space | None = None
    ) -> None:
        self._backend = backend
        self._prefix = prefix
        self._window_type = window_type
        self._bound: dict[str, tuple[str, Bound]] = {}
        self.space = space or Space()

    def get(self, descriptor: StateDescriptor, fingerprint: str | None = None) -> Any:
        """The handle of a state, bound to the window at hand; the same one each time."""
        kind = kind_of(descriptor)
        known = self._bound.get(descriptor.name)
        if known is None:
            known = self._bound[descriptor.name] = (kind, self._open(descriptor, fingerprint))
        elif known[0] != kind:
            raise UserFunctionError(
                f"operator {self._backend.uid!r}: state {descriptor.name!r} is a {known[0]} state and is asked for as a "
                f"{kind} state; give the two states different names"
            )
        return known[1]

    def clear(self, space: bytes) -> None:
        """Empty all states of a window."""
        for _, bound in self._bound.values():
            bound.cells.clear(space)

    def _open(self, descriptor: StateDescriptor, fingerprint: str | None) -> Bound:
        backend, name = self._backend, self._prefix + descriptor.name
        if descriptor.ttl is not None:
            raise UserFunctionError(
                f"operator {backend.uid!r}: state {descriptor.name!r} of a window has a time to live; it lives as long as "
                "its window, so leave the time to live out"
            )
        bound = bind(backend, name, descriptor, self.space)
        if bound is None:
            raise UserFunctionError(
                f"operator {backend.uid!r}: {descriptor!r} cannot be state of a window; use a value, list, reducing or "
                "aggregating state (a value state may hold a dict)"
            )
        backend.record(kind_of(descriptor), name, descriptor.value_type, self._window_type, None, fingerprint)
        backend.add(bound.cells)
        return bound


def bind(backend: KeyedBackend, name: str, descriptor: StateDescriptor, space: Space) -> Bound | None:
    type = descriptor.value_type
    match descriptor:
        case ListStateDescriptor():
            return BoundList(Lists(backend, name, type), space)
        case ReducingStateDescriptor():
            return BoundReducing(Cells(backend, name, type), space, descriptor.reduce)
        case AggregatingStateDescriptor():
            return BoundAggregating(Cells(backend, name, type), space, descriptor.aggregate)
        case ValueStateDescriptor():
            return BoundValue(Cells(backend, name, type), space, descriptor)
    return None


def kind_of(descriptor: StateDescriptor) -> str:
    return type(descriptor).__name__.removesuffix("StateDescriptor").lower()

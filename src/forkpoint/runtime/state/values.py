"""States that hold one value: value, reducing and aggregating state.

A *cell* keeps the value in an epoch; a *handle* is its interface for functions. Cells of keyed state read the values of all keys
of the epoch with one call of the store, and without an object for each value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import new_class
from typing import TYPE_CHECKING, Any

from forkpoint.errors import UserFunctionError
from forkpoint.functions import (
    AggregateFunction,
    AggregatingState,
    AggregatingStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from forkpoint.runtime.state.guard import Guard
from forkpoint.runtime.state.namespace import Namespace, NamespacedEntries
from forkpoint.types import TypeInformation
from forkpoint.types.kinds.containers import optional

if TYPE_CHECKING:
    from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend

Combine = Callable[[Any, Any], Any]
SingleValueDescriptor = ValueStateDescriptor[Any] | ReducingStateDescriptor[Any] | AggregatingStateDescriptor[Any, Any, Any]


class KeyCell:
    """One value per key. The attributes are plain because this is the hot path."""

    __slots__ = ("_backend", "_changed", "_current", "_dirty", "_expiry", "_prefixes", "_sid", "_values", "guard")

    def __init__(self, backend: KeyedBackend, sid: int, guard: Guard) -> None:
        self._backend = backend
        self._sid = sid
        self.guard = guard
        self._expiry = guard.expiry
        self._prefixes: list[bytes] = []
        self._values: list[Any] = []
        self._dirty: dict[int, None] = {}
        self._current: Any = None
        self._changed = False

    def begin(self) -> None:
        decoded = self.guard.decoded
        self._prefixes = self._backend.prefixes(self._sid)
        raw = self._backend.store.get_many(self._prefixes)
        self._values = [None if r is None else decoded(r) for r in raw]
        self._dirty = {}

    def enter(self, index: int) -> None:
        self._current = self._values[index]
        self._changed = False

    def leave(self, index: int) -> None:
        if self._changed:
            self._values[index] = self._current
            self._dirty[index] = None

    def collect(self, log: ChangeLog) -> None:
        encoded, values, expiry = self.guard.encoded, self._values, self._expiry
        if expiry is not None:
            for i in self._dirty:
                if values[i] is not None and expiry.dead(values[i]):
                    values[i] = None
        names = map(self._prefixes.__getitem__, self._dirty)
        log.add(names, [None if (kept := values[i]) is None else encoded(kept) for i in self._dirty])
        self._values, self._dirty, self._prefixes = [], {}, []

    def read(self) -> Any:
        """The kept form of the current value that a reader sees, None without a value."""
        kept = self._current
        if self._expiry is None or kept is None:
            return kept
        visible, remaining = self._expiry.read(kept)
        if remaining is not kept:
            self.write(remaining)
        return visible

    def base(self) -> Any:
        """The value to which a new element is added."""
        kept = self._current
        if self._expiry is None or kept is None:
            return kept
        return None if self._expiry.dead(kept) else kept

    def write(self, kept: Any) -> None:
        self._current = kept
        self._changed = True

    def merge(self, target: bytes, sources: Sequence[bytes], combine: Combine) -> None:
        raise AssertionError("only windows merge")

    # -- all keys at once, for operators with their own loop

    def kept_values(self) -> list[Any]:
        return self._values

    def set_all(self, kept: list[Any]) -> None:
        self._values = kept
        self._dirty = dict.fromkeys(range(len(kept)))

    def set_some(self, kept: dict[int, Any]) -> None:
        """Set the values of some keys, by index."""
        for index, value in kept.items():
            self._values[index] = value
        self._dirty.update(dict.fromkeys(kept))


@dataclass(slots=True)
class _WindowValue:
    """``saved``: whether the store has a value; ``dirty``: whether this value differs from it."""

    name: bytes
    kept: Any
    saved: bool
    dirty: bool = False


class WindowCell(NamespacedEntries[_WindowValue]):
    """One value per key and window, without a time to live."""

    def __init__(self, backend: KeyedBackend, sid: int, guard: Guard, namespace: Namespace) -> None:
        super().__init__(backend, sid, namespace)
        self.guard = guard

    def _load(self, name: bytes) -> _WindowValue:
        raw = self._backend.store.get_many([name])[0]
        return _WindowValue(name, None if raw is None else self.guard.decoded(raw), raw is not None)

    def read(self) -> Any:
        return self._entry(self._namespace.current).kept

    base = read

    def write(self, kept: Any) -> None:
        entry = self._entry(self._namespace.current)
        entry.kept = kept
        entry.dirty = True

    def merge(self, target: bytes, sources: Sequence[bytes], combine: Combine) -> None:
        """Merge the values of other windows into the target's value, in order, and remove them."""
        give, merged, into = self.guard.give, None, self._entry(target)
        for entry in (into, *map(self._entry, sources)):
            if entry.kept is not None:
                merged = give(entry.kept) if merged is None else combine(merged, give(entry.kept))
                entry.kept, entry.dirty = None, True
        if merged is not None:
            into.kept, into.dirty = self.guard.keep(merged), True

    def collect(self, log: ChangeLog) -> None:
        encoded = self.guard.encoded
        for entry in self._finish():
            if entry.dirty and (entry.saved or entry.kept is not None):
                log.keys.append(entry.name)
                log.values.append(None if entry.kept is None else encoded(entry.kept))


Cell = KeyCell | WindowCell


class _Handle:
    """The common base of a cell's handles."""

    def __init__(self, cell: Cell) -> None:
        self.cell, self._keep, self._give = cell, cell.guard.keep, cell.guard.give

    def clear(self) -> None:
        self.cell.write(None)

    def alive(self) -> bool:
        """Whether there is a value other than the default. It may expire between two elements."""
        return self.cell.base() is not None


class ValueHandle(_Handle, ValueState[Any]):
    """A value state; an empty state reads as ``default``, which is not stored."""

    def __init__(self, cell: Cell, default: Any) -> None:
        super().__init__(cell)
        self._default = None if default is None else self._keep(default)

    def value(self) -> Any:
        kept = self.cell.read()
        if kept is None:
            kept = self._default
        return None if kept is None else self._give(kept)

    def update(self, value: Any) -> None:
        self.cell.write(None if value is None else self._keep(value))

    def merge(self, target: bytes, sources: Sequence[bytes]) -> None:
        raise UserFunctionError("a value state cannot be merged; use a list, reducing or aggregating state")


class _MergingHandle(_Handle):
    def __init__(self, cell: Cell, combine: Combine) -> None:
        super().__init__(cell)
        self._combine = combine

    def merge(self, target: bytes, sources: Sequence[bytes]) -> None:
        self.cell.merge(target, sources, self._combine)


class ReducingHandle(_MergingHandle, ReducingState[Any]):
    def get(self) -> Any:
        kept = self.cell.read()
        return None if kept is None else self._give(kept)

    def add(self, value: Any) -> None:
        if value is None:
            self.clear()
            return
        cell, keep, give = self.cell, self._keep, self._give
        so_far, kept = cell.base(), keep(value)
        cell.write(kept if so_far is None else keep(self._combine(give(so_far), give(kept))))


class AggregatingHandle(_MergingHandle, AggregatingState[Any, Any]):
    def __init__(self, cell: Cell, aggregate: AggregateFunction) -> None:
        super().__init__(cell, aggregate.merge)
        self._aggregate = aggregate

    def get(self) -> Any:
        kept = self.cell.read()
        return None if kept is None else self._aggregate.get_result(self._give(kept))

    def add(self, value: Any) -> None:
        if value is None:
            self.clear()
            return
        cell, aggregate = self.cell, self._aggregate
        so_far = cell.base()
        accumulator = aggregate.create_accumulator() if so_far is None else self._give(so_far)
        cell.write(self._keep(aggregate.add(value, accumulator)))


class ImmutableValueHandle(KeyCell, ValueState[Any]):
    """Keyed values of an immutable type, whose kept form is the value: the handle is the cell itself, which saves a call. Each
    type has a separate class, created by ``of``, whose ``update`` contains the type's test.
    """

    __slots__ = ()

    @staticmethod
    def of(type: TypeInformation) -> type[ImmutableValueHandle]:
        """A new class each time: types of two Python classes may be equal, and each accepts its own values."""
        methods = {"__slots__": (), "update": optional(type).specialized(_UPDATE)}
        return new_class("ImmutableValueHandle", (ImmutableValueHandle,), exec_body=lambda body: body.update(methods))

    @property
    def cell(self) -> KeyCell:
        return self

    def leave(self, index: int) -> None:
        if self._current is not self._values[index]:
            self._values[index] = self._current
            self._dirty[index] = None

    def value(self) -> Any:
        return self._current

    def clear(self) -> None:
        self._current = None

    def alive(self) -> bool:
        return self._current is not None


_UPDATE = """
def update(self, value):
    self._current = value if EXACT(value) else self.guard.keep(value)
"""


def value_handle(
    backend: KeyedBackend, sid: int, guard: Guard, descriptor: SingleValueDescriptor, namespace: Namespace | None
) -> ImmutableValueHandle | ValueHandle | ReducingHandle | AggregatingHandle:
    """The handle of a state that holds one value; its cell is added to the backend. ``namespace``: None for keyed state."""
    plain = isinstance(descriptor, ValueStateDescriptor) and descriptor.default_value is None
    if plain and namespace is None and guard.expiry is None and guard.type.immutable:
        handle = ImmutableValueHandle.of(guard.type)(backend, sid, guard)
        backend.add(handle)
        return handle
    cell: Cell = KeyCell(backend, sid, guard) if namespace is None else WindowCell(backend, sid, guard, namespace)
    backend.add(cell)
    match descriptor:
        case ReducingStateDescriptor():
            return ReducingHandle(cell, descriptor.reduce)
        case AggregatingStateDescriptor():
            return AggregatingHandle(cell, descriptor.aggregate)
        case ValueStateDescriptor():
            return ValueHandle(cell, descriptor.default_value)

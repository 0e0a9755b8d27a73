"""Handles of the states that hold one value for a key: value, reducing, aggregating; each with or without TTL."""

from __future__ import annotations

from collections.abc import Callable
from types import new_class
from typing import Any

from forkpoint.functions import (
    AggregatingState,
    AggregatingStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from forkpoint.runtime.operators.outlet import ChangingOutput
from forkpoint.runtime.state.keyed_backend import ChangeLog, Handle, KeyedBackend
from forkpoint.runtime.state.ttl import STAMP_BYTES, Expiry, pack_stamp, sweep_in_background, unpack_stamp
from forkpoint.types import TypeInformation
from forkpoint.types.containers import optional, present


class _Cell:
    """What is kept of the current key's value; ``None`` is empty. The attributes are plain because this is the hot path."""

    __slots__ = ("_backend", "_changed", "_current", "_dirty", "_prefixes", "_values", "guard", "sid")

    def __init__(self, backend: KeyedBackend, name: str, type: TypeInformation) -> None:
        self._backend = backend
        self.guard = backend.guard(name, type)
        self.sid = backend.sid(name)
        self._prefixes: list[bytes] = []
        self._values: list[Any] = []
        self._dirty: dict[int, None] = {}
        self._current: Any = None
        self._changed = False

    def begin(self) -> None:
        decoded = self.guard.decoded
        self._prefixes = self._backend.prefixes(self.sid)
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
        encoded, values = self.guard.encoded, self._values
        log.keys.extend(map(self._prefixes.__getitem__, self._dirty))
        log.values.extend([None if (kept := values[i]) is None else encoded(kept) for i in self._dirty])
        self._values, self._dirty, self._prefixes = [], {}, []

    def clear(self) -> None:
        self._current = None
        self._changed = True

    def alive(self) -> bool:
        """Whether the key at hand has something; a default is nothing."""
        return self._current is not None

    def kept_values(self) -> list[Any]:
        """What is kept for all keys of the epoch, for operators that go through them by themselves."""
        return self._values

    def set_all(self, kept: list[Any]) -> None:
        self._values = kept
        self._dirty = dict.fromkeys(range(len(kept)))

    # -- what a time to live changes

    def _read(self) -> Any:
        """What is kept, for a reader."""
        return self._current

    def _base(self) -> Any:
        """What is kept, to add to it."""
        return self._current

    def _write(self, kept: Any) -> None:
        self._current = kept
        self._changed = True


class ValueHandle(_Cell, ValueState[Any]):
    """Values that cannot change: what is kept of them is what is given. Each type has a class of its own, made by ``of``.

    Each value is looked at when it is handed over. Where all values of an operator's first run were just what the type says, only
    their class is from then on, and all of it in a key's last value of an epoch. Should that be another than the type
    says, the epoch is done again, looking at each value.
    """

    __slots__ = ("_trusting",)

    @staticmethod
    def of(type: TypeInformation) -> type[ValueHandle]:
        """A new class each time: types of two classes that look alike are equal, and each has its own values."""
        every, cls = optional(type), present(type).python_class
        update = every.specialized(_UPDATE if cls is None else _UPDATE_OF_CLASS, cls=cls)
        methods = {"__slots__": (), "update": update, "leave": every.specialized(_LEAVE)}
        return new_class("ValueHandle", (ValueHandle,), exec_body=lambda body: body.update(methods))

    def begin(self) -> None:
        super().begin()
        self._trusting = self._backend.trusting

    def value(self) -> Any:
        return self._current

    def update(self, value: Any) -> None:
        raise AssertionError("each type has its own")

    def _kept(self, value: Any) -> Any:
        if value is None:
            return None
        kept = self.guard.keep(value)
        if kept is not value:
            self._backend.never_trusting = True
        return kept

    def _found_other(self, value: Any) -> None:
        """What was handed over is none of the type, or another value than the type makes of it."""
        self._kept(value)
        raise ChangingOutput(self._backend.uid)


_UPDATE = """
def update(self, value):
    self._current = value if EXACT(value) else self._kept(value)
"""

_UPDATE_OF_CLASS = """
def update(self, value):
    self._current = value if (type(value) is cls if self._trusting else EXACT(value)) else self._kept(value)
"""

_LEAVE = """
def leave(self, index):
    current = self._current
    if current is not self._values[index]:
        if not EXACT(current):
            self._found_other(current)
        self._values[index] = current
        self._dirty[index] = None
"""


class AnyValueHandle(_Cell, ValueState[Any]):
    """Values of any type, and with a default, which stands for an empty state and is never stored by itself."""

    __slots__ = ("_default",)

    def __init__(self, backend: KeyedBackend, name: str, type: TypeInformation, default: Any) -> None:
        super().__init__(backend, name, type)
        self._default = None if default is None else self.guard.keep(default)

    def value(self) -> Any:
        kept = self._read()
        if kept is None:
            kept = self._default
        return None if kept is None else self.guard.give(kept)

    def update(self, value: Any) -> None:
        self._write(None if value is None else self.guard.keep(value))


class ReducingHandle(_Cell, ReducingState[Any]):
    __slots__ = ("_reduce",)

    def __init__(
        self, backend: KeyedBackend, name: str, type: TypeInformation, reduce: Callable[[Any, Any], Any]
    ) -> None:
        super().__init__(backend, name, type)
        self._reduce = reduce

    def get(self) -> Any:
        kept = self._read()
        return None if kept is None else self.guard.give(kept)

    def add(self, value: Any) -> None:
        if value is None:
            self.clear()
            return
        guard, so_far = self.guard, self._base()
        kept = guard.keep(value)
        if so_far is not None:
            kept = guard.keep(self._reduce(guard.give(so_far), guard.give(kept)))
        self._write(kept)


class AggregatingHandle(_Cell, AggregatingState[Any, Any]):
    __slots__ = ("_aggregate",)

    def __init__(self, backend: KeyedBackend, name: str, type: TypeInformation, aggregate: Any) -> None:
        super().__init__(backend, name, type)
        self._aggregate = aggregate

    def get(self) -> Any:
        kept = self._read()
        return None if kept is None else self._aggregate.get_result(self.guard.give(kept))

    def add(self, value: Any) -> None:
        if value is None:
            self.clear()
            return
        guard, so_far = self.guard, self._base()
        accumulator = self._aggregate.create_accumulator() if so_far is None else guard.give(so_far)
        self._write(guard.keep(self._aggregate.add(value, accumulator)))


class _Stamped:
    """Adds a stamp to a cell. An expired value is removed by the access that finds it, which may be shown it once."""

    __slots__ = ()

    _expiry: Expiry
    _stamps: list[int]

    def begin(self: Any) -> None:
        decoded = self.guard.decoded
        self._prefixes = self._backend.prefixes(self.sid)
        raw = self._backend.store.get_many(self._prefixes)
        self._values = [None if r is None else decoded(r[STAMP_BYTES:]) for r in raw]
        self._stamps = [0 if r is None else unpack_stamp(r) for r in raw]
        self._dirty = dict[int, None]()

    def enter(self: Any, index: int) -> None:
        # Not looked at yet whether it has expired: timers may be due ahead of the element that is at hand.
        self._changed = False
        self._current = self._values[index]
        self._stamp = self._stamps[index]

    def leave(self: Any, index: int) -> None:
        if self._changed:
            self._values[index] = self._current
            self._stamps[index] = self._stamp
            self._dirty[index] = None

    def collect(self: Any, log: ChangeLog) -> None:
        encoded = self.guard.encoded
        for i in self._dirty:
            kept, stamp = self._values[i], self._stamps[i]
            gone = kept is None or self._expiry.dead(stamp)
            log.keys.append(self._prefixes[i])
            log.values.append(None if gone else pack_stamp(stamp) + encoded(kept))
        self._values, self._stamps, self._dirty, self._prefixes = [], [], dict[int, None](), []

    def alive(self: Any) -> bool:
        """Whether there is something to read. Within one key's elements time may pass: look again before each access."""
        return self._base() is not None

    def _base(self: Any) -> Any:
        return None if self._current is None or self._expiry.dead(self._stamp) else self._current

    def _read(self: Any) -> Any:
        kept = self._current
        if kept is not None and self._expiry.expired(self._stamp):
            self.clear()
            return kept if self._expiry.returns_expired else None
        if kept is not None and self._expiry.on_read:
            self._write(kept)
        return kept

    def _write(self: Any, kept: Any) -> None:
        self._current = kept
        self._stamp = self._expiry.stamp()
        self._changed = True


class StampedValueHandle(_Stamped, AnyValueHandle):
    __slots__ = ("_expiry", "_stamp", "_stamps")


class StampedReducingHandle(_Stamped, ReducingHandle):
    __slots__ = ("_expiry", "_stamp", "_stamps")


class StampedAggregatingHandle(_Stamped, AggregatingHandle):
    __slots__ = ("_expiry", "_stamp", "_stamps")


def value_handle(
    backend: KeyedBackend,
    descriptor: ValueStateDescriptor[Any] | ReducingStateDescriptor[Any] | AggregatingStateDescriptor[Any, Any, Any],
) -> Handle:
    name, type, ttl = descriptor.name, descriptor.value_type, descriptor.ttl
    handle: Any
    match descriptor:
        case ReducingStateDescriptor():
            handle = (StampedReducingHandle if ttl else ReducingHandle)(backend, name, type, descriptor.reduce)
        case AggregatingStateDescriptor():
            handle = (StampedAggregatingHandle if ttl else AggregatingHandle)(backend, name, type, descriptor.aggregate)
        case _ if ttl is not None:
            handle = StampedValueHandle(backend, name, type, descriptor.default_value)
        case _ if descriptor.default_value is not None or not type.immutable:
            handle = AnyValueHandle(backend, name, type, descriptor.default_value)
        case _:
            handle = ValueHandle.of(type)(backend, name, type)
    if ttl is not None:
        handle._expiry = expiry = Expiry(ttl, backend)
        sweep_in_background(backend, handle.sid, ttl, lambda value: expiry.expired(unpack_stamp(value)))
        handle._stamps, handle._stamp = [], 0
    return handle  # type: ignore[no-any-return]

"""Handles of the states that hold one value for a key: value, reducing, aggregating; each with or without TTL."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from forkpoint.errors import TypeNotSupported
from forkpoint.functions import (
    AggregatingState,
    AggregatingStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from forkpoint.runtime.keyed_state import ChangeLog, Handle, KeyedBackend
from forkpoint.runtime.operators.base import shorten
from forkpoint.runtime.ttl import STAMP_BYTES, Expiry, pack_stamp, sweep_in_background, unpack_stamp
from forkpoint.types import TypeInformation


class _Cell:
    """The current key's value; ``None`` is empty. The attributes are plain because this is the hot path."""

    __slots__ = (
        "_backend", "_changed", "_current", "_decode", "_dirty", "_encode", "_name", "_prefixes", "_type", "_values", "sid",
    )  # fmt: skip

    def __init__(self, backend: KeyedBackend, name: str, type: TypeInformation) -> None:
        self._backend = backend
        self._name = name
        self._type = type
        self.sid = backend.sid(name)
        self._encode: Callable[[Any], bytes] = type.encode
        self._decode: Callable[[bytes], Any] = type.decode
        self._prefixes: list[bytes] = []
        self._values: list[Any] = []
        self._dirty: dict[int, None] = {}
        self._current: Any = None
        self._changed = False

    def begin(self) -> None:
        decode = self._decode
        self._prefixes = self._backend.prefixes(self.sid)
        raw = self._backend.store.get_many(self._prefixes)
        self._values = [None if r is None else decode(r) for r in raw]
        self._dirty = {}

    def enter(self, index: int) -> None:
        self._current = self._values[index]
        self._changed = False

    def leave(self, index: int) -> None:
        if self._changed:
            self._values[index] = self._current
            self._dirty[index] = None

    def collect(self, log: ChangeLog) -> None:
        encode, values = self._encode, self._values
        dirty = list(self._dirty)
        try:
            raw = [None if (v := values[i]) is None else encode(v) for i in dirty]
            # What can't be read again must not be committed: then it could never be undone.
            deque(map(self._decode, filter(None, raw)), maxlen=0)
        except Exception as error:
            raise self._unfit(dirty) from error
        log.keys.extend(map(self._prefixes.__getitem__, dirty))
        log.values.extend(raw)
        self._values, self._dirty, self._prefixes = [], {}, []

    def _unfit(self, dirty: Iterable[int]) -> TypeNotSupported:
        """Which of the values is none of the state's type."""
        for i in dirty:
            value = self._values[i]
            try:
                if value is not None:
                    self._decode(self._encode(value))
            except Exception as error:
                return TypeNotSupported(
                    f"operator {self._backend.uid!r}, state {self._name!r}: {shorten(value)} of key "
                    f"{shorten(self._backend.keys[i])} is no value of the state's type {self._type}: {error}. Update the "
                    "state with values of its type, or declare another type"
                )
        raise AssertionError("no value is unfit")

    def clear(self) -> None:
        self._current = None
        self._changed = True

    def alive(self) -> bool:
        """Whether the key at hand has something; a default is nothing."""
        return self._current is not None

    def all_values(self) -> list[Any]:
        """The values of all keys of the epoch, for operators that work on whole columns."""
        return self._values

    def set_all(self, values: list[Any]) -> None:
        self._values = values
        self._dirty = dict.fromkeys(range(len(values)))


class ValueHandle(_Cell, ValueState[Any]):
    __slots__ = ()

    def value(self) -> Any:
        return self._current

    def update(self, value: Any) -> None:
        self._current = value
        self._changed = True


class DefaultValueHandle(ValueHandle):
    """A value state with a default, which stands for an empty state and is never stored by itself."""

    __slots__ = ("_default",)

    def __init__(self, backend: KeyedBackend, name: str, type: TypeInformation, default: Any) -> None:
        super().__init__(backend, name, type)
        self._default = None if default is None else type.encode(default)

    def value(self) -> Any:
        if self._current is None and self._default is not None:
            return self._decode(self._default)  # a new one each time: nobody can change the default
        return self._current


class ReducingHandle(_Cell, ReducingState[Any]):
    __slots__ = ("_reduce",)

    def __init__(
        self, backend: KeyedBackend, name: str, type: TypeInformation, reduce: Callable[[Any, Any], Any]
    ) -> None:
        super().__init__(backend, name, type)
        self._reduce = reduce

    def get(self) -> Any:
        return self._current

    def add(self, value: Any) -> None:
        self._current = value if self._current is None else self._reduce(self._current, value)
        self._changed = True


class AggregatingHandle(_Cell, AggregatingState[Any, Any]):
    __slots__ = ("_aggregate",)

    def __init__(self, backend: KeyedBackend, name: str, type: TypeInformation, aggregate: Any) -> None:
        super().__init__(backend, name, type)
        self._aggregate = aggregate

    def get(self) -> Any:
        return None if self._current is None else self._aggregate.get_result(self._current)

    def add(self, value: Any) -> None:
        accumulator = self._aggregate.create_accumulator() if self._current is None else self._current
        self._current = self._aggregate.add(value, accumulator)
        self._changed = True


class _Stamped:
    """Adds a stamp to a cell: an expired value counts as empty and is removed when it is next read or written."""

    __slots__ = ()

    _expiry: Expiry
    _stamps: list[int]

    def begin(self: Any) -> None:
        decode = self._decode
        raw = self._backend.store.get_many(self._backend.prefixes(self.sid))
        self._values = [None if r is None else decode(r[STAMP_BYTES:]) for r in raw]
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
        prefixes = self._backend.prefixes(self.sid)
        for i in self._dirty:
            value = self._values[i]
            gone = value is None or self._expiry.expired(self._stamps[i])
            try:
                raw = None if gone else self._encode(value)
                if raw is not None:
                    self._decode(raw)
            except Exception as error:
                raise self._unfit([i]) from error
            log.keys.append(prefixes[i])
            log.values.append(None if raw is None else pack_stamp(self._stamps[i]) + raw)
        self._values, self._stamps, self._dirty = [], [], dict[int, None]()

    def alive(self: Any) -> bool:
        """Whether there is something. Within one key's elements time may pass: look again before each access."""
        if self._current is not None and self._expiry.expired(self._stamp):
            self._changed = True
            if not self._expiry.returns_expired:
                self._current = None
        return self._current is not None

    def _touch(self: Any) -> None:
        self._stamp = self._expiry.stamp()
        self._changed = True

    def _read(self: Any) -> None:
        if self.alive() and self._expiry.on_read:
            self._touch()


class StampedValueHandle(_Stamped, DefaultValueHandle):
    __slots__ = ("_expiry", "_stamp", "_stamps")

    def value(self) -> Any:
        self._read()
        return super().value()

    def update(self, value: Any) -> None:
        self._touch()
        super().update(value)


class StampedReducingHandle(_Stamped, ReducingHandle):
    __slots__ = ("_expiry", "_stamp", "_stamps")

    def get(self) -> Any:
        self._read()
        return super().get()

    def add(self, value: Any) -> None:
        self.alive()
        super().add(value)
        self._touch()


class StampedAggregatingHandle(_Stamped, AggregatingHandle):
    __slots__ = ("_expiry", "_stamp", "_stamps")

    def get(self) -> Any:
        self._read()
        return super().get()

    def add(self, value: Any) -> None:
        self.alive()
        super().add(value)
        self._touch()


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
        case _ if descriptor.default_value is not None:
            handle = DefaultValueHandle(backend, name, type, descriptor.default_value)
        case _:
            handle = ValueHandle(backend, name, type)
    if ttl is not None:
        handle._expiry = expiry = Expiry(ttl, backend)
        sweep_in_background(backend, handle.sid, ttl, lambda value: expiry.expired(unpack_stamp(value)))
        handle._stamps, handle._stamp = [], 0
    return handle  # type: ignore[no-any-return]

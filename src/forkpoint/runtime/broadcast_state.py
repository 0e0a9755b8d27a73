"""Broadcast state on one subtask: a map in memory, with a store entry for each of its keys."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from forkpoint.errors import TypeNotSupported, UserFunctionError
from forkpoint.functions import BroadcastState, MapStateDescriptor, ReadOnlyBroadcastState
from forkpoint.runtime.keyed_state import ChangeLog, StateRecord, state_id
from forkpoint.runtime.operators.base import shorten
from forkpoint.state import Store, decode_operator_key, operator_key, operator_range

_LENGTH = struct.Struct(">I")


def pack_entry(key: bytes, value: bytes) -> bytes:
    """A map entry as the value of a store entry, whose own key only counts."""
    return _LENGTH.pack(len(key)) + key + value


def unpack_entry(data: bytes) -> tuple[bytes, bytes]:
    (length,) = _LENGTH.unpack_from(data)
    end = _LENGTH.size + length
    return data[_LENGTH.size : end], data[end:]


def broadcast_record(uid: str, descriptor: MapStateDescriptor[Any, Any]) -> StateRecord:
    value, key = descriptor.value_type.describe(), descriptor.key_type.describe()
    return StateRecord(state_id(uid, descriptor.name), uid, descriptor.name, "broadcast", None, value, key, None)


class BroadcastMap(BroadcastState[Any, Any]):
    """One subtask's copy. Entries are numbered in the order in which their keys came."""

    def __init__(self, store: Store, uid: str, subtask: int, descriptor: MapStateDescriptor[Any, Any]) -> None:
        self.sid = state_id(uid, descriptor.name)
        self._uid = uid
        self._name = descriptor.name
        self._subtask = subtask
        self._key_type, self._value_type = descriptor.key_type, descriptor.value_type
        self._entries: dict[Any, Any] = {}
        self._numbers: dict[Any, int] = {}
        self._next = 0
        for entry, raw in store.scan(*operator_range(self.sid, subtask)):
            encoded, value = unpack_entry(raw)
            key = self._key_type.decode(encoded)
            self._entries[key] = self._value_type.decode(value)
            self._numbers[key] = decode_operator_key(entry).element
            self._next = self._numbers[key] + 1
        self._stored = self._next  # numbers below may be in the store
        self._changed: dict[Any, None] = {}
        self._removed: list[int] = []
        self.read_only = _ReadOnly(self)

    def get(self, key: Any) -> Any:
        return self._entries.get(key)

    def contains(self, key: Any) -> bool:
        return key in self._entries

    def items(self) -> Iterable[tuple[Any, Any]]:
        return list(self._entries.items())

    def keys(self) -> Iterable[Any]:
        return list(self._entries)

    def values(self) -> Iterable[Any]:
        return list(self._entries.values())

    def is_empty(self) -> bool:
        return not self._entries

    def put(self, key: Any, value: Any) -> None:
        if key not in self._entries:
            self._numbers[key] = self._next
            self._next += 1
        self._entries[key] = value
        self._changed[key] = None

    def put_all(self, entries: Mapping[Any, Any]) -> None:
        for key, value in entries.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        if key in self._entries:
            del self._entries[key]
            self._changed.pop(key, None)
            self._removed.append(self._numbers.pop(key))

    def clear(self) -> None:
        for key in list(self._entries):
            self.remove(key)

    def refuse(self, what: str) -> NoReturn:
        raise UserFunctionError(
            f"operator {self._uid!r}: broadcast state {self._name!r} can only be read here ({what}); every subtask has a copy, "
            "and all have to stay the same. Write it in process_broadcast_element"
        )

    def collect(self, log: ChangeLog) -> None:
        for number in self._removed:
            if number < self._stored:
                log.keys.append(operator_key(self.sid, self._subtask, number))
                log.values.append(None)
        for key in self._changed:
            log.keys.append(operator_key(self.sid, self._subtask, self._numbers[key]))
            log.values.append(self._encoded(key, self._entries[key]))
        self._stored, self._changed, self._removed = self._next, {}, []

    def _encoded(self, key: Any, value: Any) -> bytes:
        try:
            encoded = self._key_type.encode(key), self._value_type.encode(value)
            # What can't be read again must not be committed: then it could never be undone.
            self._key_type.decode(encoded[0])
            self._value_type.decode(encoded[1])
        except Exception as error:
            raise TypeNotSupported(
                f"operator {self._uid!r}, broadcast state {self._name!r}: the entry {shorten(key)}: {shorten(value)} is none of "
                f"the state's types {self._key_type} and {self._value_type}: {error}. Put entries of its types, or declare others"
            ) from error
        return pack_entry(*encoded)


class _ReadOnly(ReadOnlyBroadcastState[Any, Any]):
    """The same copy, of which nothing can be changed."""

    def __init__(self, state: BroadcastMap) -> None:
        self._state = state

    def get(self, key: Any) -> Any:
        return self._state.get(key)

    def contains(self, key: Any) -> bool:
        return self._state.contains(key)

    def items(self) -> Iterable[tuple[Any, Any]]:
        return self._state.items()

    def keys(self) -> Iterable[Any]:
        return self._state.keys()

    def values(self) -> Iterable[Any]:
        return self._state.values()

    def is_empty(self) -> bool:
        return self._state.is_empty()

    def put(self, key: Any, value: Any) -> NoReturn:
        self._state.refuse(f"put({shorten(key)})")

    def put_all(self, entries: Mapping[Any, Any]) -> NoReturn:
        self._state.refuse("put_all()")

    def remove(self, key: Any) -> NoReturn:
        self._state.refuse(f"remove({shorten(key)})")

    def clear(self) -> NoReturn:
        self._state.refuse("clear()")

    __setitem__ = put
    __delitem__ = remove

"""Broadcast state on one subtask: a map in memory, with a store entry per key."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from forkpoint.checkpoint.states import state_id
from forkpoint.errors import UserFunctionError
from forkpoint.functions import BroadcastState, MapStateDescriptor, ReadOnlyBroadcastState
from forkpoint.runtime.operators.base import shorten
from forkpoint.runtime.state.guard import Guard
from forkpoint.runtime.state.keyed_backend import ChangeLog
from forkpoint.state import Store, decode_operator_key, operator_key, operator_range
from forkpoint.types.wire import shown

_LENGTH = struct.Struct(">I")


def pack_entry(key: bytes, value: bytes) -> bytes:
    """A map entry as the value of a store entry. The store key has the entry's number."""
    return _LENGTH.pack(len(key)) + key + value


def unpack_entry(data: bytes) -> tuple[bytes, bytes]:
    (length,) = _LENGTH.unpack_from(data)
    end = _LENGTH.size + length
    return data[_LENGTH.size : end], data[end:]


class _Reader(ReadOnlyBroadcastState[Any, Any]):
    """The read methods over one subtask's copy: values in their kept form by encoded key."""

    def __init__(self, kept: dict[bytes, Any], guard: Guard, keys: Guard) -> None:
        self._kept, self._guard = kept, guard
        self._encode_key, self._decode_key = keys.encode, keys.type.decode

    def get(self, key: Any) -> Any:
        name = self._encode_key(key)
        return self._guard.give(self._kept[name]) if name in self._kept else None

    def contains(self, key: Any) -> bool:
        return self._encode_key(key) in self._kept

    def items(self) -> Iterable[tuple[Any, Any]]:
        return [(self._decode_key(name), self._guard.give(kept)) for name, kept in self._kept.items()]

    def keys(self) -> Iterable[Any]:
        return list(map(self._decode_key, self._kept))

    def values(self) -> Iterable[Any]:
        return list(map(self._guard.give, self._kept.values()))

    def is_empty(self) -> bool:
        return not self._kept


class BroadcastMap(_Reader, BroadcastState[Any, Any]):
    """One subtask's copy. Entries are numbered in insertion order of their keys."""

    def __init__(self, store: Store, uid: str, subtask: int, descriptor: MapStateDescriptor[Any, Any]) -> None:
        where = f"operator {uid!r}, broadcast state {descriptor.name!r}"
        guard = Guard(descriptor.value_type, where, lambda: f" of entry {shown(self._current_key)}")
        keys = Guard(descriptor.key_type, where)
        super().__init__({}, guard, keys)
        self.read_only = _ReadOnly(self._kept, guard, keys, f"operator {uid!r}: broadcast state {descriptor.name!r}")
        self.sid = state_id(uid, descriptor.name)
        self._subtask = subtask
        self._current_key: Any = None  # for messages
        self._numbers: dict[bytes, int] = {}
        self._next = 0
        for entry, raw in store.scan(*operator_range(self.sid, subtask)):
            name, value = unpack_entry(raw)
            self._kept[name] = self._guard.decoded(value)
            self._numbers[name] = decode_operator_key(entry).element
            self._next = self._numbers[name] + 1
        self._stored = self._next  # lower numbers may be in the store
        self._changed: dict[bytes, None] = {}
        self._removed: list[int] = []
        self._marked: tuple[dict[bytes, Any], dict[bytes, int], int, dict[bytes, None], list[int]] | None = None

    def mark(self) -> None:
        """Save the entries for ``roll_back``."""
        self._marked = (dict(self._kept), dict(self._numbers), self._next, dict(self._changed), list(self._removed))

    def roll_back(self) -> None:
        """Roll back all changes since ``mark``."""
        assert self._marked is not None
        kept, self._numbers, self._next, self._changed, self._removed = self._marked
        self._kept.clear()  # readers share it
        self._kept.update(kept)
        self._marked = None

    def put(self, key: Any, value: Any) -> None:
        self._current_key = key
        name, kept = self._encode_key(key), self._guard.keep(value)
        if name not in self._kept:
            self._numbers[name] = self._next
            self._next += 1
        self._kept[name] = kept
        self._changed[name] = None

    def put_all(self, entries: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        for key, value in dict(entries).items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        self._remove(self._encode_key(key))

    def _remove(self, name: bytes) -> None:
        if name in self._kept:
            del self._kept[name]
            self._changed.pop(name, None)
            self._removed.append(self._numbers.pop(name))

    def clear(self) -> None:
        for name in list(self._kept):
            self._remove(name)

    def collect(self, log: ChangeLog) -> None:
        for number in self._removed:
            if number < self._stored:
                log.keys.append(operator_key(self.sid, self._subtask, number))
                log.values.append(None)
        for name in self._changed:
            log.keys.append(operator_key(self.sid, self._subtask, self._numbers[name]))
            log.values.append(pack_entry(name, self._guard.encoded(self._kept[name])))
        self._stored, self._changed, self._removed = self._next, {}, []


class _ReadOnly(_Reader):
    """The same copy, for functions that must not write to it."""

    def __init__(self, kept: dict[bytes, Any], guard: Guard, keys: Guard, where: str) -> None:
        super().__init__(kept, guard, keys)
        self._where = where

    def _refuse(self, call: str) -> NoReturn:
        raise UserFunctionError(
            f"{self._where} is read-only here ({call}): every subtask has a copy, and all copies must stay equal. "
            "Write to it in process_broadcast_element"
        )

    def put(self, key: Any, value: Any) -> NoReturn:
        self._refuse(f"put({shorten(key)})")

    def put_all(self, entries: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> NoReturn:
        self._refuse("put_all()")

    def remove(self, key: Any) -> NoReturn:
        self._refuse(f"remove({shorten(key)})")

    def clear(self) -> NoReturn:
        self._refuse("clear()")

    __setitem__ = put
    __delitem__ = remove

"""Handles of list and map state.

A list is stored in chunks, one for each epoch that appended, so that appending never reads what is there. A map has a
store entry for each of its keys. With TTL every list element and every map entry has a stamp of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any

from forkpoint.errors import TypeNotSupported
from forkpoint.functions import ListState, ListStateDescriptor, MapState, MapStateDescriptor
from forkpoint.runtime.keyed_state import ChangeLog, KeyedBackend
from forkpoint.runtime.operators.base import shorten
from forkpoint.runtime.ttl import STAMP_BYTES, Expiry, pack_stamp, sweep_in_background, unpack_stamp
from forkpoint.types import TypeInformation, Types

_CHUNK = struct.Struct(">Q")


def checked(backend: KeyedBackend, name: str, type: TypeInformation, value: Any) -> bytes:
    """The value encoded; one that could not be read again must not be committed."""
    try:
        raw = type.encode(value)
        type.decode(raw)
    except Exception as error:
        raise TypeNotSupported(
            f"operator {backend.uid!r}, state {name!r}: {shorten(value)} is no value of the state's type {type}: {error}. "
            "Update the state with values of its type, or declare another type"
        ) from error
    return raw


class _Elements:
    """One key's list in an epoch: what was added, and, once somebody looked or overwrote, the whole."""

    __slots__ = ("added", "chunks", "stamps", "stored", "whole")

    def __init__(self) -> None:
        self.added: list[Any] = []
        self.stamps: list[int] = []
        self.stored: list[bytes] | None = None  # store keys of the chunks, once they were read
        self.whole: list[Any] | None = None  # all elements, once read or overwritten
        self.chunks = False  # True when the stored chunks must go: overwritten, cleared or partly expired


class ListHandle(ListState[Any]):
    def __init__(self, backend: KeyedBackend, descriptor: ListStateDescriptor[Any]) -> None:
        self._backend = backend
        self.sid = backend.sid(descriptor.name)
        self._name = descriptor.name
        self._type = Types.LIST(descriptor.value_type)
        self._stamps_type = Types.LIST(Types.LONG())
        self._expiry = None if descriptor.ttl is None else Expiry(descriptor.ttl, backend)
        self._lists: dict[int, _Elements] = {}
        self._prefixes: list[bytes] = []
        self._index = 0
        if descriptor.ttl is not None:
            sweep_in_background(backend, self.sid, descriptor.ttl, self._chunk_expired)

    def _chunk_expired(self, raw: bytes) -> bool:
        assert self._expiry is not None
        stamps = self._stamps_type.decode(raw[STAMP_BYTES : STAMP_BYTES + unpack_stamp(raw)])
        return self._expiry.expired(max(stamps))

    def begin(self) -> None:
        self._lists = {}
        self._prefixes = self._backend.prefixes(self.sid)

    def enter(self, index: int) -> None:
        self._index = index

    def leave(self, index: int) -> None:
        pass

    def _elements(self) -> _Elements:
        found = self._lists.get(self._index)
        if found is None:
            found = self._lists[self._index] = _Elements()
        return found

    def _load(self) -> _Elements:
        elements = self._elements()
        if elements.whole is None:
            rows = self._backend.scan(self._prefixes[self._index])
            elements.stored = [k for k, _ in rows]
            elements.whole = []
            stamps: list[int] = []
            for _, raw in rows:
                if self._expiry is None:
                    elements.whole.extend(self._type.decode(raw))
                else:
                    length = unpack_stamp(raw)
                    stamps.extend(self._stamps_type.decode(raw[STAMP_BYTES : STAMP_BYTES + length]))
                    elements.whole.extend(self._type.decode(raw[STAMP_BYTES + length :]))
            elements.stamps = stamps + elements.stamps
            elements.whole.extend(elements.added)
        if self._expiry is not None:
            self._drop_expired(elements, self._expiry)
        return elements

    def _drop_expired(self, elements: _Elements, expiry: Expiry) -> None:
        assert elements.whole is not None
        if any(map(expiry.expired, elements.stamps)):
            alive = [(e, s) for e, s in zip(elements.whole, elements.stamps, strict=True) if not expiry.expired(s)]
            elements.whole = [e for e, _ in alive]
            elements.stamps = [s for _, s in alive]
            elements.chunks = True

    def get(self) -> Any:
        elements = self._load()
        if self._expiry is not None and self._expiry.on_read and elements.whole:
            elements.stamps = [self._expiry.stamp()] * len(elements.whole)
            elements.chunks = True
        return list(elements.whole or ())

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def add(self, value: Any) -> None:
        elements = self._elements()
        elements.added.append(value)
        if self._expiry is not None:
            elements.stamps.append(self._expiry.stamp())
        if elements.whole is not None:
            elements.whole.append(value)

    def add_all(self, values: Iterable[Any]) -> None:
        for value in values:
            self.add(value)

    def update(self, values: Iterable[Any]) -> None:
        elements = self._elements()
        elements.whole = list(values)
        elements.added = []
        elements.stamps = [] if self._expiry is None else [self._expiry.stamp()] * len(elements.whole)
        elements.chunks = True

    def clear(self) -> None:
        self.update(())

    def collect(self, log: ChangeLog) -> None:
        for index, elements in self._lists.items():
            prefix = self._prefixes[index]
            if elements.chunks:
                stored = elements.stored
                if stored is None:
                    stored = [k for k, _ in self._backend.scan(prefix)]
                log.keys.extend(stored)
                log.values.extend([None] * len(stored))
                self._write(log, prefix, elements.whole or [], elements.stamps)
            elif elements.added:
                self._write(log, prefix, elements.added, elements.stamps[-len(elements.added) :])
        self._lists = {}

    def _write(self, log: ChangeLog, prefix: bytes, values: list[Any], stamps: list[int]) -> None:
        if values:
            raw = checked(self._backend, self._name, self._type, values)
            if self._expiry is not None:
                packed = self._stamps_type.encode(stamps)
                raw = pack_stamp(len(packed)) + packed + raw
            log.keys.append(prefix + _CHUNK.pack(self._backend.store.version + 1))
            log.values.append(raw)


_GONE: Any = object()


class MapHandle(MapState[Any, Any]):
    def __init__(self, backend: KeyedBackend, descriptor: MapStateDescriptor[Any, Any]) -> None:
        self._backend = backend
        self.sid = backend.sid(descriptor.name)
        self._name = descriptor.name
        self._key_type = descriptor.key_type
        self._value_type = descriptor.value_type
        self._expiry = None if descriptor.ttl is None else Expiry(descriptor.ttl, backend)
        self._prefixes: list[bytes] = []
        self._maps: dict[int, dict[Any, Any]] = {}
        self._stamps: dict[int, dict[Any, int]] = {}
        self._dirty: dict[int, dict[Any, None]] = {}
        self._loaded: dict[int, set[Any]] = {}  # for keys whose entries were all read: which there were
        self._absent: set[tuple[int, Any]] = set()  # entries that were looked up and not there
        self._index = 0
        self._current: dict[Any, Any] = {}
        if (expiry := self._expiry) is not None and descriptor.ttl is not None:
            sweep_in_background(backend, self.sid, descriptor.ttl, lambda raw: expiry.expired(unpack_stamp(raw)))

    def begin(self) -> None:
        self._prefixes = self._backend.prefixes(self.sid)
        self._maps, self._stamps, self._dirty, self._loaded, self._absent = {}, {}, {}, {}, set()

    def enter(self, index: int) -> None:
        self._index = index
        self._current = self._maps.setdefault(index, {})

    def leave(self, index: int) -> None:
        pass

    def _decode(self, key: Any, raw: bytes | None) -> Any:
        if raw is None:
            return _GONE
        if self._expiry is None:
            return self._value_type.decode(raw)
        stamp = unpack_stamp(raw)
        self._stamps.setdefault(self._index, {})[key] = stamp
        return self._value_type.decode(raw[STAMP_BYTES:])

    def _find(self, key: Any) -> Any:
        value = self._current.get(key, self)
        if value is self:  # not looked up in this epoch yet
            if self._index in self._loaded:
                return _GONE
            entry = self._prefixes[self._index] + self._key_type.encode_key(key)
            raw = self._backend.store.get_many([entry])[0]
            if raw is None:
                self._absent.add((self._index, key))
            value = self._current[key] = self._decode(key, raw)
        return self._unexpired(key, value)

    def _unexpired(self, key: Any, value: Any) -> Any:
        if value is _GONE or self._expiry is None:
            return value
        if self._expiry.expired(self._stamps[self._index][key]):
            self._mark(key)
            if not self._expiry.returns_expired:
                self._current[key] = _GONE
                return _GONE
        elif self._expiry.on_read:
            self._stamps[self._index][key] = self._expiry.stamp()
            self._mark(key)
        return value

    def _mark(self, key: Any) -> None:
        self._dirty.setdefault(self._index, {})[key] = None

    def _load_all(self) -> dict[Any, Any]:
        if self._index not in self._loaded:
            prefix = self._prefixes[self._index]
            stored = self._loaded[self._index] = set()
            for entry, raw in self._backend.scan(prefix):
                key = self._key_type.decode(entry[len(prefix) :])
                stored.add(key)
                if key not in self._current:
                    self._current[key] = self._decode(key, raw)
            for key in [k for k, v in self._current.items() if v is _GONE]:
                del self._current[key]  # what is not here is not there either
        if self._expiry is None:
            return self._current
        return {k: v for k, v in list(self._current.items()) if self._unexpired(k, v) is not _GONE}

    def get(self, key: Any) -> Any:
        value = self._find(key)
        return None if value is _GONE else value

    def put(self, key: Any, value: Any) -> None:
        self._current[key] = value
        if self._expiry is not None:
            self._stamps.setdefault(self._index, {})[key] = self._expiry.stamp()
        self._mark(key)

    def put_all(self, dict_value: Any) -> None:
        for key, value in dict_value.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        if self._index in self._loaded:
            self._current.pop(key, None)
        else:
            self._current[key] = _GONE
        self._mark(key)

    def contains(self, key: Any) -> bool:
        return self._find(key) is not _GONE

    def items(self) -> Iterable[tuple[Any, Any]]:
        return list(self._load_all().items())

    def keys(self) -> Iterable[Any]:
        return list(self._load_all())

    def values(self) -> Iterable[Any]:
        return list(self._load_all().values())

    def is_empty(self) -> bool:
        return not self._load_all()

    def clear(self) -> None:
        for key in list(self._load_all()):
            self.remove(key)

    def __getitem__(self, key: Any) -> Any:
        return self.get(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.put(key, value)

    def __delitem__(self, key: Any) -> None:
        self.remove(key)

    def __contains__(self, key: Any) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())

    def _never_stored(self, index: int, key: Any) -> bool:
        """Whether an entry is known to have come and gone within the epoch."""
        stored = self._loaded.get(index)
        return (index, key) in self._absent if stored is None else key not in stored

    def collect(self, log: ChangeLog) -> None:
        for index, keys in self._dirty.items():
            prefix, entries = self._prefixes[index], self._maps[index]
            stamps = self._stamps.get(index, {})
            for key in keys:
                value = entries.get(key, _GONE)
                gone = value is _GONE or (self._expiry is not None and self._expiry.expired(stamps[key]))
                if gone:
                    if not self._never_stored(index, key):
                        log.keys.append(prefix + self._key_type.encode_key(key))
                        log.values.append(None)
                else:
                    log.keys.append(prefix + self._key_type.encode_key(key))
                    raw = checked(self._backend, self._name, self._value_type, value)
                    log.values.append(raw if self._expiry is None else pack_stamp(stamps[key]) + raw)
        self._maps, self._stamps, self._dirty, self._loaded, self._absent = {}, {}, {}, {}, set()

"""Handles of list and map state.

A list is stored in chunks, one for each epoch that appended, so that appending never reads what is there. A map has a
store entry for each of its keys. With TTL every list element and every map entry has a stamp of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from forkpoint.functions import ListState, ListStateDescriptor, MapState, MapStateDescriptor
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.runtime.state.ttl import STAMP_BYTES, Expiry, pack_stamp, sweep_in_background, unpack_stamp
from forkpoint.types import Types

_CHUNK = struct.Struct(">Q")


class _Elements:
    """What is kept of one key's list in an epoch: what was added, and, once somebody looked or overwrote, the whole."""

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
        self.guard = backend.guard(descriptor.name, descriptor.value_type)
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
                    elements.whole.extend(self.guard.decoded_all(raw))
                else:
                    length = unpack_stamp(raw)
                    stamps.extend(self._stamps_type.decode(raw[STAMP_BYTES : STAMP_BYTES + length]))
                    elements.whole.extend(self.guard.decoded_all(raw[STAMP_BYTES + length :]))
            elements.stamps = stamps + elements.stamps
            elements.whole.extend(elements.added)
        return elements

    def _read(self) -> list[Any]:
        """The elements that a reader sees."""
        elements, expiry = self._load(), self._expiry
        assert elements.whole is not None
        seen = elements.whole
        if expiry is None or not seen:
            return seen
        alive = [not expiry.expired(stamp) for stamp in elements.stamps]
        if all(alive):
            if expiry.on_read:
                self._replace(elements, seen, [expiry.stamp()] * len(seen))
            return seen
        left = [e for e, lives in zip(seen, alive, strict=True) if lives]
        if not expiry.returns_expired:
            seen = left
        elif left and not expiry.on_read:
            return seen  # as in Flink: of a list that is read, expired elements go when all have expired
        stamps = [s for s, lives in zip(elements.stamps, alive, strict=True) if lives]
        self._replace(elements, left, [expiry.stamp()] * len(left) if expiry.on_read else stamps)
        return seen

    def _replace(self, elements: _Elements, whole: list[Any], stamps: list[int]) -> None:
        elements.whole, elements.stamps, elements.added, elements.chunks = whole, stamps, [], True

    def alive(self) -> bool:
        """Whether there is something to read."""
        elements, expiry = self._load(), self._expiry
        if expiry is None:
            return bool(elements.whole)
        return not all(map(expiry.dead, elements.stamps))

    def get(self) -> Any:
        return self.guard.give_all(self._read())

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def add(self, value: Any) -> None:
        self._append([self.guard.keep(value)])

    def add_all(self, values: Iterable[Any]) -> None:
        self._append(self.guard.keep_all(values))

    def _append(self, kept: list[Any]) -> None:
        elements = self._elements()
        elements.added.extend(kept)
        if self._expiry is not None:
            elements.stamps.extend([self._expiry.stamp()] * len(kept))
        if elements.whole is not None:
            elements.whole.extend(kept)

    def update(self, values: Iterable[Any]) -> None:
        kept = self.guard.keep_all(values)
        self._replace(self._elements(), kept, [] if self._expiry is None else [self._expiry.stamp()] * len(kept))

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

    def _write(self, log: ChangeLog, prefix: bytes, kept: list[Any], stamps: list[int]) -> None:
        if kept:
            raw = self.guard.encoded_all(kept)
            if self._expiry is not None:
                packed = self._stamps_type.encode(stamps)
                raw = pack_stamp(len(packed)) + packed + raw
            log.keys.append(prefix + _CHUNK.pack(self._backend.store.version + 1))
            log.values.append(raw)


class _Entries:
    """What is kept of one key's map in an epoch, by encoded map key: so the same keys are one, within an epoch and behind it.

    ``stored``: which of them the store has, of those that were looked up; all that there are, once ``complete``.
    """

    __slots__ = ("complete", "dirty", "kept", "stamps", "stored")

    def __init__(self) -> None:
        self.kept: dict[bytes, Any] = {}
        self.stamps: dict[bytes, int] = {}
        self.stored: dict[bytes, bool] = {}
        self.dirty: dict[bytes, None] = {}
        self.complete = False


_GONE: Any = object()


class MapHandle(MapState[Any, Any]):
    def __init__(self, backend: KeyedBackend, descriptor: MapStateDescriptor[Any, Any]) -> None:
        self._backend = backend
        self.sid = backend.sid(descriptor.name)
        self.guard = backend.guard(descriptor.name, descriptor.value_type)
        self._keys = backend.guard(descriptor.name, descriptor.key_type)
        self._encode_key, self._decode_key = descriptor.key_type.encode, descriptor.key_type.decode
        self._expiry = None if descriptor.ttl is None else Expiry(descriptor.ttl, backend)
        self._prefixes: list[bytes] = []
        self._maps: dict[int, _Entries] = {}
        self._index = 0
        self._current = _Entries()
        if (expiry := self._expiry) is not None and descriptor.ttl is not None:
            sweep_in_background(backend, self.sid, descriptor.ttl, lambda raw: expiry.expired(unpack_stamp(raw)))

    def begin(self) -> None:
        self._prefixes = self._backend.prefixes(self.sid)
        self._maps = {}

    def enter(self, index: int) -> None:
        self._index = index
        found = self._maps.get(index)
        if found is None:
            found = self._maps[index] = _Entries()
        self._current = found

    def leave(self, index: int) -> None:
        pass

    def _name(self, key: Any) -> bytes:
        try:
            return self._encode_key(self._keys.accept(key))
        except Exception as error:
            raise self._keys.refusal(key, error) from error

    def _take_in(self, name: bytes, raw: bytes | None) -> Any:
        """An entry as the store has it."""
        current = self._current
        current.stored[name] = raw is not None
        if raw is None:
            kept = _GONE
        elif self._expiry is None:
            kept = self.guard.decoded(raw)
        else:
            current.stamps[name] = unpack_stamp(raw)
            kept = self.guard.decoded(raw[STAMP_BYTES:])
        current.kept[name] = kept
        return kept

    def _find(self, name: bytes) -> Any:
        """What a reader sees of an entry, as it is kept."""
        current = self._current
        kept = current.kept.get(name, self)
        if kept is self:  # not looked up in this epoch yet
            if current.complete:
                return _GONE
            kept = self._take_in(name, self._backend.store.get_many([self._prefixes[self._index] + name])[0])
        return self._read(name, kept)

    def _read(self, name: bytes, kept: Any) -> Any:
        expiry = self._expiry
        if kept is _GONE or expiry is None:
            return kept
        if expiry.expired(self._current.stamps[name]):
            self._put(name, _GONE)
            return kept if expiry.returns_expired else _GONE
        if expiry.on_read:
            self._put(name, kept)
        return kept

    def _put(self, name: bytes, kept: Any) -> None:
        current = self._current
        current.kept[name] = kept
        current.dirty[name] = None
        if self._expiry is not None and kept is not _GONE:
            current.stamps[name] = self._expiry.stamp()

    def _everything(self) -> dict[bytes, Any]:
        """All entries as they are kept, expired and removed ones too."""
        current = self._current
        if not current.complete:
            prefix = self._prefixes[self._index]
            for entry, raw in self._backend.scan(prefix):
                name = entry[len(prefix) :]
                if name in current.kept:
                    current.stored[name] = True
                else:
                    self._take_in(name, raw)
            current.complete = True
        return current.kept

    def _entries(self) -> list[tuple[bytes, Any]]:
        """What a reader sees of all entries, in the order in which they are stored."""
        found = ((name, self._read(name, kept)) for name, kept in sorted(self._everything().items(), key=_by_name))
        return [(name, kept) for name, kept in found if kept is not _GONE]

    def get(self, key: Any) -> Any:
        kept = self._find(self._name(key))
        return None if kept is _GONE else self.guard.give(kept)

    def put(self, key: Any, value: Any) -> None:
        self._put(self._name(key), self.guard.keep(value))

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        for key, value in dict_value.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        self._put(self._name(key), _GONE)

    def contains(self, key: Any) -> bool:
        return self._find(self._name(key)) is not _GONE

    def items(self) -> Iterable[tuple[Any, Any]]:
        key, give = self._decode_key, self.guard.give
        return [(key(name), give(kept)) for name, kept in self._entries()]

    def keys(self) -> Iterable[Any]:
        return [self._decode_key(name) for name, _ in self._entries()]

    def values(self) -> Iterable[Any]:
        return [self.guard.give(kept) for _, kept in self._entries()]

    def is_empty(self) -> bool:
        return not self.alive()

    def alive(self) -> bool:
        """Whether there is something to read."""
        expiry, stamps = self._expiry, self._current.stamps
        return any(
            kept is not _GONE and (expiry is None or not expiry.dead(stamps[name]))
            for name, kept in self._everything().items()
        )

    def clear(self) -> None:
        for name, kept in list(self._everything().items()):
            if kept is not _GONE:
                self._put(name, _GONE)

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

    def collect(self, log: ChangeLog) -> None:
        encoded, expiry = self.guard.encoded, self._expiry
        for index, entries in self._maps.items():
            prefix = self._prefixes[index]
            for name in entries.dirty:
                kept = entries.kept[name]
                if kept is _GONE or (expiry is not None and expiry.dead(entries.stamps[name])):
                    # Nothing to remove where it is known that nothing is there.
                    if entries.stored.get(name, not entries.complete):
                        log.keys.append(prefix + name)
                        log.values.append(None)
                else:
                    raw = encoded(kept)
                    log.keys.append(prefix + name)
                    log.values.append(raw if expiry is None else pack_stamp(entries.stamps[name]) + raw)
        self._maps, self._current = {}, _Entries()


def _by_name(entry: tuple[bytes, Any]) -> bytes:
    return entry[0]

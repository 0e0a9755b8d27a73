"""Map state, with a store entry per map key.

Map keys replace the namespace in store keys, so windows have no map state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from forkpoint.functions import MapState
from forkpoint.runtime.state.guard import Guard

if TYPE_CHECKING:
    from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
    from forkpoint.runtime.state.ttl import Expiry

_GONE: Any = object()
_UNKNOWN: Any = object()


class _Entries:
    """One map in an epoch, by encoded map key, so that keys are equal within an epoch if they are equal in the store.

    ``name``: the prefix of its store keys; ``stored``: whether the store has an entry, for all keys that were looked up;
    ``complete``: whether all stored entries are known.
    """

    __slots__ = ("complete", "dirty", "kept", "name", "stored")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.kept: dict[bytes, Any] = {}
        self.stored: dict[bytes, bool] = {}
        self.dirty: dict[bytes, None] = {}
        self.complete = False

    def put(self, key: bytes, kept: Any) -> None:
        self.kept[key] = kept
        self.dirty[key] = None


class MapHandle(MapState[Any, Any]):
    def __init__(self, backend: KeyedBackend, sid: int, guard: Guard, keys: Guard) -> None:
        self._backend, self._sid, self._guard, self._expiry = backend, sid, guard, guard.expiry
        self._encode, self._decode = keys.encode, keys.type.decode
        self._prefixes: list[bytes] = []
        self._maps: dict[int, _Entries] = {}
        self._current = _Entries(b"")

    def begin(self) -> None:
        self._prefixes = self._backend.prefixes(self._sid)
        self._maps = {}

    def enter(self, index: int) -> None:
        found = self._maps.get(index)
        if found is None:
            found = self._maps[index] = _Entries(self._prefixes[index])
        self._current = found

    def leave(self, index: int) -> None:
        pass

    def _load(self, entries: _Entries, key: bytes, raw: bytes | None) -> Any:
        """Add the stored entry of a key."""
        entries.stored[key] = raw is not None
        kept = entries.kept[key] = _GONE if raw is None else self._guard.decoded(raw)
        return kept

    def _find(self, key: bytes) -> Any:
        """The kept form of the value that a reader sees."""
        entries = self._current
        kept = entries.kept.get(key, _UNKNOWN)
        if kept is _UNKNOWN:
            if entries.complete:
                return _GONE
            kept = self._load(entries, key, self._backend.store.get_many([entries.name + key])[0])
        return kept if self._expiry is None or kept is _GONE else self._read(self._expiry, key, kept)

    def _read(self, expiry: Expiry, key: bytes, kept: Any) -> Any:
        visible, remaining = expiry.read(kept)
        if remaining is not kept:
            self._current.put(key, _GONE if remaining is None else remaining)
        return _GONE if visible is None else visible

    def _all(self) -> dict[bytes, Any]:
        """All entries in their kept form, including expired and removed ones."""
        entries = self._current
        if not entries.complete:
            start = len(entries.name)
            for name, raw in self._backend.scan(entries.name):
                key = name[start:]
                if key in entries.kept:
                    entries.stored[key] = True
                else:
                    self._load(entries, key, raw)
            entries.complete = True
        return entries.kept

    def _read_all(self) -> list[tuple[bytes, Any]]:
        """The entries that a reader sees, in the order of the store."""
        expiry = self._expiry
        entries = [entry for entry in sorted(self._all().items(), key=itemgetter(0)) if entry[1] is not _GONE]
        if expiry is None:
            return entries
        visible = [(key, self._read(expiry, key, kept)) for key, kept in entries]
        return [entry for entry in visible if entry[1] is not _GONE]

    def get(self, key: Any) -> Any:
        kept = self._find(self._encode(key))
        return None if kept is _GONE else self._guard.give(kept)

    def put(self, key: Any, value: Any) -> None:
        self._current.put(self._encode(key), self._guard.keep(value))

    def put_all(self, dict_value: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        for key, value in dict(dict_value).items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        self._current.put(self._encode(key), _GONE)

    def contains(self, key: Any) -> bool:
        return self._find(self._encode(key)) is not _GONE

    def items(self) -> Iterable[tuple[Any, Any]]:
        decode, give = self._decode, self._guard.give
        return [(decode(key), give(kept)) for key, kept in self._read_all()]

    def keys(self) -> Iterable[Any]:
        return [self._decode(key) for key, _ in self._read_all()]

    def values(self) -> Iterable[Any]:
        return [self._guard.give(kept) for _, kept in self._read_all()]

    def is_empty(self) -> bool:
        return not self.alive()

    def alive(self) -> bool:
        expiry = self._expiry
        return any(kept is not _GONE and (expiry is None or not expiry.dead(kept)) for kept in self._all().values())

    def clear(self) -> None:
        for key, kept in list(self._all().items()):
            if kept is not _GONE:
                self._current.put(key, _GONE)

    def collect(self, log: ChangeLog) -> None:
        encoded, expiry = self._guard.encoded, self._expiry
        for entries in self._maps.values():
            for key in entries.dirty:
                kept = entries.kept[key]
                if kept is not _GONE and (expiry is None or not expiry.dead(kept)):
                    log.keys.append(entries.name + key)
                    log.values.append(encoded(kept))
                elif entries.stored.get(key, not entries.complete):  # else the store has no entry to delete
                    log.keys.append(entries.name + key)
                    log.values.append(None)
        self._maps, self._current = {}, _Entries(b"")

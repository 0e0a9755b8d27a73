"""Map state: a store entry for each of a map's keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from forkpoint.functions import MapState
from forkpoint.runtime.state.guard import Guard
from forkpoint.runtime.state.namespace import Namespace, NamespacedEntries

if TYPE_CHECKING:
    from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend

_GONE: Any = object()
_UNKNOWN: Any = object()


class _Entries:
    """What is kept of one map in an epoch, by encoded map key: so the same keys are one, within an epoch and after it.

    ``name``: what its store keys begin with; ``stored``: whether the store has an entry, for those that were looked up; all
    that there are, once ``complete``.
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


class MapHandle(NamespacedEntries[_Entries], MapState[Any, Any]):
    def __init__(self, backend: KeyedBackend, sid: int, guard: Guard, keys: Guard, namespace: Namespace) -> None:
        super().__init__(backend, sid, namespace)
        self._guard = guard
        self._encode, self._decode = keys.encode, keys.type.decode

    def _load(self, name: bytes) -> _Entries:
        return _Entries(name)

    def _take_in(self, entries: _Entries, key: bytes, raw: bytes | None) -> Any:
        """An entry as the store has it."""
        entries.stored[key] = raw is not None
        kept = entries.kept[key] = _GONE if raw is None else self._guard.decoded(raw)
        return kept

    def _find(self, key: bytes) -> Any:
        """What a reader sees of an entry, as it is kept."""
        entries = self._entry(self._namespace.current)
        kept = entries.kept.get(key, _UNKNOWN)
        if kept is _UNKNOWN:
            if entries.complete:
                return _GONE
            kept = self._take_in(entries, key, self._backend.store.get_many([entries.name + key])[0])
        return kept if self._guard.expiry is None else self._read(entries, key, kept)

    def _read(self, entries: _Entries, key: bytes, kept: Any) -> Any:
        expiry = self._guard.expiry
        if kept is _GONE or expiry is None:
            return kept
        seen, stays = expiry.read(kept)
        if stays is not kept:
            entries.put(key, _GONE if stays is None else stays)
        return _GONE if seen is None else seen

    def _all(self, entries: _Entries) -> dict[bytes, Any]:
        """All entries as they are kept, expired and removed ones too."""
        if not entries.complete:
            start = len(entries.name)
            for name, raw in self._backend.scan(entries.name):
                key = name[start:]
                if key in entries.kept:
                    entries.stored[key] = True
                else:
                    self._take_in(entries, key, raw)
            entries.complete = True
        return entries.kept

    def _read_all(self) -> list[tuple[bytes, Any]]:
        """What a reader sees of all entries, in the order in which they are stored."""
        entries = self._entry(self._namespace.current)
        by_key = sorted(self._all(entries).items(), key=itemgetter(0))
        found = ((key, self._read(entries, key, kept)) for key, kept in by_key)
        return [(key, kept) for key, kept in found if kept is not _GONE]

    def get(self, key: Any) -> Any:
        kept = self._find(self._encode(key))
        return None if kept is _GONE else self._guard.give(kept)

    def put(self, key: Any, value: Any) -> None:
        encoded, kept = self._encode(key), self._guard.keep(value)
        entries = self._entry(self._namespace.current)
        entries.kept[encoded] = kept
        entries.dirty[encoded] = None

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        for key, value in dict_value.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        self._entry(self._namespace.current).put(self._encode(key), _GONE)

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
        """Whether there is something to read."""
        everything, expiry = self._all(self._entry(self._namespace.current)), self._guard.expiry
        return any(kept is not _GONE and (expiry is None or not expiry.dead(kept)) for kept in everything.values())

    def clear(self) -> None:
        entries = self._entry(self._namespace.current)
        for key, kept in list(self._all(entries).items()):
            if kept is not _GONE:
                entries.put(key, _GONE)

    def collect(self, log: ChangeLog) -> None:
        encoded, expiry = self._guard.encoded, self._guard.expiry
        for entries in self._finish():
            for key in entries.dirty:
                kept = entries.kept[key]
                if kept is not _GONE and (expiry is None or not expiry.dead(kept)):
                    log.keys.append(entries.name + key)
                    log.values.append(encoded(kept))
                elif entries.stored.get(key, not entries.complete):  # else it is known that there is nothing to remove
                    log.keys.append(entries.name + key)
                    log.values.append(None)

"""List state, stored in one chunk per epoch with appends, so that an append needs no read."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from forkpoint.functions import ListState
from forkpoint.runtime.state.guard import Guard
from forkpoint.runtime.state.namespace import Namespace, NamespacedEntries

if TYPE_CHECKING:
    from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend

_CHUNK = struct.Struct(">Q")


class _Elements:
    """One list in an epoch: ``added`` elements and, once the list was read or replaced, ``all`` its elements.

    ``name``: the prefix of its chunks' store keys; ``stored``: these store keys, once read; ``replaced``: whether the stored
    chunks are deleted.
    """

    __slots__ = ("added", "all", "name", "replaced", "stored")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.added: list[Any] = []
        self.all: list[Any] | None = None
        self.stored: list[bytes] | None = None
        self.replaced = False

    def append(self, kept: list[Any]) -> None:
        self.added.extend(kept)
        if self.all is not None:
            self.all.extend(kept)

    def replace(self, kept: list[Any]) -> None:
        self.all, self.added, self.replaced = kept, [], True


class ListHandle(NamespacedEntries[_Elements], ListState[Any]):
    def __init__(self, backend: KeyedBackend, sid: int, guard: Guard, namespace: Namespace) -> None:
        super().__init__(backend, sid, namespace)
        self._guard, self._expiry = guard, guard.expiry

    def _load(self, name: bytes) -> _Elements:
        return _Elements(name)

    def _all(self, elements: _Elements) -> list[Any]:
        """All elements, including expired ones."""
        if elements.all is None:
            chunks = self._backend.scan(elements.name)
            elements.stored = [name for name, _ in chunks]
            elements.all = [kept for _, raw in chunks for kept in self._guard.decoded_all(raw)]
            elements.all.extend(elements.added)
        return elements.all

    def _read(self) -> list[Any]:
        """The elements that a reader sees."""
        elements, expiry = self._entry(self._namespace.current), self._expiry
        kept = self._all(elements)
        if expiry is None:
            return kept
        visible, remaining = expiry.read_all(kept)
        if remaining is not kept:
            elements.replace(remaining)
        return visible

    def alive(self) -> bool:
        kept, expiry = self._all(self._entry(self._namespace.current)), self._expiry
        return bool(kept) if expiry is None else not all(map(expiry.dead, kept))

    def get(self) -> Any:
        return self._guard.give_all(self._read())

    def add(self, value: Any) -> None:
        kept, elements = self._guard.keep(value), self._entry(self._namespace.current)
        elements.added.append(kept)
        if elements.all is not None:
            elements.all.append(kept)

    def add_all(self, values: Iterable[Any]) -> None:
        self._entry(self._namespace.current).append(self._guard.keep_all(values))

    def update(self, values: Iterable[Any]) -> None:
        self._entry(self._namespace.current).replace(self._guard.keep_all(values))

    def clear(self) -> None:
        self.update(())

    def merge(self, target: bytes, sources: Sequence[bytes]) -> None:
        """Append the lists of other windows to the target's list, in order."""
        for source in sources:
            elements = self._entry(source)
            self._entry(target).append(self._all(elements))
            elements.replace([])

    def collect(self, log: ChangeLog) -> None:
        chunk, encoded_all = _CHUNK.pack(self._backend.store.version + 1), self._guard.encoded_all
        for elements in self._finish():
            kept = elements.added
            if elements.replaced:
                stored = elements.stored
                if stored is None:
                    stored = [name for name, _ in self._backend.scan(elements.name)]
                log.delete(stored)
                kept = elements.all or []
            if kept:
                log.keys.append(elements.name + chunk)
                log.values.append(encoded_all(kept))

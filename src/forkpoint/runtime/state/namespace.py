"""The namespace of keyed state: the window of window state, else empty."""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from forkpoint.types import TypeInformation

if TYPE_CHECKING:
    from forkpoint.runtime.state.keyed_backend import KeyedBackend

E = TypeVar("E")


@dataclass(slots=True)
class Namespace:
    """The current window of all states bound to it. ``current``: the encoded window; ``type``: the windows' type.

    An encoded window (msgpack) is never a prefix of another, so all entries of a window are one range of the store.
    """

    type: TypeInformation | None = None
    current: bytes = b""


class NamespacedEntries(Generic[E]):
    """The entries of one state in an epoch, by key and namespace.

    An entry is read at its first use, because the windows of an epoch are not known in advance.
    """

    def __init__(self, backend: KeyedBackend, sid: int, namespace: Namespace) -> None:
        self._backend, self._sid, self._namespace = backend, sid, namespace
        self._prefixes: list[bytes] = []
        self._by_key: defaultdict[int, dict[bytes, E]] = defaultdict(dict)
        self._current: dict[bytes, E] = {}
        self._index = 0

    @abstractmethod
    def _load(self, name: bytes) -> E:
        """The entry with this store key, or with the store keys of this prefix."""

    def _entry(self, namespace: bytes) -> E:
        entry = self._current.get(namespace)
        if entry is None:
            entry = self._current[namespace] = self._load(self._prefixes[self._index] + namespace)
        return entry

    def begin(self) -> None:
        self._prefixes = self._backend.prefixes(self._sid)
        self._by_key = defaultdict(dict)

    def enter(self, index: int) -> None:
        self._index = index
        self._current = self._by_key[index]

    def leave(self, index: int) -> None:
        pass

    def _finish(self) -> list[E]:
        """End the epoch, and return all its entries."""
        entries = [entry for by_namespace in self._by_key.values() for entry in by_namespace.values()]
        self._by_key, self._current = defaultdict(dict), {}
        return entries

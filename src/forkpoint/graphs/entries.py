"""State of one subtask, of which an epoch loads the entries that it touches: maps of encoded keys, and neighbors by vertex.

Vertices stay encoded. Equal vertices have equal bytes, and only those of which something is emitted have to be decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from forkpoint.functions import MapStateDescriptor
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.types import Types

Pair = tuple[bytes, bytes]
Link = tuple[int, bool]
"""How many of the two directions an edge has, and whether it is in the spanning forest."""

LINK = Types.TUPLE([Types.INT(), Types.BOOLEAN()])
_ENCODED = {(count, tree): LINK.encode((count, tree)) for count in (1, 2) for tree in (False, True)}
_DECODED = {data: link for link, data in _ENCODED.items()}
_TWO = b"\x92"
"""The first byte of an encoded pair; its parts follow, so that all pairs with one first part are neighbors in a store."""


class Entries:
    """A map in state. ``now`` has the loaded entries, None for one that is not there."""

    def __init__(self, backend: KeyedBackend, of: MapStateDescriptor[Any, Any]) -> None:
        backend.record("map", of.name, of.value_type, of.key_type)
        self._backend, self._sid, self._type = backend, backend.sid(of.name), of.value_type
        self._prefix = b""
        self.before: dict[bytes, Any] = {}
        self.now: dict[bytes, Any] = {}

    def begin(self) -> None:
        self._prefix = self._backend.prefixes(self._sid)[0]
        self.before, self.now = {}, {}

    def load(self, keys: Iterable[bytes]) -> None:
        missing = [key for key in dict.fromkeys(keys) if key not in self.now]
        prefix, decode = self._prefix, self._type.decode
        for key, data in zip(missing, self._backend.store.get_many([prefix + key for key in missing]), strict=True):
            self.before[key] = self.now[key] = None if data is None else decode(data)

    def load_all(self) -> None:
        names = self._backend.store.scan_prefixes([self._prefix]).keys
        self.load([name[len(self._prefix) :] for name in names])

    def collect(self, log: ChangeLog) -> None:
        for key, value in self.now.items():
            if value != self.before.get(key):
                log.keys.append(self._prefix + key)
                log.values.append(None if value is None else self._type.encode(value))


class Adjacency:
    """Values of ordered pairs of vertices, all those with one first vertex at once."""

    def __init__(self, backend: KeyedBackend, of: MapStateDescriptor[Any, Any]) -> None:
        backend.record("map", of.name, of.value_type, of.key_type)
        self._backend, self._sid = backend, backend.sid(of.name)
        self._encode: Callable[[Any], bytes] = of.value_type.encode
        self._decode: Callable[[bytes], Any] = of.value_type.decode
        self._prefix = b""
        self._set: dict[bytes, dict[bytes, Any]] = {}
        self._all: dict[bytes, dict[bytes, Any]] = {}

    def begin(self) -> None:
        self._prefix = self._backend.prefixes(self._sid)[0] + _TWO
        self._set, self._all = {}, {}

    def load(self, vertices: Iterable[bytes]) -> None:
        """Load all that is next to vertices."""
        missing = [vertex for vertex in vertices if vertex not in self._all]
        prefix, decode = self._prefix, self._decode
        found = self._backend.store.scan_prefixes([prefix + vertex for vertex in missing])
        position = 0
        for vertex, count in zip(missing, found.counts, strict=True):
            start, stop = len(prefix) + len(vertex), position + count
            values = {
                name[start:]: decode(data)
                for name, data in zip(found.keys[position:stop], found.values[position:stop], strict=True)
            }
            position = stop
            for other, value in self._set.get(vertex, {}).items():
                if value is None:
                    values.pop(other, None)
                else:
                    values[other] = value
            self._all[vertex] = values

    def of(self, vertex: bytes) -> dict[bytes, Any]:
        """What is next to a vertex, which has been loaded."""
        return self._all[vertex]

    def has(self, vertex: bytes) -> bool:
        """Whether it has been loaded."""
        return vertex in self._all

    def put(self, first: bytes, second: bytes, value: Any) -> None:
        """Set the value of a pair, or remove it (None)."""
        self._set.setdefault(first, {})[second] = value
        values = self._all.get(first)
        if values is not None and value is None:
            values.pop(second, None)
        elif values is not None:
            values[second] = value

    def collect(self, log: ChangeLog) -> None:
        encode = self._encode
        for first, values in self._set.items():
            head = self._prefix + first
            log.add((head + second for second in values), (None if x is None else encode(x) for x in values.values()))


class Neighbors(Adjacency):
    """The edges of an undirected graph, at both of their ends."""

    def __init__(self, backend: KeyedBackend, of: MapStateDescriptor[Any, Any]) -> None:
        super().__init__(backend, of)
        self._encode, self._decode = _ENCODED.__getitem__, _DECODED.__getitem__
        self._known: dict[Pair, Link | None] = {}

    def begin(self) -> None:
        super().begin()
        self._known = {}

    def load_pairs(self, pairs: Iterable[Pair]) -> None:
        missing = [pair for pair in dict.fromkeys(pairs) if self.maybe(pair) is ...]
        names = [self._prefix + first + second for first, second in missing]
        for pair, data in zip(missing, self._backend.store.get_many(names), strict=True):
            self._known[pair] = None if data is None else _DECODED[data]

    def maybe(self, pair: Pair) -> Any:
        """The link of a pair, None if there is none, ``...`` if it has not been loaded."""
        first, second = pair
        changed = self._set.get(first)
        if changed is not None and second in changed:
            return changed[second]
        of_first = self._all.get(first)
        return of_first.get(second) if of_first is not None else self._known.get(pair, ...)

    def changed(self, vertex: bytes) -> Iterable[bytes]:
        """The neighbors whose edge to a vertex the epoch has changed."""
        return self._set.get(vertex, ())

    def set(self, pair: Pair, link: Link | None) -> None:
        first, second = pair
        self.put(first, second, link)
        self.put(second, first, link)

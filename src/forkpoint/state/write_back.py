"""A write-back cache of committed changes in front of a store.

Most keys that change in one epoch change again in the next. The cache serves them from memory and writes them to the store
once for many epochs. Its changes are already committed: after a loss, the task reads them from the changelog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress, repeat
from operator import itemgetter
from typing import Any

from forkpoint.errors import StorageError
from forkpoint.state.files import Columns
from forkpoint.state.keys import prefix_stop
from forkpoint.state.shared import SharedStore
from forkpoint.state.store import Changes, Found, Range, Store, StoreSize, check_base

MAX_EPOCHS = 32  # so that a process that takes over reads few changelogs again
MAX_ENTRIES = 1 << 18
MAX_BYTES = 64 << 20  # of values

_ENTRY_BYTES = 250  # of a held entry with a small key and value
_PREFIX = 6  # bytes of key group and sid in a store key
_SID, _GROUP_AND_SID = itemgetter(slice(2, _PREFIX)), itemgetter(slice(0, _PREFIX))
_ABSENT: Any = object()  # None is a delete


class WriteBackStore:
    """A store that holds its latest changes in memory, up to a limit of epochs, entries and bytes.

    For one thread. Other processes may write to the same store: `version` checks the store first, so it never lags behind
    them. ``stored`` is called with each version that this process has written to the store. ``memory_bytes``: about how much
    memory the held changes may take.
    """

    def __init__(
        self,
        store: Store,
        max_entries: int = MAX_ENTRIES,
        stored: Callable[[int], None] = lambda version: None,
        memory_bytes: int | None = None,
    ) -> None:
        self._store = store
        self._stored = stored
        limit = MAX_BYTES if memory_bytes is None else memory_bytes
        self._max_entries, self._max_bytes = min(max_entries, limit // _ENTRY_BYTES), min(limit, MAX_BYTES)
        self._held: dict[bytes, bytes | None] = {}
        self._bytes = self._epochs = 0
        self._sids: set[bytes] = set()  # of the held keys that `_notice` has seen
        self._empty: dict[bytes, bytes] = {}  # ranges of a state in a key group that had no entries then, as timers' often
        self._unseen: list[Sequence[bytes]] = []  # the held keys of each epoch since `_notice`
        self._stored_size: StoreSize | None = None  # cached until the store changes
        self._base = self._version = store.version

    @property
    def version(self) -> int:
        current = self._store.version
        if not self._base <= current <= self._version:
            # Another process is ahead or has reloaded the store, so its version counts.
            self._drop()
            self._empty.clear()
            self._version = current
        self._base = current
        return self._version

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        if not self._held:
            return self._store.get_many(keys)
        found = list(map(self._held.get, keys, repeat(_ABSENT)))
        absent = [value is _ABSENT for value in found]
        if any(absent):
            stored = iter(self._store.get_many(list(compress(keys, absent))))
            found = [next(stored) if value is _ABSENT else value for value in found]
        return found

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        if self._held and self._touches(start, stop):
            self.flush()
        return self._store.scan(start, stop)

    def occupied(self, ranges: Sequence[Range]) -> list[Range]:
        self._notice()
        if self._empty:
            known = self._empty.get
            ranges = [each for each in ranges if each[1] > known(each[0][:_PREFIX], b"")]
        if self._held and any(self._touches(start, stop) for start, stop in ranges):
            self.flush()
        found = self._store.occupied(ranges) if ranges else []
        for start, stop in set(ranges).difference(found):
            if len(start) == _PREFIX and stop == prefix_stop(start):
                self._empty[start] = stop
        return found

    def scan_prefixes(self, prefixes: Sequence[bytes]) -> Found:
        if self._held and any(self._touches(prefix, prefix_stop(prefix)) for prefix in prefixes):
            self.flush()
        return self._store.scan_prefixes(prefixes)

    def _touches(self, start: bytes, stop: bytes) -> bool:
        """Whether a range may contain held keys. Most scans are for one state's timers or map entries."""
        one_state = len(start) >= _PREFIX and stop <= prefix_stop(start[:_PREFIX])
        if one_state:
            self._notice()
        return not one_state or start[2:_PREFIX] in self._sids

    def _notice(self) -> None:
        """Look at the states of held keys. Only scans need them, and many jobs never scan."""
        if self._unseen:
            keys = self._unseen[0] if len(self._unseen) == 1 else self._held
            self._sids.update(map(_SID, self._fill(keys)))
            self._unseen.clear()

    def _fill(self, keys: Iterable[bytes]) -> set[bytes]:
        """Forget that the ranges of these keys are empty. Returns their prefixes."""
        prefixes = set(map(_GROUP_AND_SID, keys))
        for prefix in self._empty.keys() & prefixes:
            del self._empty[prefix]
        return prefixes

    def apply(self, changes: Changes, version: int, base: int) -> None:
        current = self.version
        if current >= version:
            return
        check_base("in memory", current, base)
        if not all(changes.keys):
            raise StorageError("a store key has at least one byte, got an empty one")
        if not self._held and len(changes) > self._max_entries:  # so many that nothing is held of them
            if self._empty:
                self._fill(changes.keys)
            self._store.apply(changes, version, base)
            self._base = self._version = version
            self._stored_size = None
            self._stored(version)
            return
        self._held.update(zip(changes.keys, changes.values, strict=True))
        self._unseen.append(changes.keys)
        self._bytes += sum(map(len, filter(None, changes.values)))
        self._version = version
        self._epochs += 1
        if len(self._held) > self._max_entries or self._bytes > self._max_bytes or self._epochs >= MAX_EPOCHS:
            self.flush()

    def flush(self) -> None:
        """Write the held changes to the store, where other processes see them."""
        version = self.version  # may drop the held changes
        if self._base < version:
            if self._empty:
                self._notice()
            self._store.apply(Changes(list(self._held), list(self._held.values())), version, self._base)
            self._base = version
            self._drop()
            self._stored(version)

    def _drop(self) -> None:
        self._held, self._sids, self._unseen = {}, set(), []
        self._bytes = self._epochs = 0
        self._stored_size = None

    def load(self, chunks: Iterable[Columns], version: int) -> None:
        self._drop()
        self._empty.clear()
        self._store.load(chunks, version)
        self._stored_size = None
        self._base = self._version = version
        self._stored(version)

    def size(self) -> StoreSize:
        """The size at the last flush, but at least the size of the held changes."""
        stored = self._stored_size = self._stored_size or self._store.size()
        size = None if stored.bytes is None else max(stored.bytes, self._bytes)
        return StoreSize(max(stored.entries, len(self._held)), size)

    def clear(self) -> None:
        self._drop()
        self._empty.clear()
        self._store.clear()
        self._base = self._version = 0

    def suspend(self) -> None:
        """See ``SharedStore.suspend``; the held changes stay."""
        if isinstance(self._store, SharedStore):
            self._store.suspend()

    def close(self) -> None:
        """Drops the held changes, which the changelog has."""
        self._drop()
        self._store.close()

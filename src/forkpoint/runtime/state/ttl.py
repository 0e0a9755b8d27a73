"""Time to live of state entries: when they expire, and how the stamp is stored (8 bytes ahead of the value)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import islice

from forkpoint.functions import StateTtlConfig
from forkpoint.runtime.event_time.watermarks import MIN_MS
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.state import sid_range

_STAMP = struct.Struct(">q")
STAMP_BYTES = _STAMP.size


def pack_stamp(stamp_ms: int) -> bytes:
    return _STAMP.pack(stamp_ms)


def unpack_stamp(value: bytes) -> int:
    return int(_STAMP.unpack_from(value)[0])


class Expiry:
    """Decides, for one state, whether an entry stamped at a time has expired."""

    def __init__(self, config: StateTtlConfig, backend: KeyedBackend) -> None:
        self._ttl_ms = config.ttl_ms
        self._backend = backend
        self.on_read = config.updates_on_read
        self.returns_expired = config.returns_expired
        self.now: Callable[[], int] = self._event_time if config.event_time else self._processing_time

    def _processing_time(self) -> int:
        return self._backend.processing_time_ms

    def _event_time(self) -> int:
        return self._backend.watermark()

    def stamp(self) -> int:
        """What an entry that is written now gets: the time, and before the first watermark the element's own."""
        now = self.now()
        return now if now > MIN_MS else self._backend.element_time(now)

    def expired(self, stamp_ms: int) -> bool:
        return stamp_ms + self._ttl_ms <= self.now()

    def dead(self, stamp_ms: int) -> bool:
        """Whether the entry has expired and nobody will see it again."""
        return not self.returns_expired and self.expired(stamp_ms)


class Sweeper:
    """Removes expired entries that nobody asks for: some in each epoch, going round the key groups.

    Removals are changes like all others, so it does not matter where a repeated epoch begins.
    """

    LEAST_ENTRIES = 1000  # looked at in an epoch; as many as the epoch has keys where those are more

    def __init__(self, backend: KeyedBackend, sid: int, expired: Callable[[bytes], bool]) -> None:
        self._backend = backend
        self._sid = sid
        self._expired = expired
        self._group: int | None = None
        self._after: bytes | None = None

    def __call__(self, log: ChangeLog) -> None:
        first, stop = self._backend.groups
        left = max(self.LEAST_ENTRIES, len(self._backend.keys))
        changed = set(log.keys)
        group = first if self._group is None or not first <= self._group < stop else self._group
        for _ in range(first, stop):
            start, end = sid_range(group, self._sid)
            entries = list(islice(self._backend.store.scan(self._after or start, end), left))
            gone = [key for key, value in entries if key not in changed and self._expired(value)]
            log.keys.extend(gone)
            log.values.extend([None] * len(gone))
            left -= len(entries)
            if left <= 0:
                self._group, self._after = group, entries[-1][0] + b"\0"
                return
            group, self._after = group + 1 if group + 1 < stop else first, None
        self._group = group


def sweep_in_background(
    backend: KeyedBackend, sid: int, config: StateTtlConfig, expired: Callable[[bytes], bool]
) -> None:
    """Have a state's expired entries removed, unless its configuration says not to.

    Entries that can be seen after they have expired are left to who sees them, by event time: how long they are seen must not
    depend on where epochs end.
    """
    if config.cleanup_in_background and not (config.returns_expired and config.event_time):
        backend.sweepers.append(Sweeper(backend, sid, expired))

"""Time to live of state entries: when they expire, and how the stamp is stored (8 bytes ahead of the value)."""

from __future__ import annotations

import struct
from collections.abc import Callable

from forkpoint.functions import StateTtlConfig
from forkpoint.runtime.keyed_state import KeyedBackend
from forkpoint.runtime.time import MIN_MS

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

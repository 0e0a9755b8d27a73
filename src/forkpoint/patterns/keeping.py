"""All events of a key for some time, so that a changed pattern can be matched in them.

Their elements are in the state of the events of partial matches, whether a partial match has them or not; here are their times,
by number. A timer ends the oldest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from forkpoint.functions import MapStateDescriptor
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.state import prefix_stop
from forkpoint.types import Types

EVENT_TIMES = "event_times"
_LONG = Types.LONG()


def event_times_descriptor(definition: Any) -> MapStateDescriptor[int, int]:
    """The times in ms of kept events, by number."""
    found: MapStateDescriptor[int, int] = MapStateDescriptor(EVENT_TIMES, _LONG, _LONG)
    found.definition = definition
    return found


class KeptEvents:
    """The times of a key's events whose time is less than ``keep_ms`` ago. Numbers grow with times."""

    def __init__(self, backend: KeyedBackend, keep_ms: int, definition: Any) -> None:
        backend.record("map", EVENT_TIMES, _LONG, _LONG, definition=definition)
        self._store, self._sid, self._keep_ms = backend.store, backend.sid(EVENT_TIMES), keep_ms
        self._backend = backend
        self._prefixes: Sequence[bytes] = ()
        self._prefix = b""

    def begin(self) -> None:
        self._prefixes = self._backend.prefixes(self._sid)

    def enter(self, key: int) -> None:
        self._prefix = self._prefixes[key]

    def stored(self) -> Iterator[tuple[int, int]]:
        """The stored numbers and times of the current key, the oldest first."""
        for name, value in self._store.scan(self._prefix, prefix_stop(self._prefix)):
            yield _LONG.decode(name[len(self._prefix) :]), _LONG.decode(value)

    def keeps(self, at_ms: int, now_ms: int) -> bool:
        return at_ms > now_ms - self._keep_ms

    def store(self, new: Mapping[int, int], now_ms: int, log: ChangeLog) -> tuple[list[int], int | None]:
        """Keep the times of new events, and drop those of old ones. Returns the numbers of the old ones, and the time until which
        the oldest of the others is kept, None if there are none."""
        old: list[int] = []
        oldest = min(new.values(), default=None)
        for number, at_ms in self.stored():
            if self.keeps(at_ms, now_ms):
                oldest = at_ms
                break
            old.append(number)
        log.delete([self._prefix + _LONG.encode(number) for number in old])
        for number, at_ms in new.items():
            log.keys.append(self._prefix + _LONG.encode(number))
            log.values.append(_LONG.encode(at_ms))
        return old, None if oldest is None else oldest + self._keep_ms

"""Time to live of state entries: their expiry, and the storage of their time stamps."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from forkpoint.functions import StateTtlConfig
from forkpoint.runtime.event_time.watermarks import MIN_MS
from forkpoint.runtime.state.guard import Guard
from forkpoint.state import in_groups, kg_of, sid_range
from forkpoint.types import Types

if TYPE_CHECKING:
    from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend

_STAMP = struct.Struct(">q")
STAMP_BYTES = _STAMP.size
_STAMPS = Types.LIST(Types.LONG())


def pack_stamp(stamp_ms: int) -> bytes:
    return _STAMP.pack(stamp_ms)


def unpack_stamp(value: bytes) -> int:
    return int(_STAMP.unpack_from(value)[0])


Stamped = tuple[Any, int]
"""An entry of a state with a time to live: the value in its kept form, and the stamp in ms."""


class Expiry:
    """Decides which entries of a state have expired, and which of them readers see."""

    def __init__(self, config: StateTtlConfig, backend: KeyedBackend) -> None:
        self._ttl_ms = config.ttl_ms
        self._backend = backend
        self._on_read = config.updates_on_read
        self._returns_expired = config.returns_expired
        # A lambda, because each epoch sets another backend.watermark.
        self._now: Callable[[], int] = (
            (lambda: backend.watermark()) if config.event_time else (lambda: backend.processing_time_ms)
        )

    def stamp(self) -> int:
        """The stamp of a new entry: the current time, or the element's timestamp before the first watermark."""
        now = self._now()
        return now if now > MIN_MS else self._backend.element_time(now)

    def expired(self, stamp_ms: int) -> bool:
        return stamp_ms + self._ttl_ms <= self._now()

    def dead(self, entry: Stamped) -> bool:
        """Whether the entry has expired and is no longer visible."""
        return not self._returns_expired and entry[1] + self._ttl_ms <= self._now()

    def read(self, entry: Stamped) -> tuple[Stamped | None, Stamped | None]:
        """The entry that a reader sees, and the entry that remains; None for no entry.

        The access that finds an entry expired removes it, but may still return it.
        """
        if entry[1] + self._ttl_ms <= self._now():
            return (entry if self._returns_expired else None), None
        return entry, ((entry[0], self.stamp()) if self._on_read else entry)

    def read_all(self, entries: list[Stamped]) -> tuple[list[Stamped], list[Stamped]]:
        """The same for the elements of a list; the remaining list is the same object if nothing changes."""
        valid = [entry for entry in entries if not self.expired(entry[1])]
        if len(valid) == len(entries):
            valid = entries
        elif self._returns_expired and valid and not self._on_read:
            return entries, entries  # as in Flink: a read removes expired elements only once all have expired
        stamp = self.stamp() if self._on_read and valid else None
        remaining = valid if stamp is None else [(kept, stamp) for kept, _ in valid]
        return (entries if self._returns_expired else valid), remaining


class TtlGuard(Guard):
    """Adds stamps to kept values. In the store a stamp precedes its entry, and the stamps of a list precede the list."""

    def __init__(self, guard: Guard, expiry: Expiry) -> None:
        super().__init__(guard.type, guard.where, guard.at)
        self.expiry = self._expiry = expiry
        self._guard = guard
        keep, give, encoded, decoded = guard.keep, guard.give, guard.encoded, guard.decoded
        self.keep = lambda value: (keep(value), expiry.stamp())
        self.give = lambda entry: give(entry[0])
        self.encoded = lambda entry: pack_stamp(entry[1]) + encoded(entry[0])
        self.decoded = lambda raw: (decoded(raw[STAMP_BYTES:]), unpack_stamp(raw))

    def keep_all(self, values: Iterable[Any]) -> list[Any]:
        stamp = self._expiry.stamp()
        return [(kept, stamp) for kept in self._guard.keep_all(values)]

    def give_all(self, kept: list[Any]) -> list[Any]:
        return self._guard.give_all([value for value, _ in kept])

    def encoded_all(self, kept: list[Any]) -> bytes:
        stamps = _STAMPS.encode([stamp for _, stamp in kept])
        return pack_stamp(len(stamps)) + stamps + self._guard.encoded_all([value for value, _ in kept])

    def decoded_all(self, data: bytes) -> list[Any]:
        stamps, end = _stamps(data)
        return list(zip(self._guard.decoded_all(data[end:]), stamps, strict=True))

    def entry_expired(self, data: bytes) -> bool:
        """Whether a stored entry has expired."""
        return self._expiry.expired(unpack_stamp(data))

    def list_expired(self, data: bytes) -> bool:
        """Whether all elements of a stored list have expired."""
        return self._expiry.expired(max(_stamps(data)[0]))


def _stamps(data: bytes) -> tuple[list[int], int]:
    """The stamps of a stored list, and the offset of its elements."""
    end = STAMP_BYTES + unpack_stamp(data)
    return _STAMPS.decode(data[STAMP_BYTES:end]), end


class Stamps:
    """The stamps of stored entries, for operators that read and write the entries of many keys at once."""

    def __init__(self, config: StateTtlConfig, backend: KeyedBackend) -> None:
        self._expiry = Expiry(config, backend)

    def live(self, stored: Sequence[bytes | None]) -> list[bytes | None]:
        """The entries without their stamps; None in place of expired entries."""
        return [None if raw is None or self.expired(raw) else raw[STAMP_BYTES:] for raw in stored]

    def bare(self, stored: Sequence[bytes | None]) -> list[bytes | None]:
        """The entries without their stamps, also those that have expired."""
        return [None if raw is None else raw[STAMP_BYTES:] for raw in stored]

    def added(self, entries: Sequence[bytes]) -> list[bytes]:
        """The entries with the stamp of now."""
        stamp = pack_stamp(self._expiry.stamp())
        return [stamp + entry for entry in entries]

    def expired(self, stored: bytes) -> bool:
        return self._expiry.expired(unpack_stamp(stored))


@dataclass
class Sweeper:
    """Removes expired entries without accesses: a part in each epoch, cycling through the key groups.

    Removals are ordinary changes, so a repeated epoch may start at any entry.
    """

    LEAST_ENTRIES = 1000  # to check in an epoch; one per key if the epoch has more keys

    backend: KeyedBackend
    sid: int
    expired: Callable[[bytes], bool]
    _group: int | None = None
    _after: bytes | None = None

    def __call__(self, log: ChangeLog) -> None:
        first, stop = self.backend.groups
        left = max(self.LEAST_ENTRIES, len(self.backend.keys))
        changed = set(log.keys)
        if self._group is None or not first <= self._group < stop:
            self._group, self._after = first, None
        group = self._group
        ranges = in_groups([*range(group, stop), *range(first, group)], sid_range(0, self.sid))
        if self._after is not None:
            ranges[0] = self._after, ranges[0][1]
        for start, end in self.backend.store.occupied(ranges):
            entries = list(islice(self.backend.store.scan(start, end), left))
            log.delete([key for key, value in entries if key not in changed and self.expired(value)])
            left -= len(entries)
            if left <= 0:
                self._group, self._after = kg_of(start), entries[-1][0] + b"\0"
                return
        self._group, self._after = group, None

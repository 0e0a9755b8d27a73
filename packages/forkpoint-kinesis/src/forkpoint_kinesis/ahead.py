"""The driver's read-ahead of a shard: the sequence numbers of records that are not planned yet."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from forkpoint_kinesis.position import ShardPosition, later, number


@dataclass(frozen=True)
class RecordRange:
    """Successive records of a shard: the first and last sequence number, and the count."""

    first: str
    last: str
    count: int


@dataclass
class _Chunk:
    """Records in shard order. ``seen_ms``: all records that had arrived by then are in this chunk or an earlier one."""

    numbers: Sequence[str]
    seen_ms: int


class ShardAhead:
    """``position``: the end of the read-ahead. ``closed``: whether it has reached the shard's end. One thread of the watcher at a
    time reads and calls ``add``; the enumerator's thread calls ``take``."""

    def __init__(self, id: str, position: ShardPosition, *, restored: bool) -> None:
        self.id = id
        self.position = position
        self.restored = restored
        self.closed = position.ended
        self.caught_up = False
        self.iterator: str | None = None
        self.tries = 0
        self.due_s = 0.0
        self._taken = position
        self._found: deque[_Chunk] = deque()
        self._count = 0
        self._lock = Lock()

    @property
    def count(self) -> int:
        """The number of known records that are not taken yet."""
        return self._count

    @property
    def taken(self) -> ShardPosition:
        """The position after the taken records."""
        return self._taken

    def unread(self, records: Sequence[Any]) -> Sequence[Any]:
        """Drops leading records that arrived before the start time, because requests are only exact to the second."""
        since_ms = self.position.since_ms
        if since_ms is None:
            return records
        first = next((n for n, r in enumerate(records) if arrived_ms(r) >= since_ms), len(records))
        return records[first:]

    def add(self, numbers: Sequence[str], seen_ms: int, iterator: str | None) -> None:
        """Add a request's records. ``iterator``: for the next request; None at the shard's end."""
        with self._lock:
            self.iterator = iterator
            if numbers:
                self._found.append(_Chunk(numbers, seen_ms))
                self._count += len(numbers)
                self.position = self.position.at(numbers[-1], seen_ms)
            else:
                self.position = replace(self.position, seen_ms=later(self.position.seen_ms, seen_ms))
            self.closed = iterator is None

    def until(self, last: str | None) -> int:
        """The number of known records up to and including this one."""
        count = 0
        with self._lock:
            for found in self._found:
                count += (within := bisect_right(found.numbers, number(last), key=number))
                if within < len(found.numbers):
                    break
        return count

    def take(self, count: int) -> RecordRange:
        """Take the next ``count`` known records."""
        with self._lock:
            first, left = self._found[0].numbers[0], count
            while left:
                found = self._found.popleft()
                now, rest = found.numbers[:left], found.numbers[left:]
                self._taken = self._taken.at(now[-1], None if rest else found.seen_ms)
                left -= len(now)
                if rest:
                    self._found.appendleft(_Chunk(rest, found.seen_ms))
            self._count -= count
        assert self._taken.after is not None
        return RecordRange(first, self._taken.after, count)

    def advance(self) -> None:
        """If all known records are taken, advance the position to the time of the last request, or to the shard's end."""
        with self._lock:
            if not self._count:
                self._taken = replace(self._taken, seen_ms=self.position.seen_ms, ended=self.closed)


def arrived_ms(record: Any) -> int:
    """A record's approximate arrival time, in ms since 1970."""
    return int(record["ApproximateArrivalTimestamp"].timestamp() * 1000)

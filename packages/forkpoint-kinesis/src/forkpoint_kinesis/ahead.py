"""What the driver knows of a shard ahead of what it has planned: the sequence numbers of its next records."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from forkpoint_kinesis.position import ShardPosition, later, number


@dataclass(frozen=True)
class Taken:
    """Successive records of a shard: the first, the last, and how many."""

    first: str
    last: str
    count: int


@dataclass
class _Found:
    """Records in the order of the shard. ``seen_ms``: those that had arrived by then are these, or before these."""

    numbers: Sequence[str]
    seen_ms: int


class ShardAhead:
    """``position``: how far it has been read ahead. ``closed``: to its end. One thread of the watcher at a time reads and calls
    ``add``; the enumerator's takes."""

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
        self._found: deque[_Found] = deque()
        self._count = 0
        self._lock = Lock()

    @property
    def count(self) -> int:
        """How many records are known and not taken."""
        return self._count

    @property
    def taken(self) -> ShardPosition:
        """The position after what was taken."""
        return self._taken

    def unread(self, records: Sequence[Any]) -> Sequence[Any]:
        """Without the records at the start that arrived before a time: requests are exact to the second."""
        since_ms = self.position.since_ms
        if since_ms is None:
            return records
        first = next((n for n, r in enumerate(records) if arrived_ms(r) >= since_ms), len(records))
        return records[first:]

    def add(self, numbers: Sequence[str], seen_ms: int, iterator: str | None) -> None:
        """Add what a request got. ``iterator``: of the next one; None at the shard's end."""
        with self._lock:
            self.iterator = iterator
            if numbers:
                self._found.append(_Found(numbers, seen_ms))
                self._count += len(numbers)
                self.position = self.position.at(numbers[-1], seen_ms)
            else:
                self.position = replace(self.position, seen_ms=later(self.position.seen_ms, seen_ms))
            self.closed = iterator is None

    def until(self, last: str | None) -> int:
        """How many of the known records are up to this one."""
        count = 0
        with self._lock:
            for found in self._found:
                count += (within := bisect_right(found.numbers, number(last), key=number))
                if within < len(found.numbers):
                    break
        return count

    def take(self, count: int) -> Taken:
        """Take the next records, of which there are as many."""
        with self._lock:
            first, left = self._found[0].numbers[0], count
            while left:
                found = self._found.popleft()
                now, rest = found.numbers[:left], found.numbers[left:]
                self._taken = self._taken.at(now[-1], None if rest else found.seen_ms)
                left -= len(now)
                if rest:
                    self._found.appendleft(_Found(rest, found.seen_ms))
            self._count -= count
        assert self._taken.after is not None
        return Taken(first, self._taken.after, count)

    def advance(self) -> None:
        """If all that is known was taken: note when that was all, and whether the shard ends there."""
        with self._lock:
            if not self._count:
                self._taken = replace(self._taken, seen_ms=self.position.seen_ms, ended=self.closed)


def arrived_ms(record: Any) -> int:
    """When a record arrived, in ms since 1970, as far as Kinesis knows."""
    return int(record["ApproximateArrivalTimestamp"].timestamp() * 1000)

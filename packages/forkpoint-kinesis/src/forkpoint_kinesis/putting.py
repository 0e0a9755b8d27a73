"""Which records go into a request: order by key is kept although a request may fail in part."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Of a request."""

    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to be put. ``hash_key``: decides on the shard, instead of the key."""

    key: str
    data: bytes
    hash_key: str | None = None

    @property
    def size(self) -> int:
        return len(self.data) + len(self.key.encode())


class Queue:
    """Records to be put. ``orders``: the key of each, to put those of one key in order, else None. A request then has one record
    of each key: it may fail in part, and Kinesis does not promise to keep the order within a request."""

    def __init__(self, records: Sequence[Outgoing], orders: Sequence[str] | None, limits: Limits) -> None:
        self._limits = limits
        self._records = records
        self._orders = orders
        self._waiting: deque[int] = deque(range(len(records)))
        self._held: dict[str, deque[int]] = {}
        self._busy: set[str] = set()

    def next(self) -> list[int]:
        """The indices of the next request's records; empty if all were put."""
        found: list[int] = []
        size = 0
        while self._waiting and len(found) < self._limits.records:
            index = self._waiting[0]
            if self._orders is not None and self._orders[index] in self._busy:
                self._held.setdefault(self._orders[index], deque()).append(self._waiting.popleft())
                continue
            size += self._records[index].size
            if found and size > self._limits.bytes:
                break
            found.append(self._waiting.popleft())
            if self._orders is not None:
                self._busy.add(self._orders[index])
        return found

    def answered(self, sent: Sequence[int], failed: Collection[int]) -> None:
        """Note which records of a request were refused; they come first in the next one."""
        if self._orders is not None:
            for index in sent:
                order = self._orders[index]
                held = self._held.get(order)
                if index not in failed and held:
                    self._waiting.appendleft(held.popleft())
                    if not held:
                        del self._held[order]
                # The next one of the key is at the front, before those that come after it.
                self._busy.discard(order)
        self._waiting.extendleft(sorted(failed, reverse=True))

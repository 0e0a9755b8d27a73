"""Selects the records of a request. Keeps the order by key although a request may fail in part."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The limits of a request."""

    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to put. ``hash_key``: determines the shard instead of the key."""

    key: str
    data: bytes
    hash_key: str | None = None

    @property
    def size(self) -> int:
        return len(self.data) + len(self.key.encode())


class Queue:
    """Records to put. ``orders``: their keys, to put a key's records in order; None for no order. With keys, a request has one
    record per key, because it may fail in part and Kinesis does not guarantee the order within a request."""

    def __init__(self, records: Sequence[Outgoing], orders: Sequence[str] | None, limits: Limits) -> None:
        self._limits = limits
        self._records = records
        self._orders = orders
        self._waiting: deque[int] = deque(range(len(records)))
        self._held: dict[str, deque[int]] = {}
        self._busy: set[str] = set()

    def next(self) -> list[int]:
        """The indices of the next request's records; empty if all have been put."""
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
        """Note a request's refused records. They come first in the next request."""
        if self._orders is not None:
            for index in sent:
                order = self._orders[index]
                held = self._held.get(order)
                if index not in failed and held:
                    self._waiting.appendleft(held.popleft())
                    if not held:
                        del self._held[order]
                # The key's next record is now at the front, before its later records.
                self._busy.discard(order)
        self._waiting.extendleft(sorted(failed, reverse=True))

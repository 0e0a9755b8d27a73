"""The transactions that a snapshot of the database contains. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

_CYCLE = 1 << 32


@dataclass(frozen=True)
class Snapshot:
    """The result of ``pg_current_snapshot()``: all transactions below ``xmax`` have ended except those in progress."""

    xmin: int
    xmax: int
    in_progress: frozenset[int]

    @staticmethod
    @lru_cache(maxsize=1000)
    def parse(text: str) -> Snapshot:
        """Parse ``xmin:xmax:xid,xid,…``."""
        xmin, xmax, running = text.split(":")
        return Snapshot(int(xmin), int(xmax), frozenset(int(xid) for xid in running.split(",") if xid))

    def sees(self, xid: int) -> bool:
        """Whether it contains a committed transaction. ``xid``: the transaction's 32-bit id, as in messages."""
        distance = (xid - self.xmax) % _CYCLE
        whole = self.xmax + (distance - _CYCLE if distance >= _CYCLE // 2 else distance)
        return whole < self.xmax and whole not in self.in_progress

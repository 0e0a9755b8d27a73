"""Which transactions a snapshot of the database contains. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

_CYCLE = 1 << 32


@dataclass(frozen=True)
class Snapshot:
    """What ``pg_current_snapshot()`` returns: all transactions below ``xmax`` but those in progress have ended."""

    xmin: int
    xmax: int
    in_progress: frozenset[int]

    @staticmethod
    @lru_cache(maxsize=1000)
    def parse(text: str) -> Snapshot:
        """From ``xmin:xmax:xid,xid,…``."""
        xmin, xmax, running = text.split(":")
        return Snapshot(int(xmin), int(xmax), frozenset(int(xid) for xid in running.split(",") if xid))

    def sees(self, xid: int) -> bool:
        """Whether it contains what a transaction has committed. ``xid``: its 32-bit id, as in messages."""
        distance = (xid - self.xmax) % _CYCLE
        whole = self.xmax + (distance - _CYCLE if distance >= _CYCLE // 2 else distance)
        return whole < self.xmax and whole not in self.in_progress

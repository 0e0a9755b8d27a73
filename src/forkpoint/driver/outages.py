"""Storage that does not answer, or is full: since when a job has been waiting for it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from forkpoint.errors import StorageUnavailable


@dataclass(frozen=True)
class Outage:
    """Storage has failed ``since_ms``, and nothing has been committed after ``epoch`` in the meantime."""

    since_ms: int
    epoch: int

    def explain(self, error: BaseException) -> str:
        since = datetime.fromtimestamp(self.since_ms / 1000, UTC)
        return f"paused, as storage has not worked since {since:%Y-%m-%d %H:%M:%S} UTC: {error}"


def outage_after(before: Outage | None, error: BaseException, epoch: int, now_ms: int) -> Outage | None:
    """The outage that an error belongs to, if it is one of storage. ``epoch``: the last committed one."""
    if not isinstance(error, StorageUnavailable):
        return None
    return before if before is not None and before.epoch == epoch else Outage(now_ms, epoch)

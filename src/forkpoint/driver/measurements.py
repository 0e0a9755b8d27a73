"""What was measured in an epoch, put together from the reports of its tasks. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from forkpoint.checkpoint.manifest import Manifest
from forkpoint.connectors import Backlog
from forkpoint.driver.manifests import split_starts
from forkpoint.graph.job import JobGraph
from forkpoint.runtime.event_time.watermarks import MAX_MS, MIN_MS
from forkpoint.runtime.exchange.control import CommitRow, UserMetric
from forkpoint.state import StoreSize


class UserReport(NamedTuple):
    """What one subtask of an operator reports of a user metric."""

    uid: str
    subtask: int
    metric: UserMetric


class SlowestSplit(NamedTuple):
    """The split that holds back the watermark of a source, or of an operator that assigns timestamps."""

    split: str
    watermark_ms: int


@dataclass(frozen=True)
class Measurements:
    """Of one epoch alone, by operator uid: time at work, bytes in and out; changes of user metrics. At its end: the size of the
    state's stores, what sources have not planned yet, and which splits hold the watermark back."""

    busy_us: Mapping[str, int] = field(default_factory=dict)
    bytes_in: Mapping[str, int] = field(default_factory=dict)
    bytes_out: Mapping[str, int] = field(default_factory=dict)
    user: Sequence[UserReport] = ()
    state_size: StoreSize | None = None
    backlog: Mapping[str, Backlog] = field(default_factory=dict)
    slowest: Mapping[str, SlowestSplit] = field(default_factory=dict)


def measurements(
    rows: Sequence[CommitRow], backlog: Mapping[str, Backlog], slowest: Mapping[str, SlowestSplit]
) -> Measurements:
    busy: Counter[str] = Counter()
    read: Counter[str] = Counter()
    written: Counter[str] = Counter()
    user: list[UserReport] = []
    for row in rows:
        for uid, measured in row.measured.items():
            busy[uid] += measured.busy_us
            read[uid] += measured.bytes_in
            written[uid] += measured.bytes_out
            user += (UserReport(uid, row.subtask, metric) for metric in measured.user)
    return Measurements(busy, read, written, user, _added([r.state_size for r in rows]), backlog, slowest)


def _added(sizes: Sequence[StoreSize | None]) -> StoreSize | None:
    known = [size for size in sizes if size is not None]
    if not known:
        return None
    numbers = [size.bytes for size in known if size.bytes is not None]
    return StoreSize(sum(size.entries for size in known), sum(numbers) if len(numbers) == len(known) else None)


def slowest_splits(
    graph: JobGraph, manifest: Manifest, now_ms: int, finished: Mapping[str, Collection[str]]
) -> dict[str, SlowestSplit]:
    """By the uid of what generates watermarks, the split with the lowest one among those that are neither idle nor ``finished``
    (by watermark origin). None where no split has one."""
    found: dict[str, SlowestSplit] = {}
    for origin, splits in split_starts(graph, manifest, now_ms).items():
        ended = finished.get(origin, ())
        counting = [
            SlowestSplit(name, split.watermark_ms)
            for name, split in splits.items()
            if not split.idle and not split.marked_idle and name not in ended
        ]
        slowest = min(counting, key=lambda each: (each.watermark_ms, each.split), default=None)
        if slowest is not None and slowest.watermark_ms < MAX_MS:
            found[graph.by_id[int(origin)].uid] = slowest
    return found


def is_time(watermark_ms: int) -> bool:
    """Whether a watermark is a point in time: neither from before the first element nor the final one."""
    return MIN_MS < watermark_ms < MAX_MS

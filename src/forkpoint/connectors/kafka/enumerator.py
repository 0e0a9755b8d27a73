"""Plans the offset ranges that an epoch reads from Kafka, one per partition."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence

from forkpoint.connectors.collection import fair_shares
from forkpoint.connectors.kafka.feed import close_feeds
from forkpoint.connectors.kafka.offsets import KafkaTopicPartition
from forkpoint.connectors.kafka.watcher import GRACE_S, PartitionWatcher, Seen, Watch
from forkpoint.contract.source import JSON, Backlog, SplitEnumerator, SplitRange
from forkpoint.errors import ConfigError, InputLost, RestoreRefused


class KafkaEnumerator(SplitEnumerator):
    """Position: ``{"version": 1, "next": {split: offset}, "stop": {split: offset}, "topics": {topic: id}}``. ``next`` is None
    until the partitions are known; ``stop`` is empty unless the source stops; ``topics`` lacks ids that brokers do not have, or
    that an earlier release did not save. A partition is a split, which is never divided, so that its order survives."""

    def __init__(self, watch: Watch, position: JSON | None) -> None:
        _check_version(position)
        self._watch = watch
        self._next: dict[str, int] | None = None if position is None else position["next"]
        self._stops: dict[str, int] = {} if position is None or watch.stop is None else dict(position["stop"])
        self._topics: dict[str, str] = {} if position is None else dict(position.get("topics", {}))
        self._watcher: PartitionWatcher | None = None
        self._paused: frozenset[str] = frozenset()
        self._until: Mapping[str, int] | None = None
        self._short_since: dict[str, float] = {}
        self._ends: Mapping[str, int] | None = None  # at the last plan
        self._wake: Callable[[], None] = lambda: None

    def plan(self, max_rows: int, parallelism_hint: int = 2) -> list[SplitRange]:
        seen = self._watching().seen()
        if seen is None:
            return []
        new = self._begin(seen)
        self._topics |= seen.topics
        assert self._next is not None
        self._ends = ends = {p.split: end for p, end in seen.ends.items()}
        self._check_ends(ends)
        backlog = {split: self._limit(split, ends) - self._next[split] for split in sorted(self._next)}
        backlog = {split: left for split, left in backlog.items() if left > 0 or split in new}
        ranges = []
        for split, share in zip(backlog, shares(list(backlog.values()), max_rows), strict=True):
            start = self._next[split]
            if share or split in new:
                ranges.append(SplitRange(split, 0, start, start + share, share))
            self._next[split] = start + share
        return ranges

    def backlog(self) -> Backlog | None:
        """Includes paused splits, and counts the offsets of transaction markers as elements."""
        if self._ends is None or self._next is None:
            return None
        ends, bounds = self._ends, (self._stops, self._until or {})
        limits = {s: min([ends.get(s, 0), *(b[s] for b in bounds if s in b)]) for s in self._next}
        return Backlog(sum(max(0, limit - self._next[split]) for split, limit in limits.items()))

    def _watching(self) -> PartitionWatcher:
        if self._watcher is None:
            known = None if self._next is None else {p for p in map(KafkaTopicPartition.of_split, self._next) if self._reads(p)}
            stops = {KafkaTopicPartition.of_split(split): stop for split, stop in self._stops.items()}
            self._watcher = PartitionWatcher(self._watch, known, stops, self._topics, self._wake)
        return self._watcher

    def _reads(self, partition: KafkaTopicPartition) -> bool:
        return self._watch.subscription.includes(partition)

    def _begin(self, seen: Seen) -> set[str]:
        """Add the partitions found since the last plan, and return their splits."""
        if self._next is None:
            self._next = {}
        new = {p.split: start for p, start in seen.starts.items() if p.split not in self._next}
        if self._until is not None:
            new = {split: start for split, start in new.items() if split in self._until}
        self._next |= new
        self._stops = {p.split: stop for p, stop in seen.stops.items()}
        return set(new)

    def _limit(self, split: str, ends: Mapping[str, int]) -> int:
        """The offset up to which a split may be planned now."""
        if split in self._paused or (self._until is not None and split not in self._until):
            return self._planned(split)
        limits = [ends.get(split, 0)]  # 0: it is no longer read, or has no leader
        limits += [bounds[split] for bounds in (self._stops, self._until or {}) if split in bounds]
        return max(self._planned(split), min(limits))

    def _planned(self, split: str) -> int:
        return (self._next or {})[split]

    def _check_ends(self, ends: Mapping[str, int]) -> None:
        """Raise InputLost if a partition has lost records that were read, but not while its leader changes."""
        now = time.monotonic()
        short = {split for split, end in ends.items() if split in (self._next or {}) and end < self._planned(split)}
        self._short_since = {split: self._short_since.get(split, now) for split in short}
        for split, since in self._short_since.items():
            if now >= since + GRACE_S:
                topic, partition = KafkaTopicPartition.of_split(split)
                raise InputLost(
                    f"KafkaSource: partition {partition} of topic {topic!r} ends at offset {ends[split]}, but the job has "
                    f"read it up to {self._planned(split)}: the topic was re-created, or lost data. To read it from its "
                    "start, give the source a new uid"
                )

    @property
    def position(self) -> JSON:
        return {
            "version": 1,
            "next": None if self._next is None else dict(self._next),
            "stop": dict(self._stops),
            "topics": dict(self._topics),
        }

    def confirm(self) -> None:
        if self._watcher is not None:
            self._watcher.confirm()

    @property
    def finished(self) -> bool:
        found = self._watch.stop is not None and self._next is not None and self._until is None
        return found and len(self.finished_splits) == len(self._next or {})

    @property
    def finished_splits(self) -> Collection[str]:
        ended = {split for split, stop in self._stops.items() if self._planned(split) >= stop} if self._next else set()
        return ended | {split for split in self._next or () if not self._reads(KafkaTopicPartition.of_split(split))}

    @property
    def problem(self) -> str | None:
        return None if self._watcher is None else self._watcher.problem

    def on_input(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def pause_splits(self, splits: Collection[str]) -> bool:
        self._paused = frozenset(splits)
        return True

    def stop_at(self, position: JSON) -> None:
        _check_version(position)
        until: Mapping[str, int] = position["next"] or {}
        for split, offset in (self._next or {}).items():
            if offset > until.get(split, offset):
                raise ConfigError(f"KafkaSource: {split} is at offset {offset}, beyond the stop at {until[split]}")
        self._until = until

    @property
    def at_stop(self) -> bool:
        return self._until is not None and all((self._next or {}).get(s, 0) >= stop for s, stop in self._until.items())

    def committed(self, position: JSON) -> None:
        if self._watcher is not None and position["next"]:
            self._watcher.commit({KafkaTopicPartition.of_split(s): offset for s, offset in position["next"].items()})

    def close(self) -> None:
        if self._watcher is not None:
            self._watcher.close()
        close_feeds(self._watch.client)


def shares(backlog: Sequence[int], max_rows: int) -> list[int]:
    """The part of each partition's backlog that an epoch reads: all of it, or equal shares."""
    if sum(backlog) <= max_rows:
        return list(backlog)
    return fair_shares(list(backlog), [0] * len(backlog), max_rows)


def _check_version(position: JSON | None) -> None:
    if position is not None and position.get("version") != 1:
        raise RestoreRefused(
            f"KafkaSource: the saved position has version {position.get('version')!r}, but this release reads version 1; use the "
            "forkpoint release that wrote it, or give the source a new uid to start afresh"
        )

"""Plans an epoch's input from a stream: one range of sequence numbers per shard."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from forkpoint.connectors.collection import fair_shares
from forkpoint.contract.source import JSON, SplitEnumerator, SplitRange
from forkpoint.errors import ConfigError, RestoreRefused
from forkpoint_kinesis.ahead import ShardAhead
from forkpoint_kinesis.position import ShardPosition
from forkpoint_kinesis.requests import Shard
from forkpoint_kinesis.watcher import ShardWatcher, Watch

REFRESH_S = 3600.0  # the maximum age of a position while no records arrive


class KinesisEnumerator(SplitEnumerator):
    """Position: ``{"version": 1, "created_s": …, "shards": {shard: ShardPosition}}``; ``shards`` is None until they are listed. A
    shard is a split and is never divided. A child starts in the epoch after its parents' last epoch."""

    def __init__(self, watch: Watch, position: JSON | None) -> None:
        _check_version(position)
        shards = None if position is None else position["shards"]
        self._positions: dict[str, ShardPosition] | None = (
            None if shards is None else {id: ShardPosition.from_json(p) for id, p in shards.items()}
        )
        self._created_s: int | None = None if position is None else position["created_s"]
        self._watch = watch
        self._watcher: ShardWatcher | None = None
        self._begun: set[str] = set()
        self._paused: frozenset[str] = frozenset()
        self._until: Mapping[str, ShardPosition] | None = None
        self._planned_s = time.monotonic()

    def plan(self, max_rows: int, parallelism_hint: int = 2) -> list[SplitRange]:
        if self._watcher is None:
            self._watcher = ShardWatcher(self._watch, self._positions, self._created_s)
        listed = self._watcher.listed()
        if listed is None:
            return []
        self._created_s = self._watcher.created_s
        self._update(self._watcher, listed)
        assert self._positions is not None
        now = time.monotonic()
        refresh = now >= self._planned_s + REFRESH_S
        shards = {id: self._watcher.ahead(id) for id in sorted(self._positions) if self._may_be_read(id, listed)}
        counts = {id: self._count(shard) for id, shard in shards.items()}
        ranges = []
        for (id, shard), share in zip(shards.items(), shares(list(counts.values()), max_rows), strict=True):
            found = self._range(shard, share, listed)
            if found.rows or id not in self._begun or refresh:
                ranges.append(found)
                self._begun.add(id)
        # The watcher lists a shard's children before it reports the shard's end, but perhaps after `listed` was read above.
        listed = self._watcher.listed() or listed
        self._update(self._watcher, listed)
        ranges += self._empty_ranges(listed)
        if ranges:
            self._planned_s = now
        return ranges

    def _update(self, watcher: ShardWatcher, listed: Mapping[str, Shard]) -> None:
        """Add newly listed shards. Keep ended shards, so that their watermarks do not count again."""
        known = self._positions or {}
        new = {id: watcher.ahead(id).taken for id in listed.keys() - known.keys()}
        gone = {id: ShardPosition(ended=True) for id, position in known.items() if position.ended and id not in listed}
        self._positions = known | new | gone

    def _may_be_read(self, id: str, listed: Mapping[str, Shard]) -> bool:
        positions = self._positions or {}
        if positions[id].ended or id in self._paused:
            return False
        if self._until is not None and id not in self._until:
            return False
        parents = listed[id].parents if id in listed else ()
        return all(positions[p].ended for p in parents if p in positions)

    def _count(self, shard: ShardAhead) -> int:
        """The number of records that may be planned now."""
        until = (self._until or {}).get(shard.id)
        return shard.count if until is None or until.ended else shard.until(until.after)

    def _range(self, shard: ShardAhead, share: int, listed: Mapping[str, Shard]) -> SplitRange:
        """The next range of a shard. Also updates the shard's position."""
        assert self._positions is not None
        hashes = list(listed[shard.id].hashes) if shard.id in listed else None
        if share == 0:
            found = SplitRange(shard.id, 0, None, None, 0, hashes)
        else:
            taken = shard.take(share)
            found = SplitRange(shard.id, 0, taken.first, taken.last, taken.count, hashes)
        until = (self._until or {}).get(shard.id)
        if until is None or until.ended:
            shard.advance()
        self._positions[shard.id] = shard.taken
        return found

    def _empty_ranges(self, listed: Mapping[str, Shard]) -> list[SplitRange]:
        """Empty ranges for shards that may start after this plan: their watermarks count as soon as their parents end."""
        ready = [id for id in sorted(self._positions or ()) if id not in self._begun and self._may_be_read(id, listed)]
        self._begun |= set(ready)
        return [SplitRange(id, 0, None, None, 0) for id in ready]

    @property
    def position(self) -> JSON:
        shards = None if self._positions is None else {id: p.to_json() for id, p in sorted(self._positions.items())}
        return {"version": 1, "created_s": self._created_s, "shards": shards}

    @property
    def finished(self) -> bool:
        return False

    @property
    def finished_splits(self) -> Collection[str]:
        return {id for id, position in (self._positions or {}).items() if position.ended}

    def pause_splits(self, splits: Collection[str]) -> bool:
        self._paused = frozenset(splits)
        return True

    def stop_at(self, position: JSON) -> None:
        _check_version(position)
        until = {id: ShardPosition.from_json(p) for id, p in (position["shards"] or {}).items()}
        for id, own in (self._positions or {}).items():
            if id in until and own.is_beyond(until[id]):
                raise ConfigError(
                    f"{self._watch.what}, {id}: it has been read up to {own.after}, which is beyond the stop at {until[id].after}"
                )
        self._until = until

    @property
    def at_stop(self) -> bool:
        if self._until is None:
            return False
        own = self._positions or {}
        return all(id in own and not stop.is_beyond(own[id]) for id, stop in self._until.items() if not _is_unread(stop))

    def close(self) -> None:
        if self._watcher is not None:
            self._watcher.close()


def shares(counts: list[int], max_rows: int) -> list[int]:
    """The number of records that an epoch reads per shard: all of them, or an equal share."""
    if sum(counts) <= max_rows:
        return counts
    return fair_shares(counts, [0] * len(counts), max_rows)


def _is_unread(position: ShardPosition) -> bool:
    return position.after is None and not position.ended


def _check_version(position: JSON | None) -> None:
    if position is not None and position.get("version") != 1:
        raise RestoreRefused(
            f"KinesisSource: the saved position has version {position.get('version')!r}, but this release reads version 1; use "
            "the forkpoint release that wrote it, or give the source a new uid to start afresh"
        )

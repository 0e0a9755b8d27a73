"""Watermark alignment: keeps the sources of a group within a maximum drift.

Before each epoch, splits whose watermark is ahead of the group's slowest by more than the drift are paused. So a source gets
ahead by at most the drift and what it reads in one epoch, which is limited to about one drift's worth of elements, as
measured in earlier epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from forkpoint.checkpoint.manifest import Manifest
from forkpoint.functions import WatermarkAlignment
from forkpoint.graph.job import JobGraph, Operator
from forkpoint.graph.specs import SourceSpec
from forkpoint.runtime.event_time.watermarks import MAX_MS, MIN_MS
from forkpoint.runtime.exchange.control import SplitStart

MIN_ROWS = 1000
"""The initial and lowest limit of elements that an epoch reads from an aligned source."""

Starts = Mapping[str, Mapping[str, SplitStart]]
Limits = Mapping[str, int | None] | None
Pause = Callable[[str, Collection[str]], bool]


class Alignment:
    """The aligned sources of one run. ``paused``: splits that this epoch does not read, by source uid. ``recently_paused``:
    those and the previous epoch's. They are not idle, as they were not read."""

    def __init__(self, graph: JobGraph) -> None:
        self._members: dict[str, tuple[Operator, WatermarkAlignment]] = {}
        for operator in graph.native_sources:
            assert isinstance(operator.spec, SourceSpec)
            alignment = operator.spec.strategy.alignment
            if alignment is not None:
                self._members[operator.uid] = operator, alignment
        self._rows = dict.fromkeys(self._members, MIN_ROWS)
        self.paused: dict[str, frozenset[str]] = {}
        self.recently_paused: dict[str, frozenset[str]] = {}

    @property
    def aligns(self) -> bool:
        """Whether any source is aligned."""
        return bool(self._members)

    def restrict(
        self, limits: Limits, usual: Mapping[str, int], starts: Starts, finished: Mapping[str, Collection[str]],
        inactive: Collection[str], pause: Pause,
    ) -> Limits:  # fmt: skip
        """How much the next epoch may read, within ``limits`` (None: all sources; None for one: its ``usual`` limit).

        Others do not wait for ``finished`` splits, for ``inactive`` sources (ended, or silent for longer than their idleness
        timeout) or for sources that ``limits`` leaves out. ``pause`` pauses splits of a source; it returns whether the source
        supports that.
        """
        given: dict[str, int | None] = dict.fromkeys(usual) if limits is None else dict(limits)
        splits = {
            uid: {s: start for s, start in starts.get(str(operator.id), {}).items() if s not in finished.get(uid, ())}
            for uid, (operator, _) in self._members.items()
            if uid in given
        }
        marks = {
            uid: [] if uid in inactive else _marks(found, bool(finished.get(uid))) for uid, found in splits.items()
        }
        before, self.paused = self.paused, {}
        for uid, found in splits.items():
            alignment = self._members[uid][1]
            group = [m for other, ms in marks.items() if self._members[other][1].group == alignment.group for m in ms]
            furthest = min(group, default=MAX_MS) + alignment.max_drift_ms
            ahead = frozenset(split for split, start in found.items() if start.watermark_ms > furthest)
            if pause(uid, ahead):
                self.paused[uid] = ahead
            elif found and len(ahead) == len(found):
                self.paused[uid] = ahead
                del given[uid]
                continue
            given[uid] = min(given[uid] or usual[uid], self._rows[uid])
        self.recently_paused = {
            uid: self.paused.get(uid, frozenset()) | before.get(uid, frozenset()) for uid in self._members
        }
        return given

    def committed(self, before: Manifest, after: Manifest) -> None:
        """Measure by this epoch how many elements are one drift's worth."""
        for uid, (_, alignment) in self._members.items():
            was, now = before.sources.get(uid), after.sources[uid]
            old = {} if was is None else was.splits
            rows = sum(s.count - (old[split].count if split in old else 0) for split, s in now.splits.items())
            advance = max(
                (s.watermark_ms - old[split].watermark_ms for split, s in now.splits.items()
                 if split in old and old[split].watermark_ms > MIN_MS),
                default=0,
            )  # fmt: skip
            if rows:
                worth = rows * alignment.max_drift_ms // advance if advance else 2 * self._rows[uid]
                self._rows[uid] = max(MIN_ROWS, min(worth, 2 * self._rows[uid]))


def _marks(splits: Mapping[str, SplitStart], started: bool) -> list[int]:
    """The watermarks of a source's active splits; MIN_MS for a source that has not started."""
    if not splits and not started:
        return [MIN_MS]
    return [s.watermark_ms for s in splits.values() if not (s.idle or s.marked_idle)]

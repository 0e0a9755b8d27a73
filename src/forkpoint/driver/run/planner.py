"""Plans the ranges that each epoch reads from native sources, and their tasks.

Watermark alignment keeps the sources of a group within a maximum drift: before each epoch, it pauses splits whose watermark is
ahead of the group's slowest by more than the drift. A source thus gets ahead by at most the drift plus one epoch's input, which
is limited to about one drift's worth of elements, as measured in earlier epochs.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from forkpoint.checkpoint.manifest import Manifest
from forkpoint.contract.source import Backlog, SplitEnumerator, SplitRange
from forkpoint.functions import WatermarkAlignment
from forkpoint.graph.batch import read_first
from forkpoint.graph.job import JobGraph, Operator
from forkpoint.graph.specs import SourceSpec
from forkpoint.runtime.event_time.watermarks import MAX_MS, MIN_MS
from forkpoint.runtime.exchange.control import SplitStart

Assignment = tuple[int, SplitRange]  # operator id, range
MIN_ROWS = 1000
"""The initial and lowest limit of elements per epoch from an aligned source."""


class SourcePlanner:
    """The enumerators of a job's native sources. Planning advances positions; only a manifest commits them.

    ``stops``: positions beyond which sources must not read, by uid. ``planned``: the ranges of the last plan, by uid.
    ``whole``: sources (by operator id) whose splits are each read by a single task. ``wake`` is called, by any thread, when there
    is new input.
    """

    def __init__(
        self,
        graph: JobGraph,
        positions: Mapping[str, Any],
        parallelism: int,
        max_rows: int | None,
        stops: Mapping[str, Any] = MappingProxyType({}),
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._wake = wake
        self._graph = graph
        self._parallelism = parallelism
        self._stops = stops
        self.limits = self._usual = source_limits(graph, max_rows)
        self.planned: dict[str, list[SplitRange]] = {}
        self.whole = set(graph.generating)
        self._first = read_first(graph)
        self._operators: list[tuple[Operator, SplitEnumerator]] = []
        self._open(positions)

    def _open(self, positions: Mapping[str, Any]) -> None:
        for operator in self._graph.native_sources:
            enumerator = operator.source.create_enumerator(positions.get(operator.uid))
            self._operators.append((operator, enumerator))
            enumerator.on_input(self._wake)
            if operator.uid in self._stops:
                enumerator.stop_at(self._stops[operator.uid])

    def plan(self, limits: Mapping[str, int | None] | None = None) -> list[bytes]:
        """One blob for each task of stage 0; none without new input. With ``limits``, it reads only these sources, each up to its
        limit, or its usual limit if that is None."""
        assignments: list[Assignment] = []
        self.planned = {}
        unread = {operator.id for operator, enumerator in self._operators if not enumerator.finished}
        for operator, enumerator in self._operators:
            if self._first.get(operator.id, set()) & unread:
                continue
            if limits is None or operator.uid in limits:
                limit = (limits or {}).get(operator.uid) or self.limits[operator.uid]
                ranges = self.planned[operator.uid] = enumerator.plan(limit, self._parallelism)
                assignments.extend((operator.id, r) for r in ranges)
        tasks = spread(assignments, self._parallelism, self.whole)
        return [pickle.dumps(task, protocol=5) for task in tasks]

    def limit(self, rows: int) -> None:
        """Read at most so many elements from each source in an epoch."""
        self.limits = {uid: min(usual, rows) for uid, usual in self._usual.items()}

    def pause(self, uid: str, splits: Collection[str]) -> bool:
        """Leave these splits of a source out of the next plan; returns whether the source supports that."""
        return any(enumerator.pause_splits(splits) for operator, enumerator in self._operators if operator.uid == uid)

    def rewind(self, positions: Mapping[str, Any]) -> None:
        """Return to these committed positions."""
        self.close()
        self._operators.clear()
        self._open(positions)

    def confirm(self) -> None:
        """Raise if a source may have read other elements than planned."""
        for operator, enumerator in self._operators:
            if self.planned.get(operator.uid):
                enumerator.confirm()

    def committed(self, positions: Mapping[str, Any]) -> None:
        """Tell the sources which positions have been committed."""
        for operator, enumerator in self._operators:
            enumerator.committed(positions[operator.uid])

    @property
    def full(self) -> bool:
        """Whether the last plan reaches a source's limit, so that there is probably more input."""
        return any(sum(r.rows or 0 for r in ranges) >= self.limits[uid] for uid, ranges in self.planned.items())

    def at_stop(self) -> set[str]:
        """The sources whose plans have reached their stops."""
        return {o.uid for o, enumerator in self._operators if o.uid in self._stops and enumerator.at_stop}

    def positions(self) -> dict[str, Any]:
        return {operator.uid: enumerator.position for operator, enumerator in self._operators}

    def backlog(self) -> dict[str, Backlog]:
        """The known input that is not planned yet, of sources that can tell."""
        found = ((operator.uid, enumerator.backlog()) for operator, enumerator in self._operators)
        return {uid: backlog for uid, backlog in found if backlog is not None}

    def ignored(self) -> dict[str, int]:
        """The number of ignored files, by source."""
        return {operator.uid: enumerator.ignored for operator, enumerator in self._operators if enumerator.ignored}

    def problems(self) -> dict[str, str]:
        """The faults because of which sources have no input for now."""
        found = ((operator.uid, enumerator.problem) for operator, enumerator in self._operators)
        return {uid: problem for uid, problem in found if problem is not None}

    def finished_splits(self) -> dict[str, Collection[str]]:
        return {operator.uid: enumerator.finished_splits for operator, enumerator in self._operators}

    def finished(self) -> set[str]:
        return {operator.uid for operator, enumerator in self._operators if enumerator.finished}

    def close(self) -> None:
        for _, enumerator in self._operators:
            enumerator.close()


def source_limits(graph: JobGraph, max_rows: int | None) -> dict[str, int]:
    """The maximum number of elements per epoch, by native source."""
    return {o.uid: max_rows or o.source.default_limit for o in graph.native_sources}


def discard_sources(graph: JobGraph) -> None:
    """Remove resources that external systems hold for a job without a state root, which cannot resume. ``graph``: its
    driver's."""
    for operator in graph.native_sources:
        operator.source.discard()


def spread(assignments: Sequence[Assignment], tasks: int, whole: Collection[int] = frozenset()) -> list[list[Assignment]]:
    """Divide ranges, in order, into tasks with about the same number of rows, so that each task has neighbouring pieces. All
    pieces of a split of a ``whole`` source go to one task, in the split's order."""
    units: dict[Any, list[Assignment]] = {}
    for i, (operator, range_) in enumerate(assignments):
        units.setdefault((operator, range_.split) if operator in whole else i, []).append((operator, range_))
    weights = [sum(r.rows if r.rows is not None else 1 for _, r in unit) for unit in units.values()]
    total = sum(weights) or 1
    cut: list[list[Assignment]] = [[] for _ in range(min(tasks, len(units)))]
    done = 0
    for unit, weight in zip(units.values(), weights, strict=True):
        cut[min(len(cut) - 1, (done + weight // 2) * len(cut) // total)].extend(sorted(unit, key=lambda a: a[1].piece))
        done += weight
    return [task for task in cut if task]


Starts = Mapping[str, Mapping[str, SplitStart]]
Limits = Mapping[str, int | None] | None
Pause = Callable[[str, Collection[str]], bool]


class Alignment:
    """The aligned sources of one run. ``paused``: splits that this epoch does not read, by source uid. ``recently_paused``:
    paused in this or the previous epoch; these splits do not count as idle."""

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
        self.aligns = bool(self._members)

    def restrict(
        self,
        limits: Limits,
        usual: Mapping[str, int],
        starts: Starts,
        finished: Mapping[str, Collection[str]],
        inactive: Collection[str],
        pause: Pause,
    ) -> Limits:
        """The next epoch's limits, within ``limits`` (None: all sources; None for a source: its ``usual`` limit).

        The group does not wait for ``finished`` splits, for ``inactive`` sources (ended, or silent for longer than their idleness
        timeout) or for sources that ``limits`` leaves out. ``pause`` pauses splits of a source and returns whether the source
        supports that.
        """
        given: dict[str, int | None] = dict.fromkeys(usual) if limits is None else dict(limits)
        splits = {
            uid: {s: start for s, start in starts.get(str(operator.id), {}).items() if s not in finished.get(uid, ())}
            for uid, (operator, _) in self._members.items()
            if uid in given
        }
        marks = {uid: [] if uid in inactive else _marks(found, bool(finished.get(uid))) for uid, found in splits.items()}
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
        self.recently_paused = {uid: self.paused.get(uid, frozenset()) | before.get(uid, frozenset()) for uid in self._members}
        return given

    def committed(self, before: Manifest, after: Manifest) -> None:
        """Measure how many elements of each source are one drift's worth, by this epoch."""
        for uid, (_, alignment) in self._members.items():
            was, now = before.sources.get(uid), after.sources[uid]
            old = {} if was is None else was.splits
            rows = sum(s.count - (old[split].count if split in old else 0) for split, s in now.splits.items())
            advance = max(
                (
                    s.watermark_ms - old[split].watermark_ms
                    for split, s in now.splits.items()
                    if split in old and old[split].watermark_ms > MIN_MS
                ),
                default=0,
            )
            if rows:
                worth = rows * alignment.max_drift_ms // advance if advance else 2 * self._rows[uid]
                self._rows[uid] = max(MIN_ROWS, min(worth, 2 * self._rows[uid]))


def _marks(splits: Mapping[str, SplitStart], started: bool) -> list[int]:
    """The watermarks of a source's active splits; MIN_MS for a source that has not started."""
    if not splits and not started:
        return [MIN_MS]
    return [s.watermark_ms for s in splits.values() if not (s.idle or s.marked_idle)]

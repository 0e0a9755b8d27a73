"""Bounded replay: a run stops at a point in event time, or at a savepoint's positions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from forkpoint.checkpoint.manifest import Manifest, SourcePosition
from forkpoint.contract.source import JSON, SplitRange
from forkpoint.errors import ConfigError
from forkpoint.graph.job import JobGraph, Operator
from forkpoint.graph.specs import SourceSpec, WatermarkSpec
from forkpoint.runtime.event_time.watermarks import Splits
from forkpoint.savepoint.restore.restore_plan import moved_uses

MAX_SINGLES = 64


@dataclass(frozen=True)
class UntilTime:
    """Stop once the watermark of every source has reached ``time_ms``. Each source reads exactly up to the element that raises
    its watermark to that time. ``name``: the time as the user gave it."""

    time_ms: int
    name: str


@dataclass(frozen=True)
class UntilPositions:
    """Stop each source exactly at its position in a savepoint or checkpoint. ``sources``: by uid. ``operators``: names there, by
    uid."""

    sources: Mapping[str, SourcePosition]
    name: str
    operators: Mapping[str, str] = field(default_factory=dict)


Until = UntilTime | UntilPositions


class Bound:
    """The bound of a run's input. The base class has no limits.

    ``stops``: positions beyond which sources must not plan, by uid. ``frame_stops``: positions at which DataFrame sources stop,
    by uid, if any.
    """

    stops: Mapping[str, JSON] = MappingProxyType({})
    frame_stops: Mapping[str, SourcePosition] | None = None

    def limits(self) -> Mapping[str, int | None] | None:
        """The maximum number of elements (None: the usual limit) for each source that the next epoch reads. None: all sources."""
        return None

    def may_commit(self, joined: Mapping[int, Splits], planned: Mapping[str, list[SplitRange]]) -> bool:
        """Whether to commit a computed epoch; if not, the driver plans it again with fewer elements."""
        return True

    def reached(self, at_stop: Collection[str], finished: Collection[str]) -> bool:
        """Whether the run has reached its bound. ``at_stop``: sources that have reached their stops."""
        return False


class PositionBound(Bound):
    """Reads up to a savepoint's positions. A source that had ended there is read to its end."""

    def __init__(self, graph: JobGraph, until: UntilPositions) -> None:
        moved = moved_uses(until.operators, until.sources, {o.uid: o.name for o in graph.operators})
        sources = {moved.get(uid, uid): position for uid, position in until.sources.items()}
        known = {uid: p for uid, p in sources.items() if p.kind == "spark"}
        for operator in graph.frame_sources:
            if operator.uid not in known:
                raise _no_end(until, operator)
        self.frame_stops = {o.uid: known[o.uid] for o in graph.frame_sources}
        stops = {uid: p.position for uid, p in sources.items() if p.kind == "native" and not p.finished}
        for operator in graph.native_sources:
            if operator.uid not in stops and not operator.source.bounded:
                raise _no_end(until, operator)
        self._needed = {o.uid for o in graph.sources}
        self.stops = {uid: stop for uid, stop in stops.items() if uid in self._needed}

    def reached(self, at_stop: Collection[str], finished: Collection[str]) -> bool:
        return self._needed <= {*at_stop, *finished} and bool(self.stops or self.frame_stops)


def _no_end(until: UntilPositions, source: Operator) -> ConfigError:
    return ConfigError(
        f"--until {until.name}: source {source.uid!r} is unbounded and has no position there; give a time, or a savepoint of a "
        "job that has this source"
    )


class TimeBound(Bound):
    """Reads up to a point in event time.

    The driver discards an epoch that takes a source past that point and plans it again with half as many elements of that source
    (and none of others), down to a single element or an indivisible file.
    """

    def __init__(self, graph: JobGraph, until: UntilTime, manifest: Manifest, limits: Mapping[str, int]) -> None:
        self._time_ms = until.time_ms
        self._origins = {o.uid: _origins(graph, o) for o in graph.sources}
        self._native = dict(limits)
        self._narrowed: dict[str, int] = {}
        self._discarded: dict[str, list[SplitRange]] = {}
        self._singles = 0
        for operator in graph.sources:
            _check_has_watermarks(operator, self._origins[operator.uid], until)
        self._passed = {uid for uid, origins in self._origins.items() if _saved_watermark_ms(origins, manifest) >= self._time_ms}

    def limits(self) -> Mapping[str, int | None] | None:
        return self._narrowed or {uid: None for uid in self._native if uid not in self._passed}

    def may_commit(self, joined: Mapping[int, Splits], planned: Mapping[str, list[SplitRange]]) -> bool:
        past = {uid for uid, origins in self._origins.items() if _watermark_ms(origins, joined) >= self._time_ms}
        too_far = {uid for uid in past - self._passed if not self._is_smallest_step(uid, planned.get(uid, []))}
        for uid in too_far:
            self._discarded[uid] = planned[uid]
            self._narrowed[uid] = max(1, min(self._limit(uid), _rows(planned[uid])) // 2)
        if too_far:
            return False
        self._passed |= past
        # Each step halves the remaining input, down to a few single elements. Many single elements mean that new files have
        # appeared in between, so the search starts again.
        self._singles += 1 in self._narrowed.values()
        if self._singles > MAX_SINGLES:
            self._narrowed, self._singles = {}, 0
        self._narrowed = {uid: max(1, n // 2) for uid, n in self._narrowed.items() if uid not in past}
        return True

    def reached(self, at_stop: Collection[str], finished: Collection[str]) -> bool:
        return self._origins.keys() <= {*self._passed, *finished}

    def _limit(self, uid: str) -> int:
        return self._narrowed.get(uid, self._native[uid])

    def _is_smallest_step(self, uid: str, planned: list[SplitRange]) -> bool:
        return not planned or self._limit(uid) == 1 or _rows(planned) <= 1 or planned == self._discarded.get(uid)


def _rows(planned: list[SplitRange]) -> int:
    return sum(r.rows if r.rows is not None else 1 for r in planned)


def _origins(graph: JobGraph, source: Operator) -> list[Operator]:
    """The operators that create watermarks for a source: itself, or those downstream that assign timestamps."""
    return [o for o in graph.assigners if source.id in graph.sources_of([o.id])] or [source]


def _check_has_watermarks(source: Operator, origins: list[Operator], until: UntilTime) -> None:
    bounded = isinstance(source.spec, SourceSpec) and source.spec.bounded
    for origin in origins:
        assert isinstance(origin.spec, WatermarkSpec)
        strategy = origin.spec.strategy
        if strategy.out_of_orderness_ms is None and strategy.generator_factory is None and not bounded:
            raise ConfigError(
                f"--until {until.name}: source {source.uid!r} is unbounded and has no watermarks, so it never reaches a time; "
                "give its stream a WatermarkStrategy, or give a savepoint instead of a time"
            )


def _watermark_ms(origins: list[Operator], joined: Mapping[int, Splits]) -> float:
    marks = [joined[o.id].ends[split] for o in origins for split in joined[o.id].active]
    return min(marks, default=float("-inf"))


def _saved_watermark_ms(origins: list[Operator], manifest: Manifest) -> float:
    known = [manifest.sources.get(o.uid) for o in origins]
    marks = [s.watermark_ms for position in known if position is not None for s in position.splits.values()]
    return min(marks, default=float("-inf"))

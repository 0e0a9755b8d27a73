"""The graph of each event-time window: its edges at both ends, in windows by vertex."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from forkpoint.functions import TumblingEventTimeWindows
from forkpoint.graphs.records import edge_change_type, incidence_type, maker
from forkpoint.types.kinds.containers import OptionalType
from forkpoint.types.kinds.records import RecordType

if TYPE_CHECKING:
    from forkpoint.api.streams.streams import DataStream, KeyedStream
    from forkpoint.api.streams.windowed import WindowedStream
    from forkpoint.graphs.edges import EdgesSpec


@dataclass(frozen=True)
class _ReadChange:
    """Reads an element's change of its edge, which has no value if it is removed."""

    pair: Any
    spec: EdgesSpec

    @property
    def type(self) -> RecordType:
        value = self.spec.value_type
        return edge_change_type(self.spec.vertex_type, None if value is None else OptionalType(value))

    @cached_property
    def _make(self) -> Any:
        return maker(self.type)

    def __call__(self, element: Any) -> Any:
        removed, value = self.spec.removed, self.spec.value
        gone = removed is not None and bool(removed.selector(element))
        carried = () if value is None else (None if gone else value.selector(element),)
        return self._make((*self.pair(element), gone, *carried))


@dataclass(frozen=True)
class _AtBothEnds:
    spec: EdgesSpec

    @property
    def type(self) -> RecordType:
        return incidence_type(self.spec.vertex_type, self.spec.value_type)

    @cached_property
    def _make(self) -> Any:
        return maker(self.type)

    def __call__(self, change: Any) -> Iterator[Any]:
        source, target, removed, *value = change
        if not removed:
            yield self._make((source, target, True, *value))
            yield self._make((target, source, False, *value))


def _later(_: Any, change: Any) -> Any:
    return change


def changes_of(elements: KeyedStream[Any, Any], spec: EdgesSpec) -> DataStream[Any]:
    """Each element's change, of elements keyed by edge."""
    read = _ReadChange(elements.key.selector, spec)
    return elements.map(read, read.type)


def snapshots(elements: KeyedStream[Any, Any], spec: EdgesSpec, size: timedelta | int, uid: str | None) -> WindowedStream:
    """Of elements keyed by edge. First windows of each edge find its last change; their results are in the same window again."""
    windows = TumblingEventTimeWindows.of(size)
    ends = _AtBothEnds(spec)
    last = changes_of(elements, spec).key_by(("source", "target")).window(windows).reduce(_later)
    if uid is not None:
        last = last.uid(f"{uid}-windows")
    return last.flat_map(ends, ends.type).key_by("vertex").window(windows)

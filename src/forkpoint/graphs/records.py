"""The records of graphs' streams, and their place in the order of elements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import numpy as np

from forkpoint.runtime.event_time.watermarks import timer_position
from forkpoint.runtime.exchange.batch import Batch, Coordinates, DerivedBatch
from forkpoint.runtime.operators.base import Epoch
from forkpoint.runtime.operators.keyed_process import firing_rank, order_of
from forkpoint.types import TypeInformation, Types
from forkpoint.types.information import Field
from forkpoint.types.kinds.containers import OptionalType
from forkpoint.types.kinds.records import RecordType, classless


def edge_change_type(vertex: TypeInformation, value: TypeInformation | None) -> RecordType:
    """EdgeChange(source, target, removed), and the edge's ``value`` if edges have one."""
    fields = (Field("source", vertex), Field("target", vertex), Field("removed", Types.BOOLEAN()))
    return classless("namedtuple", "EdgeChange", fields if value is None else (*fields, Field("value", value)))


def edge_type(vertex: TypeInformation) -> RecordType:
    return classless("namedtuple", "Edge", (Field("source", vertex), Field("target", vertex)))


def degree_type(vertex: TypeInformation) -> RecordType:
    numbers = (Field(name, Types.LONG()) for name in ("in_degree", "out_degree", "degree"))
    return classless("namedtuple", "Degree", (Field("vertex", vertex), *numbers))


def component_type(vertex: TypeInformation) -> RecordType:
    return classless("namedtuple", "Component", (Field("vertex", vertex), Field("component", OptionalType(Types.LONG()))))


def color_type(vertex: TypeInformation) -> RecordType:
    return classless("namedtuple", "Color", (Field("vertex", vertex), Field("color", OptionalType(Types.INT()))))


def distance_type(vertex: TypeInformation, length: TypeInformation) -> RecordType:
    return classless("namedtuple", "Distance", (Field("vertex", vertex), Field("distance", OptionalType(length))))


def triangles_type(vertex: TypeInformation) -> RecordType:
    return classless("namedtuple", "Triangles", (Field("vertex", vertex), Field("triangles", Types.LONG())))


def estimate_type() -> RecordType:
    numbers = (Field(name, Types.LONG()) for name in ("edges", "sampled"))
    return classless("namedtuple", "TriangleEstimate", (Field("triangles", Types.DOUBLE()), *numbers))


def neighbor_type(vertex: TypeInformation, value: TypeInformation | None) -> RecordType:
    """Neighbor(vertex, outgoing), and the edge's ``value`` if edges have one."""
    fields = (Field("vertex", vertex), Field("outgoing", Types.BOOLEAN()))
    return classless("namedtuple", "Neighbor", fields if value is None else (*fields, Field("value", value)))


def incidence_type(vertex: TypeInformation, value: TypeInformation | None) -> RecordType:
    """Incidence(vertex, neighbor, outgoing), and the edge's ``value`` if edges have one."""
    fields = (Field("vertex", vertex), Field("neighbor", vertex), Field("outgoing", Types.BOOLEAN()))
    return classless("namedtuple", "Incidence", fields if value is None else (*fields, Field("value", value)))


def neighborhood_type(vertex: TypeInformation, result: TypeInformation) -> RecordType:
    return classless("namedtuple", "Neighborhood", (Field("vertex", vertex), Field("result", result)))


def maker(of: RecordType) -> Callable[[Iterable[Any]], Any]:
    """The function that makes a record of its fields' values."""
    make: Callable[[Iterable[Any]], Any] = cast("Any", of.python_class)._make
    return make


def net_changes(rows: Sequence[tuple[Any, ...]], keys: Sequence[bytes], epoch: Epoch, stage: int, of: RecordType) -> Batch:
    """The changes of an epoch, one for each key. ``keys``: encoded."""
    return DerivedBatch(len(rows), at_end(keys, epoch, stage), values=list(map(maker(of), rows)), type=of)


def at_end(keys: Sequence[bytes], epoch: Epoch, stage: int) -> Callable[[], Coordinates]:
    """The coordinates of an epoch's changes, one for each encoded key: after what the epoch before has emitted."""

    def coordinates() -> Coordinates:
        order = np.fromiter(map(order_of, keys), np.int64, len(keys))
        return timer_position(epoch.window.before) + 1, firing_rank(stage, event=False), order, None

    return coordinates

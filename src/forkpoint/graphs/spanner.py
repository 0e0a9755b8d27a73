"""A spanner: few of a graph's edges, over which a path of bounded length joins the ends of each of them.

An edge enters unless there is such a path already (Althöfer et al., "On Sparse Spanners of Weighted Graphs", 1993). So state has
no cycle of up to ``stretch`` + 1 edges, which bounds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from forkpoint.functions import MapStateDescriptor
from forkpoint.graph.specs import DeclaredState
from forkpoint.graphs.edges import PRESENT
from forkpoint.graphs.entries import Adjacency
from forkpoint.graphs.records import edge_type
from forkpoint.graphs.whole import OfWholeGraph
from forkpoint.runtime.exchange.batch import Batch
from forkpoint.runtime.operators.base import TaskInfo
from forkpoint.runtime.operators.instances import KeyedSpec, ManagedState
from forkpoint.runtime.state.keyed_backend import KeyedBackend
from forkpoint.types import TypeInformation, Types
from forkpoint.types.keys import key_form


@dataclass(frozen=True)
class SpannerSpec(KeyedSpec):
    """Added edges, with one key for all. ``stretch``: the length of a path that stands for an edge."""

    kind = "graph_spanner"

    stretch: int
    vertex_type: TypeInformation

    @property
    def neighbors(self) -> MapStateDescriptor[Any, Any]:
        of = key_form(self.vertex_type)
        return MapStateDescriptor("neighbors", Types.TUPLE([of, of]), PRESENT)

    def states(self) -> list[DeclaredState]:
        return [DeclaredState.of(self.neighbors)]

    def instance(self, info: TaskInfo, state: ManagedState) -> Spanner:
        return Spanner(info, state.keyed, self)


class Spanner(OfWholeGraph):
    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: SpannerSpec) -> None:
        super().__init__(info, backend, spec.vertex_type, edge_type(spec.vertex_type))
        self._stretch = spec.stretch
        self._neighbors = Adjacency(backend, spec.neighbors)

    def _update(self, changes: Batch) -> dict[bytes, Any]:
        edges = [(self._vertex.encode(change.source), self._vertex.encode(change.target)) for change in changes.values]
        neighbors, entered = self._neighbors, dict[bytes, Any]()
        neighbors.begin()
        neighbors.load(dict.fromkeys(vertex for edge in edges for vertex in edge))
        for first, second in edges:
            if first != second and not self._joined(first, second):
                neighbors.put(first, second, True)
                neighbors.put(second, first, True)
                entered[first + second] = (first, second)
        neighbors.collect(self._log)
        return entered

    def _row(self, key: bytes, result: Any) -> tuple[Any, ...]:
        return tuple(map(self._vertex.decode, result))

    def _joined(self, first: bytes, second: bytes) -> bool:
        """Whether a path of at most ``stretch`` edges joins two vertices, searched for from both, the fewer vertices first."""
        here, there = ({first}, {first}), ({second}, {second})  # of each side, what has been seen, and where it ends
        for _ in range(self._stretch):
            if len(here[1]) > len(there[1]):
                here, there = there, here
            seen, ends = here
            self._neighbors.load(ends)
            ends = {other for vertex in ends for other in self._neighbors.of(vertex)} - seen
            if not ends or not ends.isdisjoint(there[0]):
                return bool(ends)
            here = (seen | ends, ends)
        return False

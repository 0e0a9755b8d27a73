"""The exact number of triangles of each vertex, under additions and removals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from forkpoint.functions import MapStateDescriptor
from forkpoint.graph.specs import DeclaredState
from forkpoint.graphs.components import pair_deltas
from forkpoint.graphs.entries import LINK, Entries, Neighbors, Pair
from forkpoint.graphs.records import triangles_type
from forkpoint.graphs.whole import OfWholeGraph
from forkpoint.runtime.exchange.batch import Batch
from forkpoint.runtime.operators.base import TaskInfo
from forkpoint.runtime.operators.instances import KeyedSpec, ManagedState
from forkpoint.runtime.state.keyed_backend import KeyedBackend
from forkpoint.types import TypeInformation, Types
from forkpoint.types.keys import key_form

COUNTS = Types.TUPLE([Types.LONG(), Types.LONG()])
"""A vertex's triangles, and its neighbors."""


@dataclass(frozen=True)
class TrianglesSpec(KeyedSpec):
    """Net changes of edges, with one key for all."""

    kind = "graph_triangles"
    follows_inputs = True

    vertex_type: TypeInformation

    @property
    def maps(self) -> list[MapStateDescriptor]:
        of = key_form(self.vertex_type)
        return [MapStateDescriptor("vertices", of, COUNTS), MapStateDescriptor("neighbors", Types.TUPLE([of, of]), LINK)]

    def states(self) -> list[DeclaredState]:
        return list(map(DeclaredState.of, self.maps))

    def instance(self, info: TaskInfo, state: ManagedState) -> Triangles:
        return Triangles(info, state.keyed, self)


class Triangles(OfWholeGraph):
    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: TrianglesSpec) -> None:
        super().__init__(info, backend, spec.vertex_type, triangles_type(spec.vertex_type))
        vertices, neighbors = spec.maps
        self._vertices, self._neighbors = Entries(backend, vertices), Neighbors(backend, neighbors)

    def _update(self, changes: Batch) -> dict[bytes, Any]:
        """The vertices whose triangles have become more or fewer, with their number."""
        between = pair_deltas(changes, self._vertex)
        deltas = {pair: delta for pair, delta in between.items() if delta and pair[0] != pair[1]}
        vertices, neighbors = self._vertices, self._neighbors
        vertices.begin()
        neighbors.begin()
        neighbors.load_pairs(deltas)
        vertices.load(vertex for pair in deltas for vertex in pair)
        changed = dict[Pair, bool]()
        for pair, delta in deltas.items():
            link = neighbors.maybe(pair)
            count = delta + (0 if link is None else link[0])
            if link is None or not count:
                changed[pair] = link is None
            else:
                neighbors.set(pair, (count, False))
        by_vertex: dict[bytes, list[bytes]] = {}
        for first, second in changed:
            by_vertex.setdefault(first, []).append(second)
            by_vertex.setdefault(second, []).append(first)
        # Of each changed edge, the neighbors of its end with fewer, and whether these are the other end's neighbors, too.
        degrees = {vertex: self._degree(vertex) + len(others) for vertex, others in by_vertex.items()}
        few = {pair: pair if degrees[pair[0]] <= degrees[pair[1]] else pair[::-1] for pair in changed}
        neighbors.load(dict.fromkeys(small for small, _ in few.values()))
        neighbors.load_pairs(
            (large, other)
            for small, large in few.values()
            for other in (*neighbors.of(small), *by_vertex[small])
            if other != large
        )
        more: dict[bytes, int] = {}
        for pair, adds in changed.items():
            small, large = few[pair]
            common = [other for other in neighbors.of(small) if other != large and neighbors.maybe((large, other))]
            step = 1 if adds else -1
            for other in common:
                more[other] = more.get(other, 0) + step
            for vertex in pair:
                more[vertex] = more.get(vertex, 0) + step * len(common)
            neighbors.set(pair, (deltas[pair], False) if adds else None)
        vertices.load(more)
        for pair, adds in changed.items():
            for vertex in pair:
                triangles, degree = vertices.now[vertex] or (0, 0)
                vertices.now[vertex] = (triangles, degree + (1 if adds else -1))
        for vertex, step in more.items():
            triangles, degree = vertices.now[vertex]
            vertices.now[vertex] = (triangles + step, degree) if degree else None
        for states in (vertices, neighbors):
            states.collect(self._log)
        return {vertex: (vertices.now[vertex] or (0,))[0] for vertex, step in more.items() if step}

    def _degree(self, vertex: bytes) -> int:
        row = self._vertices.now[vertex]
        return 0 if row is None else row[1]

"""An estimate of the number of triangles, from a uniform sample of the edges that has a fixed size.

Random pairing keeps the sample uniform when edges go: an added edge takes the place of one that has gone, and is sampled with
the probability that that one was. (De Stefani et al., "TRIÈST: Counting Local and Global Triangles in Fully-Dynamic Streams with
Fixed Memory Size", 2016.)
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from math import exp, inf, lgamma
from typing import Any

from forkpoint.errors import GraphError
from forkpoint.functions import MapStateDescriptor
from forkpoint.graph.specs import DeclaredState
from forkpoint.graphs.entries import Adjacency, Entries, Pair
from forkpoint.graphs.records import estimate_type
from forkpoint.graphs.whole import OfWholeGraph
from forkpoint.runtime.exchange.batch import Batch
from forkpoint.runtime.operators.base import TaskInfo
from forkpoint.runtime.operators.instances import KeyedSpec, ManagedState
from forkpoint.runtime.operators.keyed_functions import MapWithStateSpec
from forkpoint.runtime.state.keyed_backend import KeyedBackend
from forkpoint.types import TypeInformation, Types
from forkpoint.types.keys import key_form

_NUMBER = Types.LONG()
_SIZE, _EDGES, _SAMPLED, _INSIDE, _OUTSIDE, _TRIANGLES, _DRAWS = COUNTS = tuple(
    map(Types.STRING().encode, ("size", "edges", "sampled", "gone_inside", "gone_outside", "triangles", "draws"))
)
"""The size of a full sample; the edges, and those in the sample; the removed edges, in the sample and not, whose places no added
edge has taken; the sample's triangles; the random numbers drawn."""


def undirected(change: Any, directions: int | None) -> tuple[list[Any] | None, int | None]:
    """The change of a pair of vertices, if any, and how many of its two edges there are."""
    if change.source == change.target:
        return None, None
    before = directions or 0
    now = before + (-1 if change.removed else 1)
    return ([change] if before + now == 1 else None), now or None


class PairsSpec(MapWithStateSpec):
    """Of net changes of edges, those of pairs of vertices."""

    follows_inputs = True


PAIRS = PairsSpec(undirected, Types.INT(), flat=True)


def estimated(triangles: int, size: int, edges: int, sampled: int, gone: int) -> float:
    """The triangles of a graph with so many edges, of which those sampled have ``triangles``.

    Exact as long as the sample has had all edges. Otherwise each three sampled edges stand for as many as there are in the graph,
    and for the cases in which the sample would have been too small for one triangle.
    """
    if edges + gone <= size:
        return float(triangles)
    if sampled < 3:
        return 0.0
    too_few = sum(exp(_log_choose(edges, n) + _log_choose(gone, size - n) - _log_choose(edges + gone, size)) for n in range(3))
    scale = edges * (edges - 1) * (edges - 2) / (sampled * (sampled - 1) * (sampled - 2))
    return triangles * scale / (1 - too_few)


def _log_choose(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) if 0 <= k <= n else -inf


@dataclass(frozen=True)
class TriangleEstimateSpec(KeyedSpec):
    """Changes of pairs of vertices, with one key for all. ``size``: of the sample."""

    kind = "graph_triangle_estimate"

    size: int
    seed: int
    vertex_type: TypeInformation

    @property
    def maps(self) -> list[MapStateDescriptor]:
        """``neighbors`` has the sampled edges at both ends, with their places; ``places`` has them by place."""
        of = key_form(self.vertex_type)
        pair = Types.TUPLE([of, of])
        types = {"counts": (Types.STRING(), _NUMBER), "places": (_NUMBER, pair), "neighbors": (pair, _NUMBER)}
        return [MapStateDescriptor(name, key, value) for name, (key, value) in types.items()]

    def states(self) -> list[DeclaredState]:
        return list(map(DeclaredState.of, self.maps))

    def instance(self, info: TaskInfo, state: ManagedState) -> TriangleEstimate:
        return TriangleEstimate(info, state.keyed, self)


class TriangleEstimate(OfWholeGraph):
    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: TriangleEstimateSpec) -> None:
        super().__init__(info, backend, spec.vertex_type, estimate_type())
        self._size, self._seed = spec.size, spec.seed
        counts, places, neighbors = spec.maps
        self._counts, self._places = Entries(backend, counts), Entries(backend, places)
        self._neighbors = Adjacency(backend, neighbors)

    def _update(self, changes: Batch) -> dict[bytes, Any]:
        encode, states = self._vertex.encode, (self._counts, self._places, self._neighbors)
        for state in states:
            state.begin()
        self._counts.load(COUNTS)
        now = self._counts.now
        if now[_SIZE] is None:
            now.update(dict.fromkeys(COUNTS, 0) | {_SIZE: self._size})
        if now[_SIZE] != self._size:
            raise GraphError(
                f"operator {self._uid!r} has a sample of {now[_SIZE]} edges in its state, not of {self._size}; keep the size, or "
                "give the operator's graph another uid"
            )
        edges = [(encode(change.source), encode(change.target), change.removed) for change in changes.values]
        self._neighbors.load(dict.fromkeys(vertex for *edge, _ in edges for vertex in edge))
        for first, second, removed in edges:
            (self._remove if removed else self._add)((first, second))
        for state in states:
            state.collect(self._log)
        _, total, sampled, inside, outside, triangles, _ = map(now.__getitem__, COUNTS)
        return {b"": (estimated(triangles, self._size, total, sampled, inside + outside), total, sampled)}

    def _row(self, key: bytes, result: Any) -> tuple[Any, ...]:
        row: tuple[Any, ...] = result
        return row

    def _add(self, edge: Pair) -> None:
        now = self._counts.now
        now[_EDGES] += 1
        if gone := now[_INSIDE] + now[_OUTSIDE]:
            sampled = self._draw(gone) < now[_INSIDE]
            now[_INSIDE if sampled else _OUTSIDE] -= 1
        elif now[_SAMPLED] < self._size:
            sampled = True
        elif sampled := self._draw(now[_EDGES]) < self._size:
            self._take(self._draw(self._size))
        if sampled:
            now[_TRIANGLES] += self._common(edge)
            self._place(edge, now[_SAMPLED])
            now[_SAMPLED] += 1

    def _remove(self, edge: Pair) -> None:
        now = self._counts.now
        now[_EDGES] -= 1
        place = self._near(edge[0]).get(edge[1])
        now[_OUTSIDE if place is None else _INSIDE] += 1
        if place is not None:
            self._take(place)

    def _take(self, place: int) -> None:
        """Take an edge out of the sample; the last one gets its place."""
        now = self._counts.now
        now[_SAMPLED] -= 1
        edge, last = self._at(place), self._at(now[_SAMPLED])
        self._place(last, place)
        self._places.now[_NUMBER.encode(now[_SAMPLED])] = None
        for first, second in (edge, edge[::-1]):
            self._neighbors.put(first, second, None)
        now[_TRIANGLES] -= self._common(edge)

    def _at(self, place: int) -> Pair:
        name = _NUMBER.encode(place)
        self._places.load([name])
        first, second = map(self._vertex.encode, self._places.now[name])
        return first, second

    def _place(self, edge: Pair, place: int) -> None:
        name = _NUMBER.encode(place)
        self._places.load([name])
        self._places.now[name] = tuple(map(self._vertex.decode, edge))
        for first, second in (edge, edge[::-1]):
            self._neighbors.put(first, second, place)

    def _common(self, edge: Pair) -> int:
        """How many triangles the edge makes with two of the sample."""
        few, many = sorted(map(self._near, edge), key=len)
        return sum(other in many for other in few)

    def _near(self, vertex: bytes) -> dict[bytes, int]:
        if not self._neighbors.has(vertex):
            self._neighbors.load([vertex])
        return self._neighbors.of(vertex)

    def _draw(self, below: int) -> int:
        """A random number from 0. It depends on the seed and on how many were drawn, so that it is the same after a failure."""
        now = self._counts.now
        now[_DRAWS] += 1
        digest = blake2b(b"%d %d" % (self._seed, now[_DRAWS]), digest_size=8).digest()
        return int.from_bytes(digest, "big") * below >> 64

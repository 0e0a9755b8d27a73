"""The lengths of the shortest paths from one vertex, under additions and removals.

A removed edge matters if it was the end of a shortest path. Then the vertices that it leaves without one are found, in the order
of their distances, and get new distances as Dijkstra's algorithm gives them, from their neighbors that keep theirs (Ramalingam
and Reps, "An incremental algorithm for a generalization of the shortest-path problem", 1996). Added edges begin in the same
queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any

from forkpoint.errors import UserFunctionError
from forkpoint.functions import MapStateDescriptor
from forkpoint.graph.specs import DeclaredState
from forkpoint.graphs.entries import Adjacency, Entries
from forkpoint.graphs.records import distance_type
from forkpoint.graphs.whole import OfWholeGraph
from forkpoint.runtime.exchange.batch import Batch
from forkpoint.runtime.operators.base import TaskInfo
from forkpoint.runtime.operators.instances import KeyedSpec, ManagedState
from forkpoint.runtime.state.keyed_backend import KeyedBackend
from forkpoint.types import TypeInformation, Types
from forkpoint.types.keys import key_form

Number = int | float


@dataclass(frozen=True)
class ShortestPathsSpec(KeyedSpec):
    """Net changes of edges, with one key for all. ``start``: the vertex. ``length_type``: of edges; None if each has length 1."""

    kind = "graph_shortest_paths"
    follows_inputs = True

    start: Any
    vertex_type: TypeInformation
    length_type: TypeInformation | None

    @property
    def maps(self) -> list[MapStateDescriptor]:
        of, length = key_form(self.vertex_type), self.length_type or Types.LONG()
        pair = Types.TUPLE([of, of])
        names = {"distances": of, "outgoing": pair, "incoming": pair}
        return [MapStateDescriptor(name, key, length) for name, key in names.items()]

    def states(self) -> list[DeclaredState]:
        return list(map(DeclaredState.of, self.maps))

    def instance(self, info: TaskInfo, state: ManagedState) -> ShortestPaths:
        return ShortestPaths(info, state.keyed, self)


class ShortestPaths(OfWholeGraph):
    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: ShortestPathsSpec) -> None:
        super().__init__(info, backend, spec.vertex_type, distance_type(spec.vertex_type, spec.length_type or Types.LONG()))
        self._weighted = spec.length_type is not None
        self._start = self._vertex.encode(self._vertex.accept(spec.start))
        distances, outgoing, incoming = spec.maps
        self._distances = Entries(backend, distances)
        self._out, self._into = Adjacency(backend, outgoing), Adjacency(backend, incoming)

    def _edges(self, batch: Batch) -> Iterator[tuple[bytes, bytes, Number, bool]]:
        """Changed edges, with their lengths and whether they are removed."""
        encode = self._vertex.encode
        for change in batch.values:
            length = change.value if self._weighted else 1
            if not length > 0:
                raise UserFunctionError(
                    f"operator {self._uid!r}: the edge from {change.source!r} to {change.target!r} has length {length!r}, but "
                    "lengths are more than 0; filter the stream, or map the value"
                )
            yield encode(change.source), encode(change.target), length, change.removed

    def _update(self, changes: Batch) -> dict[bytes, Any]:
        """The vertices whose distances have changed, with the new ones."""
        edges = list(self._edges(changes))
        distances, out, into = self._distances, self._out, self._into
        for state in (distances, out, into):
            state.begin()
        distances.load([self._start, *(vertex for source, target, *_ in edges for vertex in (source, target))])
        now = distances.now
        begins = now[self._start] != 0  # the graph, or this start: the saved distances are from another
        if begins:
            distances.load_all()
            now.update(dict.fromkeys(now))
        now[self._start] = 0
        ends: list[tuple[Number, bytes]] = []  # of shortest paths, by distance
        for source, target, length, removed in edges:
            out.put(source, target, None if removed else length)
            into.put(target, source, None if removed else length)
            if removed and now[source] is not None and now[target] == now[source] + length:
                ends.append((now[target], target))
        lost = self._lost(ends)
        queue = [
            (now[source] + length, target)
            for source, target, length, removed in edges
            if not removed and source not in lost and now[source] is not None
        ]
        for vertex in lost:
            now[vertex] = None
            queue += [(at, vertex) for at in self._ways(vertex, lost)]
        if begins:
            self._load(out, self._start, queue)
            queue += [(length, target) for target, length in out.of(self._start).items()]
        self._settle(queue)
        for state in (distances, out, into):
            state.collect(self._log)
        return {vertex: at for vertex, at in now.items() if at != distances.before.get(vertex)}

    def _lost(self, ends: list[tuple[Number, bytes]]) -> dict[bytes, None]:
        """The vertices that no path of their distance leads to any more."""
        lost = dict[bytes, None]()
        heapify(ends)
        while ends:
            at, vertex = heappop(ends)
            if vertex in lost or vertex == self._start:
                continue
            self._load(self._into, vertex, ends)
            if any(way == at for way in self._ways(vertex, lost)):
                continue
            lost[vertex] = None
            self._load(self._out, vertex, ends)
            following = self._out.of(vertex)
            self._distances.load(following)
            now = self._distances.now
            for target, length in following.items():
                if now[target] == at + length:
                    heappush(ends, (now[target], target))
        return lost

    def _ways(self, vertex: bytes, lost: dict[bytes, None]) -> list[Number]:
        """The lengths of the paths over vertices that keep their distances."""
        before, now = self._into.of(vertex), self._distances.now
        self._distances.load(before)
        return [now[source] + length for source, length in before.items() if source not in lost and now[source] is not None]

    def _settle(self, queue: list[tuple[Number, bytes]]) -> None:
        """Shorten distances, the smallest first."""
        now = self._distances.now
        heapify(queue)
        while queue:
            at, vertex = heappop(queue)
            if now[vertex] is not None and now[vertex] <= at:
                continue
            now[vertex] = at
            self._load(self._out, vertex, queue)
            following = self._out.of(vertex)
            self._distances.load(following)
            for target, length in following.items():
                if now[target] is None or at + length < now[target]:
                    heappush(queue, (at + length, target))

    @staticmethod
    def _load(side: Adjacency, vertex: bytes, waiting: list[tuple[Number, bytes]]) -> None:
        """Load a vertex, and those that wait, which cost less together."""
        if not side.has(vertex):
            side.load(dict.fromkeys([vertex, *(each for _, each in waiting)]))

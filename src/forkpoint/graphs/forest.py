"""The components of an undirected graph under additions and removals: a spanning forest in state.

Each vertex knows the number of its component, each edge whether it is in the forest. An added edge that joins two components
enters the forest, and the smaller component takes the number of the larger. Only the removal of an edge of the forest can
separate anything: then both trees that it leaves are walked in turn, the one first that costs less, until an edge outside the
forest is found that joins them, or one of them has been seen as a whole without such an edge.

All removals of an epoch follow its additions. Nothing stays in memory between epochs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from forkpoint.functions import MapStateDescriptor
from forkpoint.graphs.entries import LINK, Entries, Neighbors, Pair
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.types import TypeInformation, Types

VERTEX = Types.TUPLE([Types.LONG(), Types.LONG()])
"""The number of a vertex's component, and its number of neighbors."""

_NUMBER = Types.LONG()
_NEXT = _NUMBER.encode(-1)
"""Where the sizes of components have the next number that is free."""


def forest_states(vertex: TypeInformation) -> list[MapStateDescriptor[Any, Any]]:
    """The states of vertices, of edges, and of the sizes of components by number."""
    return [
        MapStateDescriptor("vertices", vertex, VERTEX),
        MapStateDescriptor("neighbors", Types.TUPLE([vertex, vertex]), LINK),
        MapStateDescriptor("component_sizes", _NUMBER, _NUMBER),
    ]


@dataclass
class _Side:
    """What has been seen of one of two trees. ``wanted``: ends of edges outside the forest, and the ends within the tree."""

    seen: dict[bytes, None]
    frontier: list[bytes]
    cost: int
    wanted: dict[bytes, bytes] = field(default_factory=dict)


class Forest:
    def __init__(self, backend: KeyedBackend, vertex: TypeInformation) -> None:
        vertices, neighbors, sizes = forest_states(vertex)
        self._vertices, self._sizes = Entries(backend, vertices), Entries(backend, sizes)
        self._neighbors = Neighbors(backend, neighbors)

    def update(self, deltas: Mapping[Pair, int]) -> ChangeLog:
        """Apply an epoch's changes: by how much the directions of each pair of vertices have become more."""
        for states in (self._vertices, self._neighbors, self._sizes):
            states.begin()
        pairs = [pair for pair, delta in deltas.items() if delta]
        self._neighbors.load_pairs(pairs)
        self._vertices.load(vertex for pair in pairs for vertex in pair)
        added, removed = list[tuple[Pair, int]](), list[Pair]()
        for pair in pairs:
            before = self._neighbors.maybe(pair)
            count = deltas[pair] + (0 if before is None else before[0])
            if before is None:
                added.append((pair, count))
            elif not count:
                removed.append(pair)
            else:
                self._neighbors.set(pair, (count, before[1]))
        self._add(added)
        self._remove(removed)
        log = ChangeLog()
        for states in (self._vertices, self._neighbors, self._sizes):
            states.collect(log)
        return log

    def load(self, vertices: Iterable[bytes]) -> None:
        self._vertices.load(vertices)

    def components(self) -> Iterable[tuple[bytes, int | None, int | None]]:
        """The vertices that the update has read, with their components before and after."""
        before = self._vertices.before
        for vertex, row in self._vertices.now.items():
            old = before[vertex]
            yield vertex, None if old is None else old[0], None if row is None else row[0]

    def component(self, vertex: bytes) -> tuple[int | None, int | None]:
        """The component of a vertex that has been read, before and after."""
        old, new = self._vertices.before[vertex], self._vertices.now[vertex]
        return None if old is None else old[0], None if new is None else new[0]

    # -- additions

    def _add(self, added: list[tuple[Pair, int]]) -> None:
        rows, sizes = self._vertices.now, self._sizes.now
        self._sizes.load([_NEXT])
        new = dict.fromkeys(vertex for pair, _ in added for vertex in pair if rows[vertex] is None)
        for vertex in new:
            rows[vertex] = (self._new_component(1), 0)
        ends = dict.fromkeys(vertex for pair, _ in added for vertex in pair)
        self._sizes.load(_NUMBER.encode(rows[vertex][0]) for vertex in ends)
        parent: dict[int, int] = {}

        def root(number: int) -> int:
            while (above := parent.get(number, number)) != number:
                parent[number] = number = parent.get(above, above)
            return number

        total: dict[int, int] = {}
        for (first, second), count in added:
            one, two = root(rows[first][0]), root(rows[second][0])
            if one != two:
                for number in (one, two):
                    total.setdefault(number, sizes[_NUMBER.encode(number)])
                # The root is the component that was largest before, which keeps its number; of equals, the older one.
                if (-sizes[_NUMBER.encode(one)], one) > (-sizes[_NUMBER.encode(two)], two):
                    one, two = two, one
                parent[two] = one
                total[one] += total.pop(two)
            self._neighbors.set((first, second), (count, one != two))
            for vertex in (first, second) if first != second else (first,):
                rows[vertex] = (rows[vertex][0], rows[vertex][1] + 1)
        seeds = [vertex for vertex in ends if rows[vertex][0] in parent]
        self._renumber(seeds, {number: root(number) for number in parent})
        for number in parent:
            sizes[_NUMBER.encode(number)] = None
        for number, size in total.items():
            sizes[_NUMBER.encode(number)] = size

    def _renumber(self, frontier: list[bytes], into: Mapping[int, int]) -> None:
        """Give all vertices of these components another number. ``frontier``: at least one vertex of each."""
        rows, sizes = self._vertices.now, self._sizes.now
        while frontier:
            walked: list[bytes] = []
            for vertex in frontier:
                number, degree = rows[vertex]
                if number in into:
                    rows[vertex] = (into[number], degree)
                    if sizes[_NUMBER.encode(number)] > 1:
                        walked.append(vertex)
            frontier = self._tree_neighbors(walked)
            self._vertices.load(frontier)

    def _tree_neighbors(self, vertices: list[bytes]) -> list[bytes]:
        self._neighbors.load(vertices)
        return [other for vertex in vertices for other, (_, tree) in self._neighbors.of(vertex).items() if tree]

    def _new_component(self, size: int) -> int:
        sizes = self._sizes.now
        number: int = sizes[_NEXT] or 0
        sizes[_NEXT] = number + 1
        sizes[_NUMBER.encode(number)] = size
        return number

    # -- removals

    def _remove(self, removed: list[Pair]) -> None:
        rows, sizes = self._vertices.now, self._sizes.now
        self._sizes.load(_NUMBER.encode(rows[first][0]) for first, _ in removed)
        of_forest = list[Pair]()
        for pair in removed:
            _, tree = self._neighbors.maybe(pair)
            if tree:
                of_forest.append(pair)
            else:
                self._neighbors.set(pair, None)
            for vertex in pair if pair[0] != pair[1] else pair[:1]:
                rows[vertex] = (rows[vertex][0], rows[vertex][1] - 1)
        for pair in of_forest:
            self._neighbors.set(pair, None)
            self._reconnect(pair)
        for vertex in dict.fromkeys(vertex for pair in removed for vertex in pair):
            number, degree = rows[vertex]
            if not degree:  # it is alone in its component
                rows[vertex] = None
                sizes[_NUMBER.encode(number)] = None

    def _reconnect(self, pair: Pair) -> None:
        """Find an edge that joins the trees of two vertices, or part their components."""
        rows = self._vertices.now
        sides = tuple(_Side({vertex: None}, [vertex], rows[vertex][1]) for vertex in pair)
        while True:
            side, other = sides if sides[0].cost <= sides[1].cost else sides[::-1]
            joins = self._expand(side, other)
            if joins is None and not side.frontier:
                joins = next(((inner, outer) for outer, inner in side.wanted.items() if outer not in side.seen), None)
                if joins is None:
                    return self._part(side, other)
            if joins is not None:
                link = self._neighbors.maybe(joins)
                return self._neighbors.set(joins, (link[0], True))

    def _expand(self, side: _Side, other: _Side) -> Pair | None:
        """See the neighbors of a tree's frontier. Returns an edge that leads into the other tree."""
        rows, frontier, side.frontier = self._vertices.now, side.frontier, []
        self._neighbors.load(frontier)
        for vertex in frontier:
            for neighbor, (_, tree) in self._neighbors.of(vertex).items():
                if not tree:
                    if neighbor in other.seen:
                        return vertex, neighbor
                    side.wanted.setdefault(neighbor, vertex)
                elif neighbor not in side.seen:
                    side.seen[neighbor] = None
                    side.frontier.append(neighbor)
        self._vertices.load(side.frontier)
        side.cost += sum(rows[vertex][1] for vertex in side.frontier)
        return None

    def _part(self, side: _Side, other: _Side) -> None:
        """Give the smaller of two trees a number of its own. ``side``: the one that has been seen as a whole."""
        rows, sizes = self._vertices.now, self._sizes.now
        old = rows[next(iter(side.seen))][0]
        name, seen = _NUMBER.encode(old), side.seen
        if 2 * len(seen) > sizes[name]:
            seen = other.seen
            while other.frontier:
                other.frontier = [v for v in dict.fromkeys(self._tree_neighbors(other.frontier)) if v not in seen]
                seen.update(dict.fromkeys(other.frontier))
            self._vertices.load(seen)
        number = self._new_component(len(seen))
        sizes[name] -= len(seen)
        for vertex in seen:
            rows[vertex] = (number, rows[vertex][1])

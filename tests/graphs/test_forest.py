"""The forest's own promises, which results do not show: sizes, who moves, and how little an update reads."""

from __future__ import annotations

import random

import networkx as nx
import pytest

from forkpoint.graphs.entries import LINK
from forkpoint.graphs.forest import Forest
from forkpoint.runtime.state.keyed_backend import KeyedBackend
from forkpoint.state import Changes, open_store
from forkpoint.types import Types

VERTEX = Types.LONG()


class Played:
    """A forest over a store, and the graph that it should be of. ``read``: the vertices whose neighbors an update has read."""

    def __init__(self, path) -> None:
        self._store = open_store("dict", path)
        self._backend = KeyedBackend("forest", Types.INT(), 128, self._store)
        self.forest = Forest(self._backend, VERTEX)
        self.graph = nx.Graph()
        self.numbers: dict[int, int] = {}
        self.moved: set[int] = set()
        self.read = 0

    def update(self, added=(), removed=()) -> None:
        self.graph.add_edges_from(added)
        self.graph.remove_edges_from(removed)
        self.graph.remove_nodes_from([vertex for vertex, degree in dict(self.graph.degree).items() if not degree])
        deltas = {tuple(sorted(map(VERTEX.encode, edge))): step for step, edges in ((1, added), (-1, removed)) for edge in edges}
        self._backend.begin([0], 0, lambda: 0)
        log = self.forest.update(deltas)
        self._store.apply(Changes(log.keys, log.values), self._store.version + 1, self._store.version)
        moved = {VERTEX.decode(vertex): after for vertex, before, after in self.forest.components() if before != after}
        self.read = len(self.forest._neighbors._all)
        self.moved = set(moved)
        self.numbers = {v: number for v, number in (self.numbers | moved).items() if number is not None}

    def saved(self, name: str, key, value) -> dict:
        prefix = self._backend.prefixes(self._backend.sid(name))[0]
        return {key.decode(k[len(prefix) :]): value.decode(v) for k, v in self._backend.scan(prefix)}


def test_sizes_are_exact_trees_span_and_of_two_parts_the_smaller_moves(tmp_path):
    rng, played = random.Random(5), Played(tmp_path)
    for step in range(400):
        vertex = rng.randrange(60)
        added = [(vertex, (vertex + rng.choice((1, 2, 7))) % 60) for _ in range(rng.choice((0, 1, 3)))]
        added = [edge for edge in dict.fromkeys(map(tuple, map(sorted, added))) if not played.graph.has_edge(*edge)]
        there = sorted(map(tuple, map(sorted, played.graph.edges)))
        removed = rng.sample(there, min(len(there), rng.choice((0, 1, 1, 4) if step < 300 else (1, 2, 9))))
        before = dict(played.numbers)
        played.update(added, removed)
        parts = list(nx.connected_components(played.graph))
        assert {len({played.numbers[v] for v in part}) for part in parts} <= {1}
        sizes = played.saved("component_sizes", Types.LONG(), Types.LONG())
        sizes.pop(-1)
        assert sizes == {played.numbers[min(part)]: len(part) for part in parts}
        links = played.saved("neighbors", Types.TUPLE([VERTEX, VERTEX]), LINK)
        assert len(links) == 2 * played.graph.number_of_edges()
        assert nx.number_of_edges(tree := nx.Graph(pair for pair, (_, of_tree) in links.items() if of_tree)) == sum(
            len(part) - 1 for part in parts
        )
        assert nx.is_forest(tree) if tree else True
        if not added and len(removed) == 1:
            assert len(played.moved & set(before)) <= max(2, sizes_before(before)[before[removed[0][0]]] // 2)


def sizes_before(numbers: dict[int, int]) -> dict[int, int]:
    return {number: list(numbers.values()).count(number) for number in numbers.values()}


@pytest.mark.parametrize("seed", [1, 2])
def test_a_detour_is_found_near_the_removed_edge_and_a_hub_is_not_read_for_its_leaf(tmp_path, seed):
    rng, played, length = random.Random(seed), Played(tmp_path), 1_000
    rails = [(2 * n + rail, 2 * n + rail + 2) for n in range(length) for rail in (0, 1)]
    ladder = rails + [(2 * n, 2 * n + 1) for n in range(length + 1)]
    rng.shuffle(ladder)
    played.update(ladder)
    reads = []
    for edge in rng.sample(rails, 60):
        played.update(removed=[edge])
        assert not played.moved
        reads.append(played.read)
        played.update(added=[edge])
    assert sum(reads) / len(reads) < 30
    played.update([(10_000, leaf) for leaf in range(20_000, 20_500)])
    played.update(removed=[(10_000, 20_001)])
    assert played.moved == {20_001}
    assert played.read == 1
    clique = [(a, b) for a in range(30_000, 30_020) for b in range(a + 1, 30_020)]
    played.update([*clique, *((n, n + 1) for n in range(30_019, 30_059))])
    played.update(removed=[(30_019, 30_020)])
    assert played.moved == set(range(30_000, 30_020)), "the part with fewer vertices, though it has more edges"

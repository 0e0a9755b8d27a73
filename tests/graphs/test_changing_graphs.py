"""Graphs under random additions and removals have, after every epoch, what networkx computes from scratch."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx
import pytest

import forkpoint as fp
from forkpoint.errors import GraphError, RestoreRefused, TypeNotSupported, UserFunctionError
from forkpoint.graph.options import RestoreOptions
from forkpoint.graphs import Graph
from forkpoint.graphs.entries import Neighbors
from forkpoint.testing import PAUSE, Eof, run_local


class Change(NamedTuple):
    source: int
    target: int
    removed: bool
    value: int = 0


def sums(vertex: int, neighbors: list[Any]) -> tuple[int, int]:
    """The sums of the values of a vertex's outgoing and incoming edges."""
    out, into = (sum(each.value for each in neighbors if each.outgoing is outgoing) for outgoing in (True, False))
    return out, into


RESULTS = ("degree", "component", "color", "triangles", "neighbors", "distance", "hops")


def build(env, changes):
    stream = env.from_source(changes, fp.WatermarkStrategy.no_watermarks(), "in", Change).uid("in")
    graph = Graph.from_edges(stream, removed="removed", value="value", uid="graph")
    results = (graph.degrees(), graph.connected_components(), graph.two_coloring(), graph.triangles())
    unweighted = Graph.from_edges(stream, removed="removed", uid="plain")
    results = (*results, graph.aggregate_neighbors(sums), graph.shortest_paths(0), unweighted.shortest_paths(0))
    return dict(zip(RESULTS, results, strict=True))


def partition(labels: dict[Any, Any]) -> set[frozenset[Any]]:
    members: dict[Any, set[Any]] = {}
    for vertex, label in labels.items():
        members.setdefault(label, set()).add(vertex)
    return set(map(frozenset, members.values()))


def check(edges: dict[tuple[int, int], int], state: dict[str, dict[int, Any]]) -> None:
    directed = nx.DiGraph()
    directed.add_weighted_edges_from((*edge, value) for edge, value in sorted(edges.items()))
    graph = directed.to_undirected()
    present = {vertex: degrees for vertex, degrees in state["degree"].items() if degrees[2]}
    assert present == {v: (directed.in_degree(v), directed.out_degree(v), directed.degree(v)) for v in directed}
    weights = {v: (directed.out_degree(v, "weight"), directed.in_degree(v, "weight")) for v in directed}
    assert {v: sums for v, sums in state["neighbors"].items() if v in directed} == weights
    assert all(sums == (0, 0) for v, sums in state["neighbors"].items() if v not in directed)
    lengths = nx.single_source_dijkstra_path_length(directed, 0) if 0 in directed else {}
    assert {v: n for v, n in state["distance"].items() if n is not None} == {**lengths, 0: 0}
    hops = nx.single_source_shortest_path_length(directed, 0) if 0 in directed else {}
    assert {v: n for v, n in state["hops"].items() if n is not None} == {**hops, 0: 0}
    labels = {vertex: label for vertex, label in state["component"].items() if label is not None}
    assert partition(labels) == set(map(frozenset, nx.connected_components(graph)))
    colors = {vertex: color for vertex, color in state["color"].items() if color is not None}
    assert set(colors) == set(graph)
    for part in nx.connected_components(graph):
        if nx.is_bipartite(graph.subgraph(part)):
            assert all({colors[a], colors[b]} == {0, 1} for a, b in graph.subgraph(part).edges)
        else:
            assert {colors[vertex] for vertex in part} == {-1}
    counts = nx.triangles(nx.Graph((a, b) for a, b in edges if a != b))
    assert {v: n for v, n in state["triangles"].items() if n} == {v: n for v, n in counts.items() if n}


def play(run, epochs: list[list[Change]], edges: dict[tuple[int, int], int], state: dict[str, dict[int, Any]]) -> None:
    """Apply each epoch's results, and check them against the edges."""
    first = min(record.epoch for records in run.records.values() for record in records)
    assert run.epochs >= len(epochs)
    for number, changes in enumerate(epochs, first):
        for change in changes:
            edges.pop((change.source, change.target), None)
            if not change.removed:
                edges[change.source, change.target] = change.value
        for name in RESULTS:
            now = [record.value for record in run.records[name] if record.epoch == number]
            assert len({each.vertex for each in now}) == len(now), "one change of each vertex"
            for each in now:
                new = tuple(each[1:]) if name == "degree" else each[1]
                assert state[name].get(each.vertex) != new or name == "neighbors", "only what has changed"
                state[name][each.vertex] = new
        check(edges, state)


def random_epochs(rng: random.Random, vertices: int, count: int, share_removed: float) -> list[list[Change]]:
    """Additions and removals, some of what is (not) there already, in epochs of very different sizes; the last cuts a graph."""
    there: list[tuple[int, int]] = []
    epochs = []
    for _ in range(count):
        changes = []
        for _ in range(rng.choice((1, 3, 12, 40))):
            if there and rng.random() < share_removed:
                changes.append(Change(*there.pop(rng.randrange(len(there))), True))
            elif rng.random() < 0.05:
                changes.append(Change(rng.randrange(vertices), rng.randrange(vertices), True))
            else:
                # Near neighbors make long paths and cycles, which break in the middle.
                source = rng.randrange(vertices)
                target = (source + rng.choice((1, 1, 2, 0, rng.randrange(vertices)))) % vertices
                there.append((source, target))
                changes.append(Change(source, target, False, rng.randrange(1, 4)))
        epochs.append(changes)
    middle = [edge for edge in set(there) if (edge[0] < vertices // 2) is not (edge[1] < vertices // 2)]
    return [*epochs, [Change(*edge, True) for edge in sorted(middle)] or [Change(0, 1, False)]]


def sections(epochs: list[list[Change]]) -> list[Any]:
    return [each for changes in epochs for each in (*changes, PAUSE)][:-1]


@pytest.mark.parametrize(("seed", "vertices", "removed"), [(1, 12, 0.5), (2, 40, 0.45), (3, 100, 0.4)])
def test_every_epoch_has_what_networkx_computes_also_after_a_restore_with_another_parallelism(tmp_path, seed, vertices, removed):
    rng = random.Random(seed)
    epochs = random_epochs(rng, vertices, 30, removed)
    before, after = epochs[:15], epochs[15:]
    edges: dict[tuple[int, int], int] = {}
    state: dict[str, dict[int, Any]] = {name: {} for name in RESULTS}
    script = [*sections(before), Eof(savepoint=True), *sections(after)]
    first = run_local(build, script, state_root=tmp_path, parallelism=2)
    play(first, before, edges, state)
    second = run_local(build, script, state_root=tmp_path, job_name="again", restore=first.savepoint, parallelism=3)
    play(second, after, edges, state)


def test_edges_are_a_set_and_changed_values_replace_each_other():
    def values(env, changes):
        stream = env.from_source(changes, fp.WatermarkStrategy.no_watermarks(), "in", Change)
        return Graph.from_edges(stream, removed=lambda change: change.removed, value="value").changes()

    add, remove = (lambda a, b, value: Change(a, b, False, value)), (lambda a, b: Change(a, b, True))
    script = [
        add(1, 2, 5),
        add(1, 2, 5),
        PAUSE,
        add(1, 2, 6),
        PAUSE,
        add(1, 2, 6),
        PAUSE,
        remove(2, 1),
        remove(1, 2),
        add(1, 2, 7),
    ]
    script += [PAUSE, add(3, 4, 1), remove(3, 4), PAUSE, remove(1, 2)]
    run = run_local(values, script)
    assert run.output == [(1, 2, False, 5), (1, 2, True, 5), (1, 2, False, 6), (1, 2, True, 6), (1, 2, False, 7), (1, 2, True, 7)]


def test_the_larger_part_keeps_its_number():
    path = [Change(f"v{n}", f"v{n + 1}", False) for n in range(9)]

    def components(env, changes):
        stream = env.from_source(changes, fp.WatermarkStrategy.no_watermarks(), "in", fp.Types.PICKLED_BYTE_ARRAY())
        ends = {"source": lambda e: e.source, "target": lambda e: e.target, "removed": lambda e: e.removed}
        return Graph.from_edges(stream, **ends, vertex_type=str).connected_components()

    run = run_local(
        components,
        [*path, PAUSE, Change("v6", "v7", True), PAUSE, Change("v7", "v6", False), PAUSE, path[8]._replace(removed=True)],
    )
    epochs: dict[int, dict[str, int | None]] = {}
    for record in run.records["output"]:
        epochs.setdefault(record.epoch, {})[record.value.vertex] = record.value.component
    whole, cut, joined, end = epochs.values()
    assert len(whole) == 10
    assert len(set(whole.values())) == 1
    assert set(cut) == set(joined) == {"v7", "v8", "v9"}
    assert not set(cut.values()) & set(whole.values())
    assert set(joined.values()) == set(whole.values())
    assert end == {"v9": None}


def test_fields_of_wrong_types_are_refused():
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([(1, "a")], fp.Types.TUPLE([fp.Types.LONG(), fp.Types.STRING()]))
    with pytest.raises(GraphError, match=r"the source is .* and the target"):
        Graph.from_edges(stream, 0, 1)
    with pytest.raises(GraphError, match=r"removed=0 is not a field of booleans"):
        Graph.from_edges(stream, 0, 0, removed=0)


def test_a_function_of_neighbors_without_values_and_its_error():
    def names(vertex: str, neighbors: list[Any]) -> str:
        if vertex == "d":
            raise LookupError("no d")
        return "".join(each.vertex + (">" if each.outgoing else "<") for each in neighbors)

    def build(env, changes):
        stream = env.from_source(changes, fp.WatermarkStrategy.no_watermarks(), "in", fp.Types.TUPLE([str, str]))
        return Graph.from_edges(stream, 0, 1).aggregate_neighbors(names)

    run = run_local(build, [("a", "b"), ("c", "a"), ("a", "a")])
    assert sorted(run.output) == [("a", "a<a>b>c<"), ("b", "a<"), ("c", "a>")]
    with pytest.raises(
        UserFunctionError, match=r"LookupError: no d \(key 'd', element \[Neighbor\(vertex='a', outgoing=False\)\]"
    ):
        run_local(build, [("a", "d")])


def test_lengths_are_numbers_above_0_and_the_start_is_a_vertex():
    def build(env, changes):
        stream = env.from_source(changes, fp.WatermarkStrategy.no_watermarks(), "in", fp.Types.TUPLE([str, str, float]))
        return Graph.from_edges(stream, 0, 1, value=2).shortest_paths("a")

    add = [("a", "b", 0.25), ("b", "c", 0.5), PAUSE, ("a", "c", 0.125)]
    assert sorted(run_local(build, add).output) == [("a", 0.0), ("b", 0.25), ("c", 0.125), ("c", 0.75)]
    for length in (0.0, -1.0, float("nan")):
        with pytest.raises(UserFunctionError, match=r"the edge from 'a' to 'b' has length .*, but lengths are more than 0"):
            run_local(build, [("a", "b", length)])
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    graph = Graph.from_edges(env.from_collection([("a", "b")], fp.Types.TUPLE([str, str])), 0, 1, value=1)
    with pytest.raises(GraphError, match="edges have values of type STRING; give from_edges"):
        graph.shortest_paths("a")
    with pytest.raises(TypeNotSupported):
        Graph.from_edges(env.from_collection([("a", "b")], fp.Types.TUPLE([str, str])), 0, 1).shortest_paths(7)


def saved_graph(*results: str, start: str = "a", uid: str = "graph"):
    """A job with these results of one graph."""

    def build(env, source):
        of = fp.Types.TUPLE([str, str])
        stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "edges", of).uid("edges")
        graph = Graph.from_edges(stream, 0, 1, uid=uid)
        return {name: graph.shortest_paths(start) if name == "shortest_paths" else getattr(graph, name)() for name in results}

    return build


EDGES = [("a", "b"), ("b", "c"), ("a", "d"), Eof(savepoint=True)]


def test_paths_from_another_start_after_a_restore(tmp_path: Path) -> None:
    saved = run_local(saved_graph("shortest_paths"), EDGES, state_root=tmp_path / "one").savepoint
    changed, more = saved_graph("shortest_paths", start="b"), [*EDGES, ("c", "e"), PAUSE, ("c", "a")]
    after = run_local(changed, more, state_root=tmp_path / "two", restore=saved).outputs["shortest_paths"]
    assert sorted(after[:5], key=str) == [("a", None), ("b", 0), ("c", 1), ("d", None), ("e", 2)]
    assert sorted(after[5:]) == [("a", 2), ("d", 3)]


def test_a_result_cannot_be_added_to_a_graph_that_has_edges(tmp_path: Path) -> None:
    saved = run_local(saved_graph("degrees"), EDGES, state_root=tmp_path / "one").savepoint
    for result in ("connected_components", "two_coloring", "triangles", "shortest_paths"):
        with pytest.raises(RestoreRefused, match=r"'graph-edges' has state from before, which it would not know"):
            run_local(saved_graph("degrees", result), EDGES, state_root=tmp_path / result, restore=saved)
    options = RestoreOptions(savepoint=saved, allow_non_restored=True)  # of the old graph
    more = [*EDGES, ("c", "a"), ("c", "d")]
    after = run_local(saved_graph("degrees", "triangles", uid="new"), more, state_root=tmp_path / "two", restore=options)
    assert sorted(after.outputs["degrees"]) == [("a", 1, 0, 1), ("c", 0, 2, 2), ("d", 1, 0, 1)]


def test_triangles_of_a_vertex_that_gets_many_edges_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    load = Neighbors.load_pairs

    def counted(self, pairs):
        found = list(pairs)
        asked.append(len(found))
        load(self, found)

    monkeypatch.setattr(Neighbors, "load_pairs", counted)

    def build(env, source):
        stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "edges", fp.Types.TUPLE([int, int])).uid("edges")
        return Graph.from_edges(stream, 0, 1).triangles()

    found = run_local(build, [*((0, n) for n in range(1, 200)), (1, 2)]).output
    assert sorted(found) == [(0, 1), (1, 1), (2, 1)]
    assert sum(asked) < 1000  # of 200 edges

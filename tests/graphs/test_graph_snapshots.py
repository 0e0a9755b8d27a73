"""Windows of a graph have what a graph of each window's elements has, wherever epochs and savepoints are."""

from __future__ import annotations

import random
from datetime import timedelta

import networkx as nx
import pytest

import forkpoint as fp
from forkpoint.graphs import Graph
from forkpoint.testing import PAUSE, Eof, run_local

MINUTE = 60_000


class Neighbors(fp.ProcessWindowFunction):
    def process(self, key, context, elements):
        yield context.window().start, key, sorted((e.neighbor, e.outgoing, e.value) for e in elements)


def changes(rng: random.Random) -> list[tuple[int, int, bool, int | None, int]]:
    """(source, target, removed, value, ms): up to a few seconds out of order; removals have no value."""
    found = []
    for number in range(300):
        gone = rng.random() < 0.3
        at = max(0, number * 1000 + rng.randrange(-4000, 4000))
        found.append((rng.randrange(6), rng.randrange(6), gone, None if gone else rng.randrange(9), at))
    return found


def build(env, source):
    of = fp.Types.TUPLE([fp.Types.LONG(), fp.Types.LONG(), fp.Types.BOOLEAN(), fp.Types.PICKLED_BYTE_ARRAY(), fp.Types.LONG()])
    strategy = fp.WatermarkStrategy.for_bounded_out_of_orderness(timedelta(seconds=10))
    stream = env.from_source(source, strategy.with_timestamp_assigner(lambda row, _: row[4]), "in", of).uid("in")
    graph = Graph.from_edges(stream, 0, 1, 2, 3, value_type=int, uid="graph")
    minutes = graph.snapshots(timedelta(minutes=1))
    plain = Graph.from_edges(stream, 0, 1, uid="plain").snapshots(MINUTE)
    return {
        "neighbors": minutes.process(Neighbors(), tuple[int, int, list[tuple[int, bool, int]]]).uid("neighbors"),
        "sums": minutes.agg(start=fp.WindowStart(), degree=fp.Count(), total=fp.Sum("value")).uid("sums"),
        "all": plain.agg(start=fp.WindowStart(), degree=fp.Count()).uid("all"),
    }


@pytest.mark.parametrize("pauses", [0, 0.2])
def test_a_window_has_the_edges_that_its_elements_leave(tmp_path, pauses):
    rng = random.Random(4)
    elements = changes(rng)
    graphs: dict[int, nx.DiGraph] = {}
    added: dict[int, set[tuple[int, int]]] = {}
    for source, target, removed, value, at in elements:
        graph = graphs.setdefault(at // MINUTE * MINUTE, nx.DiGraph())
        added.setdefault(at // MINUTE * MINUTE, set()).add((source, target))
        if not removed:
            graph.add_edge(source, target, value=value)
        elif graph.has_edge(source, target):
            graph.remove_edge(source, target)
    neighbors, degrees = [], []
    for start, graph in graphs.items():
        for vertex in filter(graph.degree, graph):
            out = [(b, True, n) for _, b, n in graph.out_edges(vertex, "value")]
            into = [(a, False, n) for a, _, n in graph.in_edges(vertex, "value")]
            neighbors.append((start, vertex, sorted(out + into)))
        plain = nx.DiGraph(added[start])
        degrees += [(vertex, start, plain.degree(vertex)) for vertex in plain]
    sums = [(vertex, start, len(ends), sum(n for *_, n in ends)) for start, vertex, ends in neighbors]

    script = [each for element in elements for each in ((element, PAUSE) if rng.random() < pauses else (element,))]
    script[150:150] = [Eof(savepoint=True)]
    first = run_local(build, script, state_root=tmp_path, parallelism=2)
    second = run_local(build, script, state_root=tmp_path, job_name="again", restore=first.savepoint)
    found = {name: sorted(record.value for run in (first, second) for record in run.records[name]) for name in second.records}
    assert found == {"neighbors": sorted(neighbors), "sums": sorted(sums), "all": sorted(degrees)}

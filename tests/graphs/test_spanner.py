"""A spanner keeps the distances of a graph up to its stretch, has no short cycles, and does not depend on epochs."""

from __future__ import annotations

import random

import networkx as nx
import pytest

import forkpoint as fp
from forkpoint.errors import GraphError
from forkpoint.graphs import Graph
from forkpoint.testing import PAUSE, Eof, run_local

PAIR = fp.Types.TUPLE([fp.Types.STRING(), fp.Types.STRING()])
STRETCHES = (2, 3, 5)


def build(env, source):
    stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "in", PAIR).uid("in")
    return {str(n): Graph.from_edges(stream, 0, 1, uid=f"g{n}").spanner(n) for n in STRETCHES}


def test_spanners_of_a_growing_graph(tmp_path):
    rng = random.Random(6)
    edges = [(f"v{rng.randrange(60)}", f"v{rng.randrange(60)}") for _ in range(600)]
    epochs = [edges[n : n + 50] for n in range(0, 600, 50)]
    sections = [[each for epoch in half for each in (*epoch, PAUSE)][:-1] for half in (epochs[:6], epochs[6:])]
    script = [*sections[0], Eof(savepoint=True), *sections[1]]
    first = run_local(build, script, state_root=tmp_path)
    second = run_local(build, script, state_root=tmp_path, job_name="again", restore=first.savepoint, parallelism=2)
    at_once = run_local(build, edges)
    for name in map(str, STRETCHES):
        records = [record for run in (first, second) for record in run.records[name]]
        assert sorted(at_once.outputs[name]) == sorted(record.value for record in records)
        spanner = nx.Graph()
        for number, epoch in enumerate(epochs):
            start = (first if number < 6 else second).records["2"][0].epoch - (0 if number < 6 else 6)
            entered = [record.value for record in records if record.epoch == start + number]
            assert set(entered) <= set(epoch)
            spanner.add_edges_from(entered)
            distances = dict(nx.all_pairs_shortest_path_length(spanner, int(name)))
            assert all(source == target or target in distances[source] for source, target in edges[: 50 * (number + 1)])
        assert nx.girth(spanner) > int(name) + 1
    sizes = [len(at_once.outputs[str(n)]) for n in STRETCHES]
    assert len({frozenset(edge) for edge in edges}) > sizes[0] > sizes[1] > sizes[2] > len(spanner)


def test_what_a_spanner_does_not_know_is_refused():
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([("a", "b")], PAIR)
    with pytest.raises(GraphError, match=r"spanner\(stretch=1\): takes a whole number from 2"):
        Graph.from_edges(stream, 0, 1).spanner(1)
    with pytest.raises(GraphError, match=r"spanner\(\) knows additions only; leave out removed="):
        Graph.from_edges(stream, 0, 1, removed=lambda edge: False).spanner()

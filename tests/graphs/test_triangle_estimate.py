"""Estimates of triangles: exact while the sample has all edges, else right on average, and the same after a restore."""

from __future__ import annotations

import random
from statistics import mean, stdev

import networkx as nx
import pytest

import forkpoint as fp
from forkpoint.errors import GraphError
from forkpoint.graphs import Graph
from forkpoint.testing import PAUSE, Eof, run_local

SEEDS = range(40)
SIZE = 50


def random_epochs(rng: random.Random) -> list[list[tuple[int, int, bool]]]:
    """In turn many additions and many removals; some edges in both directions, or from a vertex to itself."""
    there: set[tuple[int, int]] = set()
    epochs = []
    for added, removed in [(40, 10), (200, 0), (20, 80), (90, 10), (60, 60), (0, 80), (150, 5)]:
        epoch = [(rng.randrange(18), rng.randrange(18), False) for _ in range(added)]
        known = sorted(there | {(source, target) for source, target, _ in epoch})
        epoch += [(*edge, True) for edge in rng.sample(known, min(removed, len(known) - 10))]
        there = set(known) - {(source, target) for source, target, goes in epoch if goes}
        epochs.append(epoch)
    return epochs


def test_estimates_under_additions_and_removals(tmp_path):
    epochs = random_epochs(random.Random(3))

    def job(seeds, size=SIZE):
        def build(env, changes):
            of = fp.Types.TUPLE([fp.Types.LONG(), fp.Types.LONG(), fp.Types.BOOLEAN()])
            stream = env.from_source(changes, fp.WatermarkStrategy.no_watermarks(), "in", of).uid("in")
            graphs = {seed: Graph.from_edges(stream, 0, 1, 2, uid=f"g{seed}") for seed in seeds}
            estimates = {str(seed): graph.triangle_estimate(size, seed) for seed, graph in graphs.items()}
            return estimates | {"all": Graph.from_edges(stream, 0, 1, 2, uid="all").triangle_estimate(1000)}

        return build

    def rows(*runs):
        """By output, each epoch's estimate."""
        return {name: [record.value for run in runs for record in run.records[name]] for name in runs[0].records}

    sections = [each for epoch in epochs for each in (*epoch, PAUSE)]
    found = rows(run_local(job(SEEDS), sections, parallelism=2))
    edges: set[tuple[int, int]] = set()
    for number, epoch in enumerate(epochs):
        for source, target, goes in epoch:
            (edges.discard if goes else edges.add)((source, target))
        graph = nx.Graph((a, b) for a, b in edges if a != b)
        exact, count = sum(nx.triangles(graph).values()) / 3, graph.number_of_edges()
        assert found["all"][number] == (exact, count, count)
        estimates = [found[str(seed)][number] for seed in SEEDS]
        assert all(each.edges == count and each.sampled <= min(SIZE, count) for each in estimates)
        values = [each.triangles for each in estimates]
        if number == 0:
            assert set(values) == {exact}
        else:
            assert abs(mean(values) - exact) < 3 * stdev(values) / len(SEEDS) ** 0.5, (number, exact, values)
    middle = sections.index(PAUSE, sections.index(PAUSE, 300)) + 1
    script = [*sections[:middle], Eof(savepoint=True), *sections[middle:]]
    first = run_local(job(SEEDS[:2]), script, state_root=tmp_path, parallelism=3)
    again = run_local(job(SEEDS[:2]), script, state_root=tmp_path, job_name="again", restore=first.savepoint)
    assert rows(first, again) == {name: found[name] for name in ("0", "1", "all")}
    with pytest.raises(
        GraphError, match="'g0-triangle-estimate' has a sample of 50 edges in its state, not of 40; keep the size"
    ):
        run_local(job(SEEDS[:2], 40), script, state_root=tmp_path, job_name="other", restore=first.savepoint)


def test_a_sample_without_room_for_a_triangle_is_refused():
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    graph = Graph.from_edges(env.from_collection([(1, 2)], fp.Types.TUPLE([fp.Types.LONG(), fp.Types.LONG()])), 0, 1)
    with pytest.raises(GraphError, match=r"triangle_estimate\(size=2\)"):
        graph.triangle_estimate(2)

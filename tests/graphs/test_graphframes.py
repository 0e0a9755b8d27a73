"""What GraphFrames computes on a running job's graph, and networkx from the same edges."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from programs import ENVIRONMENT

PROGRAM = str(Path(__file__).with_name("on_graphframes.py"))
JAR = os.environ.get("FORKPOINT_GRAPHFRAMES_JAR")
PACKAGE = f"spark.jars.packages=io.graphframes:graphframes-spark4_2.13:{version('graphframes-py')}"


@pytest.mark.slow  # the jar needs a JVM of its own
def test_graphframes_computes_what_networkx_does_on_the_savepoint_of_a_running_job(tmp_path: Path) -> None:
    rng = random.Random(5)
    pairs = sorted({(rng.randrange(30), rng.randrange(30)) for _ in range(90)})
    edges = {pair: rng.randrange(1, 9) for pair in pairs}
    added = [{"source": a, "target": b, "removed": False, "value": value} for (a, b), value in edges.items()]
    gone = rng.sample(added, 20)
    (tmp_path / "edges").write_text(json.dumps([added, [{**edge, "removed": True} for edge in gone]]))
    for edge in gone:
        del edges[edge["source"], edge["target"]]

    arguments = [str(tmp_path / "edges"), str(tmp_path), f"spark.jars={JAR}" if JAR else PACKAGE]
    done = subprocess.run(
        [sys.executable, PROGRAM, *arguments], capture_output=True, text=True, env=ENVIRONMENT | {"FORKPOINT_ENGINE": "spark"}
    )
    if "unresolved dependency" in done.stderr:
        pytest.skip(
            f"needs the jar of GraphFrames, which no repository here has ({PACKAGE}); FORKPOINT_GRAPHFRAMES_JAR is not set"
        )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)

    graph = nx.DiGraph(edges.keys())
    ranks = np.linalg.matrix_power(np.asarray(nx.google_matrix(graph, alpha=0.85)), 500)[0]
    total = sum(rank for _, rank in found["ranks"])
    assert {v: rank / total for v, rank in found["ranks"]} == pytest.approx(
        dict(zip(graph, ranks.tolist(), strict=True)), abs=1e-6
    )
    parts: dict[int, set[int]] = {}
    for vertex, part in found["parts"]:
        parts.setdefault(part, set()).add(vertex)
    assert sorted(map(sorted, parts.values())) == sorted(map(sorted, nx.strongly_connected_components(graph)))
    lengths = {end: nx.single_target_shortest_path_length(graph, end) for end in (0, 1)}
    assert {(v, int(end)): n for v, end, n in found["distances"]} == {
        (v, end): n for end in lengths for v, n in lengths[end].items()
    }
    # Labels depend on ties, but are vertices of the same component, and there are fewer than vertices.
    labels = dict(found["labels"])
    assert set(labels) == set(graph)
    undirected = graph.to_undirected()
    assert all(nx.has_path(undirected, vertex, label) for vertex, label in labels.items())
    assert len(set(labels.values())) < len(graph)
    both = [(a, b, edges[a, b], edges[b, a]) for a, b in edges if (b, a) in edges]
    assert sorted(map(tuple, found["both"])) == sorted(both)

"""Graphs under changes against recomputation: epochs of 1,000 changed edges on a graph of a million.

    python benchmarks/graphs/changing_edges.py
    python benchmarks/graphs/changing_edges.py --edges 100000 --results components

A job on the local engine, with LMDB and its state root on a disk, loads edges and stops with a savepoint. A job restored from it
runs epochs of additions and removals, half each; the time of an epoch is the median between two commits, so it has reading,
exchange, commit and output. Recomputation has the edges in memory, and only computes; networkx, and rustworkx and SciPy
where they are installed, build their graphs first. Prints a line of JSON for each result and graph.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx
import numpy as np

import forkpoint as fp
from forkpoint.graphs import Graph
from forkpoint.testing import PAUSE, Eof, run_local

RESULTS: dict[str, Callable[[Graph], Any]] = {
    "degrees": Graph.degrees,
    "components": Graph.connected_components,
    "coloring": Graph.two_coloring,
    "triangles": Graph.triangles,
    "paths": lambda graph: graph.shortest_paths(0),
}


class Change(NamedTuple):
    source: int
    target: int
    removed: bool


Edge = tuple[int, int]


def random_edge(rng: random.Random, vertices: int) -> Edge:
    return rng.randrange(vertices), rng.randrange(vertices)


def grid_edge(rng: random.Random, vertices: int) -> Edge:
    """Of a square grid with 71 % of its edges, in which a detour is short but a tree's branches are long."""
    side = int(vertices**0.5)
    vertex = rng.randrange(vertices - side)
    return vertex, vertex + rng.choice((1, side))


def script(rng: random.Random, vertices: int, edges: int, epochs: int, size: int, kind: Callable[..., Edge]) -> tuple[Any, ...]:
    """The edges to begin with, and the epochs' changes."""
    there = dict.fromkeys(kind(rng, vertices) for _ in range(edges))
    while len(there) < edges:
        there[kind(rng, vertices)] = None
    start, pool, known = list(there), list(there), there
    changes: list[list[Change]] = []
    for _ in range(epochs):
        epoch = []
        for _ in range(size // 2):
            index = rng.randrange(len(pool))
            pool[index], pool[-1] = pool[-1], pool[index]
            gone = pool.pop()
            del known[gone]
            epoch.append(Change(*gone, True))
            while (edge := kind(rng, vertices)) in known:
                pass
            known[edge] = None
            pool.append(edge)
            epoch.append(Change(*edge, False))
        changes.append(epoch)
    return start, changes, pool


def timed(what: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    found = what()
    return time.perf_counter() - start, found


def epoch_seconds(result: Callable[[Graph], Any], start: list[Edge], changes: list[list[Change]], root: str) -> dict[str, float]:
    def build(env: Any, source: Any) -> Any:
        stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "in", Change).uid("in")
        return result(Graph.from_edges(stream, removed="removed", uid="graph"))

    sections = [each for epoch in changes for each in (*epoch, PAUSE)]
    head = [*(Change(*edge, False) for edge in start), Eof(savepoint=True)]
    options = {"state_backend": "lmdb"}

    def run(name: str, script: list[Any], restore: str | None = None) -> tuple[float, Any]:
        return timed(
            lambda: run_local(build, script, state_root=root, job_name=name, restore=restore, parallelism=2, options=options)
        )

    load, first = run("load", head)
    run("changes", [*head, *sections], first.savepoint)
    commits = sorted(path.stat().st_mtime for path in Path(root, "jobs", "changes", "checkpoints").glob("*.json"))
    gaps = np.diff(commits)[2:]  # the first ones open the store
    return {"load": load, "epoch": float(np.median(gaps)), "slowest": float(gaps.max())}


def recomputed(name: str, edges: list[Edge]) -> Iterator[tuple[str, float]]:
    """The seconds of recomputation from scratch, by library."""
    array = np.array(edges)
    count = int(array.max()) + 1
    if name == "degrees":
        yield "numpy", timed(lambda: [np.bincount(array[:, end], minlength=count) for end in (0, 1)])[0]
        yield "networkx", timed(lambda: dict(nx.DiGraph(edges).degree()))[0]
    elif name == "components":
        yield "networkx", timed(lambda: list(nx.connected_components(nx.Graph(edges))))[0]
        if find_spec("rustworkx"):
            import rustworkx as rx

            def with_rustworkx() -> Any:
                graph = rx.PyGraph()
                graph.extend_from_edge_list(edges)
                return rx.connected_components(graph)

            yield "rustworkx", timed(with_rustworkx)[0]
        if find_spec("scipy"):
            from scipy.sparse import coo_array
            from scipy.sparse.csgraph import connected_components

            data = np.ones(len(array), np.int8)
            shape = (count, count)
            yield "scipy", timed(lambda: connected_components(coo_array((data, array.T), shape=shape).tocsr(), directed=False))[0]
    elif name == "paths":
        yield "networkx", timed(lambda: nx.single_source_shortest_path_length(nx.DiGraph(edges), 0))[0]
    elif name == "coloring":
        yield "networkx", timed(lambda: nx.is_bipartite(nx.Graph(edges)))[0]
    else:
        yield "networkx", timed(lambda: nx.triangles(nx.Graph(edges)))[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--epochs", type=int, default=33)
    parser.add_argument("--size", type=int, default=1_000, help="changed edges of an epoch")
    parser.add_argument("--results", nargs="+", choices=RESULTS, default=["degrees", "components"])
    parser.add_argument("--graphs", nargs="+", choices=("random", "grid"), default=["random"])
    given = parser.parse_args()
    for shape in given.graphs:
        kind, vertices = (random_edge, given.edges // 2) if shape == "random" else (grid_edge, given.edges * 7 // 10)
        start, changes, end = script(random.Random(1), vertices, given.edges, given.epochs, given.size, kind)
        for name in given.results:
            with tempfile.TemporaryDirectory(dir="/var/tmp") as root:
                seconds = epoch_seconds(RESULTS[name], start, changes, root)
            again = dict(recomputed(name, end))
            figures = {key: round(value, 4) for key, value in (seconds | again).items()}
            print(json.dumps({"graph": shape, "result": name, "edges": given.edges, "changes": given.size} | figures), flush=True)


if __name__ == "__main__":
    main()

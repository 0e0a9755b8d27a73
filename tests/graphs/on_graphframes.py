"""Runs algorithms of GraphFrames on the graph of a running job's savepoint, in a Spark of its own.

    python on_graphframes.py EDGES DIRECTORY SETTING=VALUE

EDGES is a file of lists of changes in JSON. Prints a line of JSON with the results.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

import forkpoint as fp
from forkpoint.api.launch import Launch
from forkpoint.graphs import Graph
from patience import PATIENCE_S


class Change(NamedTuple):
    source: int
    target: int
    removed: bool
    value: int


def results(graph: Any, landmarks: list[int]) -> dict[str, Any]:
    ranks = graph.pageRank(resetProbability=0.15, tol=1e-9).vertices
    parts = graph.stronglyConnectedComponents(maxIter=20)
    distances = graph.shortestPaths(landmarks=landmarks)
    labels = graph.labelPropagation(maxIter=5)
    both = graph.find("(a)-[e]->(b); (b)-[f]->(a)")
    return {
        "ranks": [(row.id, row.pagerank) for row in ranks.collect()],
        "parts": [(row.id, row.component) for row in parts.collect()],
        "distances": [(row.id, landmark, n) for row in distances.collect() for landmark, n in row.distances.items()],
        "labels": [(row.id, row.label) for row in labels.collect()],
        "both": [(row.a.id, row.b.id, row.e.value, row.f.value) for row in both.collect()],
    }


def main() -> None:
    edges, directory, setting = sys.argv[1:]
    name, _, value = setting.partition("=")
    settings = {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false", "spark.log.level": "ERROR", name: value}
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(f"{directory}/state").enable_checkpointing(100).set_parallelism(2)
    incoming = Path(directory, "in")
    incoming.mkdir()
    rows = spark.readStream.schema("source long, target long, removed boolean, value long").json(str(incoming))
    changes = env.from_dataframe(rows, "rows").map(lambda row: Change(*row), Change)
    graph = Graph.from_edges(changes, removed="removed", value="value", uid="graph")
    sink = fp.CollectSink()
    graph.changes().sink_to(sink).uid("out")
    env.launch = Launch(options={"engine": "spark"})
    client = env.execute_async("graph")
    for number, changes in enumerate(json.loads(Path(edges).read_text())):
        (incoming / f".{number}").write_text("".join(f"{json.dumps(change)}\n" for change in changes))
        (incoming / f".{number}").rename(incoming / f"{number}.json")
        count = 0
        while count < len(changes):
            count += len(sink.take())
            time.sleep(0.05)
    savepoint = client.trigger_savepoint().result(PATIENCE_S)
    print(json.dumps(results(Graph.of_savepoint(savepoint, "graph").to_graphframe(spark), [0, 1])))
    assert client.get_job_status().result() is fp.JobStatus.RUNNING
    client.cancel().result(PATIENCE_S)


if __name__ == "__main__":
    main()

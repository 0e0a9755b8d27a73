"""A saved graph in networkx, and in Spark's DataFrames."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

import forkpoint as fp
from forkpoint.errors import ConfigError
from forkpoint.graphs import Graph
from forkpoint.testing import Eof, run_local


class Payment(NamedTuple):
    payer: str
    payee: str
    amount: int
    returned: bool = False


PAYMENTS = [
    Payment("a", "b", 1),
    Payment("b", "c", 2),
    Payment("c", "a", 3),
    Payment("c", "d", 4),
    Payment("a", "b", 7),
    Payment("c", "d", 4, returned=True),
    Eof(savepoint=True),
]
EDGES = [("a", "b", 7), ("b", "c", 2), ("c", "a", 3)]


def saved(state_root: Path, value: str | None) -> str:
    def build(env, source):
        stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "in", Payment).uid("in")
        return Graph.from_edges(stream, "payer", "payee", "returned", value, uid="payments").degrees()

    savepoint = run_local(build, PAYMENTS, state_root=state_root).savepoint
    assert savepoint is not None
    return savepoint


def test_a_saved_graph_in_networkx(tmp_path: Path) -> None:
    graph = Graph.of_savepoint(saved(tmp_path, "amount"), "payments").to_networkx()
    assert sorted(graph.edges.data("value")) == EDGES
    plain = Graph.of_savepoint(saved(tmp_path / "plain", None), "payments").to_networkx()
    assert sorted(plain.edges.data()) == [(source, target, {"value": True}) for source, target, _ in EDGES]


@pytest.mark.spark
def test_a_saved_graph_in_dataframes(session: SparkSession, tmp_path: Path) -> None:
    graph = Graph.of_savepoint(saved(tmp_path, "amount"), "payments")
    vertices, edges = graph.to_spark(session)
    assert sorted(row.id for row in vertices.collect()) == ["a", "b", "c"]
    assert sorted((row.src, row.dst, row.value) for row in edges.collect()) == EDGES
    jar = "io.graphframes:graphframes-spark4_2.13:"
    with pytest.raises(ConfigError, match=f"this Spark session has not; start Spark with the setting spark.jars.packages={jar}"):
        graph.to_graphframe(session)

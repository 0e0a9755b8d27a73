"""Queries on Spark: the same answer, whatever the tasks and epochs, and of DataFrames."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession
from sql_results import Order, answered, folded

import forkpoint as fp
from forkpoint.graph.compile import compile_graph
from forkpoint.graph.specs import DataFrameSpec

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("session")]


def test_a_query_over_a_subquery_on_spark() -> None:
    rows = [Order(f"key {i % 17}", i % 5 or None, i, i / 4) for i in range(500)]
    query = "SELECT n, COUNT(*), SUM(s) FROM (SELECT k, g, COUNT(*) AS n, SUM(v) AS s FROM orders GROUP BY k, g) AS t GROUP BY n"
    assert folded(query, rows, epoch_rows=200, parallelism=2, engine="spark") == answered(query, rows)


def test_of_a_streaming_dataframe_only_the_columns_in_use_are_read(tmp_path: Path) -> None:
    spark = cast(SparkSession, SparkSession.getActiveSession())
    (tmp_path / "a.json").write_text("".join(json.dumps({"k": "ab"[n % 2], "v w": n, "x": n}) + "\n" for n in range(20)))
    frame = spark.readStream.schema("k STRING, `v w` LONG, x LONG").json(str(tmp_path))
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "spark"})
    tables = fp.StreamTableEnvironment.create(env)
    tables.create_temporary_view("t", env.from_dataframe(frame, "frame"))
    with tables.execute_sql("SELECT k, `v w` AS v FROM t WHERE `v w` > 9").collect() as found:
        assert sorted(tuple(row) for row in islice(found, 10)) == sorted(("ab"[n % 2], n) for n in range(10, 20))
    stream = tables.to_data_stream(tables.sql_query("SELECT k, `v w` AS v FROM t"))
    stream.sink_to(fp.DiscardSink()).uid("nowhere")
    graph = compile_graph(env.transformations, max_parallelism=128, require_uids=False).graph
    (source,) = graph.frame_sources
    assert isinstance(source.spec, DataFrameSpec)
    assert source.spec.frame.columns == ["k", "v w"]

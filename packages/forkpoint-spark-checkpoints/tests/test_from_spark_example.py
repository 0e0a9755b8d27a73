"""The tutorial: a query runs on Spark for some batches, a program of forkpoint does the rest. Nothing twice, nothing lost."""

from __future__ import annotations

import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import forkpoint as fp
from forkpoint.api.launch import Launch
from forkpoint.graph.options import RestoreOptions
from forkpoint_spark_checkpoints.importer import import_spark_checkpoint
from forkpoint_spark_checkpoints.shapes import ImportedOperator, ImportedState
from patience import PATIENCE_S

pytestmark = pytest.mark.spark

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "from_spark"


def rows(directory: Path) -> list[tuple[Any, ...]]:
    files = sorted(file for file in directory.glob("**/*.parquet") if not file.name.startswith("."))
    tables = [pq.read_table(file, partitioning=None) for file in files]
    return [tuple(row.values()) for table in tables for row in table.to_pylist()]


def test_a_query_moves_over(session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))  # workers get the modules from there, too
    example, program = import_module("bids_spark"), import_module("bids")
    bids, spark_out, out = (tmp_path / name for name in ("bids", "spark", "out"))
    example.write_bids(bids, 0, 4)
    example.run(session, str(bids), str(spark_out), str(tmp_path / "checkpoint"))
    before = rows(spark_out)
    assert before  # some windows were closed by Spark

    imported = import_spark_checkpoint(
        tmp_path / "checkpoint",
        tmp_path / "savepoint",
        job="bids",
        sources="bids",
        spark=session,
        operators={
            0: ImportedOperator(
                "counts",
                window=fp.TumblingEventTimeWindows.of(60_000),
                states={"state": ImportedState(value="struct(count AS bids, max AS highest)")},
            )
        },
    )
    assert imported.remarks == []

    example.write_bids(bids, 5, 9)
    env = fp.StreamExecutionEnvironment()
    env.set_parallelism(2).enable_checkpointing(100)
    stream = program.counts(env, example.read(session, str(bids)))
    stream.sink_to(fp.FileSink.parquet(out)).uid("out")
    launch = Launch(
        options={"engine": "spark"},
        state_root=str(tmp_path / "state"),
        restore=RestoreOptions(savepoint=imported.savepoint.path),
    )
    env.launch = launch
    client = env.execute_async("bids")
    # The last file is the one that closes minute 2.
    while not any(row[1] % 3_600_000 == 120_000 for row in rows(out)):
        time.sleep(0.1)
    client.stop_with_savepoint(advance_to_end_of_event_time=True).result(PATIENCE_S)
    client.get_job_execution_result().result(PATIENCE_S)

    frame = session.read.schema(example.SCHEMA).json(str(bids))
    uninterrupted = [tuple(row) for row in example.counts(frame).collect()]
    assert sorted(before + rows(out)) == sorted(uninterrupted)

"""Spark's own ways to keep a running count and sum by key, the reference figures; one scenario per process.

    python benchmarks/spark_reference.py transform_with_state_500k

Each reads the Parquet bids as a file stream in epochs of a fixed number of files, emits in update mode to the noop
sink and keeps its state in RocksDB with changelog checkpoints. Settings that make epochs cheaper are on
(see `session`). The time of an epoch is Spark's own `batchDuration`. After the query has ended,
the state is read back through the state data source and compared with the expected totals, key by key.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from column_jobs import GAP, SLIDE, WINDOW, check_windows
from data import DISORDER_MS, HOME, check_totals, stage_input
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from scenarios import CORES, SPARK_SCENARIOS, Measurement, Scenario, use_cores

BIDS = "key bigint, amount bigint, ts bigint"
TOTALS = "key bigint, count bigint, sum bigint"
STATE = "count bigint, sum bigint"
STREAMING = "org.apache.spark.sql.execution.streaming"  # the Java package


def session(scratch: Path, cores: int = CORES, more: Mapping[str, str] | None = None) -> SparkSession:
    """Spark as these jobs run best on it. ``more``: further settings."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.driver.memory": "3g",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.streaming.stateStore.providerClass": f"{STREAMING}.state.RocksDBStateStoreProvider",
        # Cheaper epochs than with the defaults: state is committed as a changelog instead of a snapshot, log files
        # are written without forking a process for each, Python workers are reached without TCP.
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.checkpointFileManagerClass": (f"{STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"),
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        **(more or {}),
    }
    spark = SparkSession.builder.master(f"local[{cores}]").appName("benchmark").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


class RunningTotals(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._totals = handle.getValueState("totals", STATE)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        count, total = self._totals.get() or (0, 0)
        for row in rows:
            count += 1
            total += row.amount
        self._totals.update((count, total))
        yield Row(key=key[0], count=count, sum=total)

    def close(self) -> None:
        pass


class RunningTotalsByElement(RunningTotals):
    """Element by element, as in forkpoint's KeyedProcessFunction: state is read and written for each."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            totals = self._totals.get()
            count, total = (totals[0] + 1, totals[1] + row.amount) if totals else (1, row.amount)
            self._totals.update((count, total))
            yield Row(key=key[0], count=count, sum=total)


def running_totals_in_pandas(key: tuple[int], frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    count, total = state.get if state.exists else (0, 0)
    for frame in frames:
        count += len(frame)
        total += int(frame["amount"].sum())
    state.update((count, total))
    yield pd.DataFrame({"key": [key[0]], "count": [count], "sum": [total]})


def transform_with_state(bids: DataFrame) -> DataFrame:
    return bids.groupBy("key").transformWithState(RunningTotals(), TOTALS, "Update", "None")


def transform_with_state_by_element(bids: DataFrame) -> DataFrame:
    return bids.groupBy("key").transformWithState(RunningTotalsByElement(), TOTALS, "Update", "None")


def apply_in_pandas(bids: DataFrame) -> DataFrame:
    return bids.groupBy("key").applyInPandasWithState(
        running_totals_in_pandas, TOTALS, STATE, "update", GroupStateTimeout.NoTimeout
    )


def jvm_aggregate(bids: DataFrame) -> DataFrame:
    return bids.groupBy("key").agg(sf.count("*").alias("count"), sf.sum("amount").alias("sum"))


def seconds(time: timedelta) -> str:
    return f"{time.total_seconds():.0f} seconds"


def counted(bids: DataFrame, window: Column) -> DataFrame:
    timed = bids.withColumn("time", sf.timestamp_millis("ts")).withWatermark("time", f"{DISORDER_MS} milliseconds")
    return timed.groupBy("key", window).agg(sf.count("*").alias("count"), sf.sum("amount").alias("sum"))


def jvm_tumbling(bids: DataFrame) -> DataFrame:
    return counted(bids, sf.window("time", seconds(WINDOW)))


def jvm_sliding(bids: DataFrame) -> DataFrame:
    return counted(bids, sf.window("time", seconds(WINDOW), seconds(SLIDE)))


def jvm_session(bids: DataFrame) -> DataFrame:
    return counted(bids, sf.session_window("time", seconds(GAP)))


@dataclass(frozen=True)
class Kind:
    """One implementation: the query, and where the state data source shows its key, count and sum.

    ``windows``: the windows of benchmarks/column_jobs.py, and where state shows their start; results are then
    emitted once, when a window closes.
    """

    query: Callable[[DataFrame], DataFrame]
    columns: tuple[str, str, str]
    options: dict[str, str] = field(default_factory=dict)
    windows: tuple[str, str] | None = None


KINDS = {
    "transform_with_state": Kind(transform_with_state, ("key.key", "value.count", "value.sum"), {"stateVarName": "totals"}),
    "transform_with_state_by_element": Kind(
        transform_with_state_by_element, ("key.key", "value.count", "value.sum"), {"stateVarName": "totals"}
    ),
    "apply_in_pandas": Kind(apply_in_pandas, ("key.key", "value.groupState.count", "value.groupState.sum")),
    "jvm_aggregate": Kind(jvm_aggregate, ("key.key", "value.count", "value.sum")),
    "jvm_tumbling": Kind(jvm_tumbling, ("key.key", "value.count", "value.sum"), windows=("tumbling", "key.window.start")),
    "jvm_sliding": Kind(jvm_sliding, ("key.key", "value.count", "value.sum"), windows=("sliding", "key.window.start")),
    "jvm_session": Kind(jvm_session, ("key.key", "value.count", "value.sum"), windows=("session", "key.sessionStartTime")),
}


def state_totals(spark: SparkSession, checkpoint: Path, kind: Kind) -> pa.Table:
    state = spark.read.format("statestore").options(**kind.options).load(str(checkpoint))
    return state.select(*map(sf.col, kind.columns)).toDF("key", "count", "sum").toArrow()


def check(spark: SparkSession, checkpoint: Path, kind: Kind, source: Path) -> None:
    """Compare the state with the expected one."""
    if kind.windows is None:
        check_totals(state_totals(spark, checkpoint, kind), source)
        return
    windows, start = kind.windows
    key, *values = map(sf.col, kind.columns)
    state = spark.read.format("statestore").load(str(checkpoint))
    found = state.select(key, sf.unix_millis(sf.col(start)), *values).toDF("key", "start", "count", "sum")
    check_windows(found.toArrow(), source, windows)


def run(scenario: Scenario, scratch: Path) -> Measurement:
    kind = KINDS[scenario.kind]
    source, checkpoint = scratch / "input", scratch / "checkpoint"
    files_per_epoch = stage_input(scenario.rows_per_epoch, scenario.epochs, source)
    spark = session(scratch)
    bids = spark.readStream.schema(BIDS).option("maxFilesPerTrigger", files_per_epoch).parquet(str(source))
    writer = kind.query(bids).writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = writer.start(format="noop", outputMode="update" if kind.windows is None else "append")
    query.awaitTermination()
    epochs = [(done.numInputRows, done.batchDuration / 1000) for done in query.recentProgress if done.numInputRows]
    if [rows for rows, _ in epochs] != [scenario.rows_per_epoch] * scenario.epochs:
        raise AssertionError(f"expected {scenario.epochs} epochs of {scenario.rows_per_epoch} rows, got {epochs}")
    check(spark, checkpoint, kind, source)
    spark.stop()
    return Measurement.of_epochs(epochs, scenario.warm_up)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", choices=SPARK_SCENARIOS)
    parser.add_argument("--rows-per-epoch", type=int, help="instead of the scenario's own number")
    parser.add_argument("--epochs", type=int, help="instead of the scenario's own number")
    arguments = parser.parse_args()
    stated = SPARK_SCENARIOS[arguments.scenario]
    scenario = dataclasses.replace(
        stated,
        rows_per_epoch=arguments.rows_per_epoch or stated.rows_per_epoch,
        epochs=arguments.epochs or stated.epochs,
    )
    use_cores()
    HOME.mkdir(exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="spark-", dir=HOME))
    try:
        print(run(scenario, scratch).to_json())
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()

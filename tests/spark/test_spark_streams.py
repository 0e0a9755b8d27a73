from __future__ import annotations

import itertools
import json
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from spark_runs import StartRun, context, frame_operator, graph_of

from forkpoint.checkpoint.manifest import SourcePosition
from forkpoint.errors import ConfigError, RestoreRefused
from forkpoint.spark.session import settings
from forkpoint.spark.streams import StreamingSources
from patience import PATIENCE_S

pytestmark = pytest.mark.spark

seconds = itertools.count(1_700_000_000)
Positions = dict[str, SourcePosition]


def files(session: SparkSession, directory: Path) -> DataFrame:
    return session.readStream.schema("n long").option("maxFilesPerTrigger", 1).json(str(directory))


def rate(session: SparkSession) -> DataFrame:
    options = {"rowsPerBatch": 5, "numPartitions": 2, "startTimestamp": 0, "advanceMillisPerBatch": 1000}
    return session.readStream.format("rate-micro-batch").options(**options).load()


def write(directory: Path, name: str, *numbers: int) -> None:
    directory.mkdir(exist_ok=True)
    (directory / f".{name}").write_text("".join(json.dumps({"n": n}) + "\n" for n in numbers))
    # Spark takes files in order of modification time.
    os.utime(directory / f".{name}", times=(next(seconds), next(seconds)))
    (directory / f".{name}").rename(directory / name)


class Run:
    """Runs epochs over streams until a number of batches was taken; keeps what came and the positions after each."""

    def __init__(self, start_run: StartRun, frames: Mapping[str, tuple[int, DataFrame]], positions: Positions) -> None:
        operators = [frame_operator(operator, uid, frame) for uid, (operator, frame) in frames.items()]
        self.executor = start_run(stages=1, parallelism=2, operators=operators)
        self.by_operator = {operator: uid for uid, (operator, _) in frames.items()}
        self.values: dict[str, list[int]] = {uid: [] for uid in frames}
        self.positions: list[Positions] = []
        self.enough = threading.Event()
        self.batches = 0
        self.streams: StreamingSources = self.executor.start_streams(graph_of(1, operators), positions, self.on_batch)

    def on_batch(self, frame: Any, positions: Mapping[str, SourcePosition]) -> None:
        for blob in self.executor.run_epoch(context(len(self.positions) + 1), [], frame):
            for text in json.loads(blob)["got"]:
                operator, row = json.loads(text)
                self.values[self.by_operator[operator]].append(row["n"] if "n" in row else row["value"])
        self.positions.append(dict(positions))
        if self.batches and len(self.positions) >= self.batches:
            self.streams.stop()
            self.enough.set()

    def until(self, batches: int) -> Positions:
        self.batches = batches
        assert self.enough.wait(PATIENCE_S), f"{len(self.positions)} batches only; {self.streams.failure()}"
        wait(self.streams)
        assert self.streams.failure() is None
        assert len(self.positions) == batches
        return self.positions[-1]


def wait(streams: StreamingSources) -> None:
    """Waits for the query's end; `failure` tells why."""
    with suppress(StreamingQueryException):
        streams._query.awaitTermination()  # type: ignore[union-attr]


def stored(positions: Positions) -> Positions:
    """What a manifest would give back."""
    return {uid: SourcePosition.from_content(json.loads(json.dumps(p.content()))) for uid, p in positions.items()}


def test_sources_go_on_exactly_where_they_were_reordered_and_with_one_more(
    start_run: StartRun, session: SparkSession, tmp_path: Path
) -> None:
    for i in range(14):
        write(tmp_path / "a", f"{i:02}.json", 10 * i, 10 * i + 1)
    first = Run(start_run, {"a": (1, files(session, tmp_path / "a")), "r": (2, rate(session))}, {})
    positions = stored(first.until(12))  # past the file source's first compaction, at 10 files

    assert [json.loads(p["a"].spark_offset or "") for p in first.positions] == [{"logOffset": i} for i in range(12)]
    assert set(positions["a"].spark_log) == {"9.compact", "10", "11"}
    write(tmp_path / "b", "0.json", 7)
    frames = {
        "b": (5, files(session, tmp_path / "b")),
        "r": (6, rate(session)),
        "a": (7, files(session, tmp_path / "a")),
    }
    second = Run(start_run, frames, positions)
    write(tmp_path / "a", "99.json", 1000)
    second.until(6)

    assert first.values["a"] == [n for i in range(12) for n in (10 * i, 10 * i + 1)]
    assert second.values["a"] == [120, 121, 130, 131, 1000]
    assert second.values["b"] == [7]
    rates = first.values["r"] + second.values["r"]
    assert sorted(rates) == list(range(len(rates)))
    assert len(rates) == 5 * 18


def test_any_earlier_position_can_be_gone_back_to(start_run: StartRun, session: SparkSession, tmp_path: Path) -> None:
    for i in range(4):
        write(tmp_path / "a", f"{i}.json", i)
    first = Run(start_run, {"a": (1, files(session, tmp_path / "a"))}, {})
    first.until(4)
    again = Run(start_run, {"a": (1, files(session, tmp_path / "a"))}, stored(first.positions[1]))
    again.until(2)
    assert again.values["a"] == [2, 3]


def test_what_on_batch_raises_ends_the_query_and_is_kept_as_it_was(start_run: StartRun, session: SparkSession) -> None:
    operators = [frame_operator(1, "r", rate(session))]
    executor = start_run(operators=operators)
    error = RestoreRefused("no")

    def on_batch(frame: Any, positions: Mapping[str, SourcePosition]) -> None:
        raise error

    streams = executor.start_streams(graph_of(1, operators), {}, on_batch)
    wait(streams)
    assert streams.failure() is error
    streams.stop()


def test_a_source_that_fails_is_sparks_failure(start_run: StartRun, session: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "a", "0.json", 1)
    frame = files(session, tmp_path / "a").select(f.raise_error(f.lit("broken")).cast("long").alias("n"))
    operators = [frame_operator(1, "a", frame)]
    executor = start_run(operators=operators)
    streams = executor.start_streams(
        graph_of(1, operators), {}, lambda frame, positions: executor.run_epoch(context(1), [], frame) and None
    )
    wait(streams)
    assert "broken" in str(streams.failure())
    streams.stop()


def test_stop_waits_for_the_batch_and_no_other_begins(start_run: StartRun, session: SparkSession) -> None:
    operators = [frame_operator(1, "r", rate(session))]
    executor = start_run(operators=operators)
    begun, go_on = threading.Event(), threading.Event()
    seen: list[str] = []

    def on_batch(frame: Any, positions: Mapping[str, SourcePosition]) -> None:
        seen.append("begin")
        begun.set()
        assert go_on.wait(PATIENCE_S)
        executor.run_epoch(context(1), [], frame)
        seen.append("end")

    streams = executor.start_streams(graph_of(1, operators), {}, on_batch)
    assert begun.wait(PATIENCE_S)
    stopper = threading.Thread(target=streams.stop)
    stopper.start()
    stopper.join(0.5)
    assert stopper.is_alive()
    go_on.set()
    stopper.join()
    assert not stopper.is_alive()
    assert not streams._query.isActive  # type: ignore[union-attr]
    assert seen == ["begin", "end"]
    assert streams.failure() is None


def test_the_sessions_settings_are_given_back(start_run: StartRun, session: SparkSession) -> None:
    session.conf.set("spark.sql.adaptive.enabled", "true")
    session.conf.set("spark.sql.streaming.minBatchesToRetain", "77")
    try:
        Run(start_run, {"r": (1, rate(session))}, {}).until(1)
        assert session.conf.get("spark.sql.adaptive.enabled") == "true"
        assert session.conf.get("spark.sql.streaming.minBatchesToRetain") == "77"
    finally:
        session.conf.set("spark.sql.adaptive.enabled", "false")
        session.conf.set("spark.sql.streaming.minBatchesToRetain", "10")


def test_frames_that_a_savepoint_could_not_hold_are_refused(start_run: StartRun, session: SparkSession) -> None:
    executor = start_run()

    def start(*frames: DataFrame, position: SourcePosition | None = None) -> None:
        operators = [frame_operator(i, f"u{i}", frame) for i, frame in enumerate(frames)]
        executor.start_streams(graph_of(1, operators), {"u0": position} if position else {}, lambda *_: None)

    one = rate(session)
    with pytest.raises(ConfigError, match=r"'u0'.*keeps state in Spark \(Deduplicate\)"):
        start(one.dropDuplicates(["value"]))
    with pytest.raises(ConfigError, match=r"'u0'.*keeps state in Spark \(Aggregate\)"):
        start(one.groupBy("value").count())
    with pytest.raises(ConfigError, match="'u0' reads 2 streams"):
        start(one.union(rate(session)))
    with pytest.raises(ConfigError, match="'u0' and 'u1' share one"):
        start(one, one.select("value"))
    with pytest.raises(ConfigError, match="'u0' is a batch DataFrame"):
        start(session.range(3))
    with pytest.raises(RestoreRefused, match=r"'u0'.*kind 'native'"):
        start(one, position=SourcePosition(kind="native", position=3))


def test_a_static_side_of_a_join_is_no_stream(start_run: StartRun, session: SparkSession) -> None:
    joined = rate(session).join(session.range(0, 10).withColumnRenamed("id", "value"), "value")
    run = Run(start_run, {"j": (1, joined)}, {})
    run.until(3)
    assert sorted(run.values["j"]) == list(range(10))


def test_failed_queries_keep_their_type(start_run: StartRun, session: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    write(tmp_path / "a", "0.json", 1)
    operators = [frame_operator(1, "a", files(session, tmp_path / "a"))]
    executor = start_run(operators=operators)
    position = SourcePosition(kind="spark", spark_offset='{"logOffset":0', spark_log={})
    streams = executor.start_streams(graph_of(1, operators), {"a": position}, lambda *_: None)
    wait(streams)
    assert isinstance(streams.failure(), StreamingQueryException)
    streams.stop()


@pytest.mark.slow
def test_a_query_of_spark_with_state_in_rocksdb_runs_beside(session: SparkSession, start_run: StartRun, tmp_path: Path) -> None:
    write(tmp_path / "in", "0.json", 1, 2, 3)
    ours = Run(start_run, {"numbers": (0, files(session, tmp_path / "in"))}, {})
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    with settings(session, {"spark.sql.streaming.stateStore.providerClass": provider}):
        counted = files(session, tmp_path / "in").groupBy((f.col("n") % 2).alias("odd")).count()
        for checkpoint in (1, 2):  # the second goes on from the first's state
            write(tmp_path / "in", f"{checkpoint}.json", checkpoint, 4)
            writer = counted.writeStream.outputMode("complete").format("memory").queryName(f"counts{checkpoint}")
            query = writer.option("checkpointLocation", str(tmp_path / "query")).trigger(availableNow=True).start()
            query.awaitTermination()
    assert sorted(map(tuple, session.table("counts2").collect())) == [(0, 4), (1, 3)]
    ours.batches = 4
    write(tmp_path / "in", "3.json", 5)
    ours.until(4)
    assert sorted(ours.values["numbers"]) == [1, 1, 2, 2, 3, 4, 4, 5]

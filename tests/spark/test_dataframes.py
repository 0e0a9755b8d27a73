"""DataFrames in and out, through the whole engine: Spark's sources, any of Spark's writers, savepoints in between."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import forkpoint as fp
from forkpoint.api.launch import Launch
from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.driver.commit import garbage
from forkpoint.graph.options import RestoreOptions
from forkpoint.savepoint.format import source_logs
from forkpoint.savepoint.format.opened_savepoint import open_savepoint
from forkpoint.storage.base import LocalStorage
from patience import PATIENCE_S

pytestmark = pytest.mark.spark


class SumWithTimer(fp.KeyedProcessFunction):
    """Emits (key, running sum, timestamp), and (key, -1, time) half a second of event time after each element."""

    total = fp.ValueStateDescriptor("total", int, 0)

    def process_element(self, e: Any, ctx: fp.KeyedProcessFunction.Context) -> Iterator[tuple[int, int, int]]:
        self.total.update((self.total.value() or 0) + e.v)
        stamp = ctx.timestamp()
        assert stamp is not None
        ctx.timer_service().register_event_time_timer(stamp + 500)
        yield e.k, self.total.value() or 0, stamp

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[tuple[int, int, int]]:
        yield ctx.get_current_key(), -1, timestamp


class Job:
    def __init__(self, spark: SparkSession, directory: Path, root: Path) -> None:
        self.spark = spark
        self.directory = directory
        self.root = root
        self.seen: list[tuple[int, tuple[int, int, int]]] = []
        directory.mkdir()

    def write(self, number: int) -> None:
        rows = [json.dumps({"k": i % 3, "v": number * 10 + i, "ts": number * 1000 + i}) for i in range(10)]
        hidden = self.directory / f".{number}"
        hidden.write_text("\n".join(rows) + "\n")
        hidden.rename(self.directory / f"{number}.json")

    def start(self, parallelism: int, savepoint: str | None = None) -> fp.JobClient:
        env = fp.StreamExecutionEnvironment.get_execution_environment()
        env.set_state_root(str(self.root)).enable_checkpointing(100).set_parallelism(parallelism)
        frame = self.spark.readStream.schema("k long, v long, ts long").json(str(self.directory))
        strategy = fp.WatermarkStrategy.for_monotonous_timestamps()
        rows = env.from_dataframe(frame, uid="rows", timestamp="ts", watermark_strategy=strategy)
        sums = rows.key_by("k").process(SumWithTimer(), output_type=tuple[int, int, int]).uid("sum")
        sums.for_each_epoch(self.collect).uid("out")
        env.launch = Launch(options={"engine": "spark"}, restore=RestoreOptions(savepoint=savepoint))
        return env.execute_async("frames")

    def collect(self, frame: Any, epoch: int) -> None:
        self.seen.extend((epoch, tuple(row)) for row in frame.collect())

    def sums(self) -> list[tuple[int, int, int]]:
        return [row for _, row in self.seen if row[1] >= 0]


def wait_for(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.05)


def test_a_streaming_dataframe_goes_on_from_a_savepoint_at_another_parallelism(session: SparkSession, tmp_path: Path) -> None:
    job = Job(session, tmp_path / "in", tmp_path / "state")
    for number in range(3):
        job.write(number)
    client = job.start(parallelism=2)
    wait_for(lambda: len(job.sums()) == 30)
    job.write(3)
    wait_for(lambda: len(job.sums()) == 40)
    savepoint = client.stop_with_savepoint().result(PATIENCE_S)
    client.get_job_execution_result().result(PATIENCE_S)
    job.write(4)
    client = job.start(3, savepoint)
    wait_for(lambda: len(job.sums()) == 50)
    client.stop_with_savepoint(advance_to_end_of_event_time=True).result(PATIENCE_S)
    client.get_job_execution_result().result(PATIENCE_S)

    expected = {k: sum(n * 10 + i for n in range(5) for i in range(10) if i % 3 == k) for k in range(3)}
    assert {k: max(row[1] for row in job.sums() if row[0] == k) for k in range(3)} == expected
    fired = sorted(row[2] for _, row in job.seen if row[1] == -1)
    assert fired == sorted(n * 1000 + i + 500 for n in range(5) for i in range(10))


def test_a_batch_dataframe_runs_to_its_end_and_a_spark_writer_takes_the_result(session: SparkSession, tmp_path: Path) -> None:
    frame = session.range(1000).selectExpr("id % 7 as k", "id as v")
    env = fp.StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    sums = env.from_dataframe(frame, uid="rows").key_by("k").sum("v").uid("sum")
    out = str(tmp_path / "out")
    sums.sink_to(fp.DataFrameSink(lambda writer: writer.parquet(out))).uid("out")
    env.launch = Launch(options={"engine": "spark"})
    env.execute("batch")
    result = {row.k: row.v for row in session.read.parquet(out).groupBy("k").agg({"v": "max"}).toDF("k", "v").collect()}
    assert result == {k: sum(range(k, 1000, 7)) for k in range(7)}


@pytest.mark.slow
def test_the_log_of_a_file_source_is_beside_the_manifests(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names every file ever read, so in each manifest it would grow with the job's life. A savepoint has all of it."""
    monkeypatch.setattr(source_logs, "INLINE_BYTES", 0)
    monkeypatch.setattr(garbage, "EVERY_EPOCHS", 5)
    source, read = tmp_path / "in", 14  # past the first compaction, at ten files
    source.mkdir()

    def job(until: int, restore: str | None) -> tuple[list[int], str | None]:
        for number in range(until - read, until):
            (source / f"{number:02}.json").write_text(f'{{"n": {number}}}\n')
        frame = session.readStream.schema("n long").option("maxFilesPerTrigger", 1).json(str(source))
        env = fp.StreamExecutionEnvironment.get_execution_environment().set_state_root(str(tmp_path / "state"))
        env.enable_checkpointing(20).set_parallelism(2)
        sink = fp.CollectSink()
        numbers = env.from_dataframe(frame, "in").map(lambda row: row[0], int)
        numbers.key_by(lambda n: n % 3, int).map_with_state(lambda n, c: (n, (c or 0) + 1), int).uid("c").sink_to(sink).uid("out")
        env.launch = Launch(options={"engine": "spark"}, restore=RestoreOptions(savepoint=restore))
        client = env.execute_async("logs")
        seen: list[int] = []
        while len(seen) < read:
            seen.extend(sink.take())
        if restore is None:
            savepoint = client.stop_with_savepoint().result(PATIENCE_S)
            client.get_job_execution_result().result(PATIENCE_S)  # before its end, the next run publishes the last epoch again
            return sorted(seen), savepoint
        client.cancel().result(PATIENCE_S)
        return sorted(seen), None

    seen, path = job(read, None)
    assert seen == list(range(read))
    history = History(LocalStorage(str(tmp_path / "state")), JobPaths("logs"))
    newest = history.newest()
    assert newest is not None
    assert (newest.sources["in"].spark_log, "9.compact" in newest.sources["in"].spark_log_files) == ({}, True)
    named = {log.path for log in newest.sources["in"].spark_log_files.values()}
    kept = set(history.storage.list(f"{history.paths.directory}/sources"))
    assert named <= kept
    assert path is not None
    saved = open_savepoint(path).savepoint.sources["in"]
    assert {"9.compact", "10", "13"} <= saved.spark_log.keys()
    assert saved.spark_log_files == {}
    assert job(2 * read, path)[0] == list(range(read, 2 * read))

"""A bounded replay and a trial on Spark: epochs that go too far are computed again, and output waits for its manifest."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import forkpoint as fp
from forkpoint.api.launch import Launch
from forkpoint.driver.commit.trial import Trial
from forkpoint.driver.start.replay import Until, UntilPositions, UntilTime
from forkpoint.graph.options import RestoreOptions
from forkpoint.savepoint.format.opened_savepoint import open_savepoint

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("session")]


def count(number: int, state: int | None) -> tuple[tuple[int, int], int]:
    state = (state or 0) + 1
    return (number % 3, state), state


def run(directory: Path, until: int, savepoint: str | None = None, trial: Trial | None = None, steps: Any = None) -> str:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "spark"}).set_parallelism(2)
    env.set_state_root(str(directory / "state"))
    times = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda n, _: n * 10)
    numbers = env.from_source(fp.CounterSource(per_epoch=37), times, "numbers").uid("numbers")
    counted = numbers.key_by(lambda n: n % 3, int).map_with_state(count, int, output_type=tuple[int, int]).uid("counts")
    counted.sink_to(fp.FileSink.json(directory / "{job}")).uid("out")
    launch = Launch(restore=RestoreOptions(savepoint), until=UntilTime(until, "then"), trial=trial, steps=steps)
    env.launch = launch
    found = env.execute("numbers").savepoint
    assert found is not None
    return found


def written(directory: Path) -> list[tuple[int, int]]:
    files = (directory / "numbers").glob("*.jsonl")
    return sorted(tuple(json.loads(line)) for file in files for line in file.read_text().splitlines())


@pytest.mark.slow
def test_up_to_a_time_and_on_on_trial(tmp_path: Path) -> None:
    first = run(tmp_path, until=995)
    assert open_savepoint(first).savepoint.sources["numbers"].position == {"next": 101}
    assert written(tmp_path) == sorted((n % 3, n // 3 + 1) for n in range(101))
    shown: list[int] = []

    class Watch:
        def on_step(self, step: str, epoch: int) -> None:
            if step == "published":
                shown.append(len(written(tmp_path)))

    second = run(tmp_path, until=3005, savepoint=first, trial=Trial(3), steps=Watch())
    assert shown[:3] == [101, 101, 101 + 3 * 37]
    assert open_savepoint(second).savepoint.sources["numbers"].position == {"next": 302}
    assert written(tmp_path) == sorted((n % 3, n // 3 + 1) for n in range(302))
    assert not list((tmp_path / "numbers").glob(".*"))


@pytest.mark.slow
def test_up_to_where_a_savepoint_was_taken_of_files_that_spark_reads(session: SparkSession, tmp_path: Path) -> None:
    def write(number: int) -> None:
        hidden = tmp_path / "in" / f".{number}"
        hidden.write_text("".join(json.dumps({"n": n, "ts": n * 10}) + "\n" for n in range(10 * number, 10 * number + 10)))
        os.utime(hidden, (number + 1, number + 1))
        hidden.rename(tmp_path / "in" / f"{number}.json")

    def read(job: str, until: Until, savepoint: str | None = None) -> str:
        env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "spark"}).set_parallelism(2)
        env.set_state_root(str(tmp_path / "state"))
        frame = session.readStream.schema("n long, ts long").option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))
        times = fp.WatermarkStrategy.for_monotonous_timestamps()
        rows = env.from_dataframe(frame, uid="rows", timestamp="ts", watermark_strategy=times)
        counted = rows.map(lambda row: row.n, int).key_by(lambda n: n % 3, int)
        counted = counted.map_with_state(count, int, output_type=tuple[int, int]).uid("counts")
        counted.sink_to(fp.FileSink.json(tmp_path / "out" / "{job}")).uid("out")
        env.launch = Launch(restore=RestoreOptions(savepoint), until=until, job_name=job)
        found = env.execute("rows").savepoint
        assert found is not None
        return found

    def until(savepoint: str) -> UntilPositions:
        return UntilPositions(open_savepoint(savepoint).savepoint.sources, "it")

    (tmp_path / "in").mkdir()
    for number in range(12):  # past the first compaction of Spark's log of the files, at ten
        write(number)
    first = read("first", UntilTime(150, "then"))
    second = read("first", UntilTime(1100, "then"))
    for number in range(12, 14):
        write(number)
    at = open_savepoint(second).savepoint.sources["rows"]
    for job, savepoint, numbers in (("all", None, range(120)), ("rest", first, range(20, 120))):
        last = read(job, until(second), savepoint)
        assert open_savepoint(last).savepoint.sources["rows"].spark_offset == at.spark_offset
        files = (tmp_path / "out" / job).glob("*.jsonl")
        assert sorted(tuple(json.loads(line)) for file in files for line in file.read_text().splitlines()) == sorted(
            (n % 3, n // 3 + 1) for n in numbers
        )
    with pytest.raises(fp.ConfigError, match="'rows' cannot be read from this run's start"):
        read("back", until(first), second)

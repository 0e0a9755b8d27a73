"""The flights example against its batch check: on a part of the stream, with both versions and a fork."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from example_programs import environment, load, wait_until

import forkpoint as fp
from forkpoint.api.launch import Launch
from forkpoint.graph.options import RestoreOptions
from patience import PATIENCE_S

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("session")]
FILES, BEFORE_FORK, BEFORE_SWITCH = 9, 2, 5  # of 100; each has a row in 100 of the year


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    directory = tmp_path_factory.mktemp("flights")
    load("flights/prepare.py").prepare(directory, 100, "parquet", 0)
    return sorted(directory.iterdir())[:FILES]


def test_stopping_changing_and_forking_give_what_one_batch_query_gives(
    tmp_path: Path, prepared: list[Path], session: None
) -> None:
    from pyspark.sql import SparkSession

    stream = tmp_path / "stream"
    stream.mkdir()
    sizes = [appear(file, stream) for file in prepared[:BEFORE_FORK]]
    v1 = start(tmp_path, "v1")
    wait_for_counts(tmp_path / "v1")
    fork_point = v1.trigger_savepoint().result(PATIENCE_S)
    sizes += [appear(file, stream) for file in prepared[BEFORE_FORK:BEFORE_SWITCH]]
    wait_for_counts(tmp_path / "v1", files=3)
    switch_point = v1.stop_with_savepoint().result(PATIENCE_S)
    rows_before = rows_read(switch_point)
    assert 0 < rows_before <= sum(sizes)
    for file in prepared[BEFORE_SWITCH:]:
        appear(file, stream)
    finish(tmp_path, "v2", switch_point, parallelism=3)
    finish(tmp_path, "fork", fork_point, parallelism=1)

    check = load("flights/check.py")
    spark = SparkSession.getActiveSession()
    outputs = {what: [str(tmp_path / version / what) for version in ("v1", "v2")] for what in ("counts", "alarms")}
    counts, alarms = check.expected(spark, stream, rows_before, 15)
    found = check.read_output(spark, outputs["counts"], check.COUNTS)
    assert check.differences(found, check.each_departure(counts)).collect() == []
    found = check.read_output(spark, outputs["counts"], check.TOTALS)
    assert check.differences(found, check.each_departure(check.without_bands(counts), "total")).collect() == []
    found = check.read_output(spark, outputs["alarms"], check.ALARMS)
    assert found.count() > 20
    assert check.differences(found, alarms.select(check.ALARMS)).collect() == []

    epoch = epoch_of(fork_point)
    counts, alarms = check.expected(spark, stream, None, 0)
    forked = [f"{tmp_path}/v1/{{}}@{epoch}", f"{tmp_path}/fork/{{}}"]
    found = check.read_output(spark, [each.format("counts") for each in forked], check.COUNTS)
    assert check.differences(found, check.each_departure(counts)).collect() == []
    found = check.read_output(spark, [each.format("alarms") for each in forked], check.ALARMS)
    assert check.differences(found, alarms.select(check.ALARMS)).collect() == []


def appear(file: Path, stream: Path) -> int:
    import pyarrow.parquet as pq

    hidden = stream / f".{file.name}"
    shutil.copy(file, hidden)
    hidden.rename(stream / file.name)
    return int(pq.read_metadata(file).num_rows)


def start(directory: Path, version: str) -> fp.JobClient:
    env = environment("local").set_state_root(str(directory / "state")).set_max_epoch_rows(5_000)
    load("flights/flights_v1.py").build(env, str(directory / "stream"), str(directory / version))
    env.launch = Launch(job_name=version)
    return env.execute_async("flights")


def finish(directory: Path, version: str, savepoint: str, parallelism: int) -> None:
    module = load("flights/flights_v2.py" if version == "v2" else "flights/flights_v1.py")
    env = environment("local", parallelism).set_state_root(str(directory / "state"))
    module.build(env, str(directory / "stream"), str(directory / version), bounded=True)
    env.launch = Launch(job_name=version, restore=RestoreOptions(savepoint=savepoint))
    env.execute("flights")


def wait_for_counts(output: Path, files: int = 1) -> None:
    wait_until(lambda: len({file.name.split("-")[1] for file in output.glob("counts/part-*.parquet")}) >= files)


def rows_read(savepoint: str) -> int:
    from forkpoint.savepoint.format.opened_savepoint import open_savepoint

    return sum(split.count for split in open_savepoint(savepoint).savepoint.sources["flights"].splits.values())


def epoch_of(savepoint: str) -> int:
    from forkpoint.savepoint.format.opened_savepoint import open_savepoint

    return open_savepoint(savepoint).savepoint.epoch

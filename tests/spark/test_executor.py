from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from echo_runtime import run_source_task
from msgspec.structs import replace
from pyspark.sql import SparkSession
from spark_runs import StartRun, context, frame_operator

from forkpoint.errors import ConfigError, RestoreRefused, UserFunctionError
from forkpoint.spark.executor import SparkExecutor
from forkpoint.types import Types

pytestmark = pytest.mark.spark


def plan(*numbers: int, **order: Any) -> bytes:
    return json.dumps({"numbers": numbers, **order}).encode()


def epoch(executor: SparkExecutor, number: int, *plans: bytes, frame: Any = None) -> list[dict[str, Any]]:
    return [json.loads(blob) for blob in executor.run_epoch(context(number), plans, frame)]


def got(commits: list[dict[str, Any]], stage: int) -> dict[int, list[str]]:
    return {row["subtask"]: row["got"] for row in commits if row["stage"] == stage}


def test_rows_reach_their_subtasks_and_every_commit_row_the_driver(start_run: StartRun) -> None:
    executor = start_run(stages=1, parallelism=3)
    commits = epoch(executor, 1, plan(0, 1, 2, 3, 4), plan(6, 7))
    assert got(commits, 1) == {0: ["0", "3", "6"], 1: ["1", "4", "7"], 2: ["2"]}
    assert sorted((row["stage"], row["subtask"]) for row in commits) == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]


def test_three_stages_and_all_the_commits_of_each(start_run: StartRun) -> None:
    executor = start_run(stages=3, parallelism=2)
    commits = epoch(executor, 1, plan(0, 1, 2))
    assert got(commits, 3) == {0: ["0", "2"], 1: ["1"]}  # moved on by one subtask, twice
    assert sorted((row["stage"], row["subtask"]) for row in commits) == [(0, 0)] + [(s, i) for s in (1, 2, 3) for i in (0, 1)]


def test_a_job_of_stage_0_alone_returns_only_commit_rows(start_run: StartRun, session: SparkSession) -> None:
    operators = [frame_operator(5, "f", None)]
    executor = start_run(stages=0, parallelism=2, operators=operators)
    commits = epoch(executor, 4, plan(1, 2, 3), frame=executor.frame_stage(5, session.range(0, 6, 1, 2)))
    assert [(row["epoch"], row["stage"], row["subtask"]) for row in commits] == [(4, 0, 0), (4, 0, 1), (4, 0, 2)]
    assert epoch(executor, 5) == []


def test_subtasks_run_where_nothing_arrives_and_see_the_epochs_own_context(start_run: StartRun) -> None:
    executor = start_run(stages=2, parallelism=3)
    for number in (1, 2):
        commits = epoch(executor, number)
        assert sorted((row["stage"], row["subtask"]) for row in commits) == [(s, i) for s in (1, 2) for i in range(3)]
        assert {row["epoch"] for row in commits} == {number}


@pytest.mark.parametrize("plans", [(), (plan(0, 1, 2, 3),)])
def test_each_subtask_is_told_its_own_accepted_attempts_alone(start_run: StartRun, plans: tuple[bytes, ...]) -> None:
    executor = start_run(stages=2, parallelism=3)
    previous = {f"{stage}-{subtask}": f"a{stage}{subtask}" for stage in (1, 2) for subtask in range(3)}
    sent = replace(context(2), previous=previous, snapshot_subtasks=[1])
    for row in map(json.loads, executor.run_epoch(sent, plans)):
        own = {} if row["stage"] == 0 else {f"{s}-{row['subtask']}": f"a{s}{row['subtask']}" for s in (1, 2)}
        assert row["previous"] == own
        assert row["snapshot_subtasks"] == ([1] if row["stage"] and row["subtask"] == 1 else [])


def test_a_frame_and_native_tasks_meet_in_one_epoch(start_run: StartRun, session: SparkSession) -> None:
    executor = start_run(stages=1, parallelism=2, operators=[frame_operator(5, "f", None)])
    frame = executor.frame_stage(5, session.range(0, 10, 1, 2))
    commits = epoch(executor, 1, plan(100, 101), frame=frame)
    values = [value for rows in got(commits, 1).values() for value in rows]
    assert sorted(v for v in values if not v.startswith("[")) == ["100", "101"]
    assert sorted(json.loads(v)[1]["id"] for v in values if v.startswith("[")) == list(range(10))
    assert sorted(row["subtask"] for row in commits if row["stage"] == 0) == [0, 1, 2]  # task numbers are unique


def test_large_blobs_cross_whole(start_run: StartRun) -> None:
    executor = start_run(stages=2, parallelism=1)
    commits = epoch(executor, 1, *[plan(blob_bytes=n) for n in (5_000_000, 70_000_000)])
    assert got(commits, 2) == {0: [5_000_000, 70_000_000]}


def test_workers_are_kept_and_collect_no_cycles_within_a_task(start_run: StartRun) -> None:
    executor = start_run(stages=1, parallelism=2)
    seen = [epoch(executor, n, plan(1)) for n in range(1, 9)]
    assert len({row["pid"] for commits in seen for row in commits}) <= 4
    assert os.getpid() not in {row["pid"] for commits in seen for row in commits}
    assert [row for commits in seen for row in commits if row["gc"]] == []


def test_a_tasks_exception_comes_out_as_itself(start_run: StartRun) -> None:
    executor = start_run(stages=1, parallelism=2)
    with pytest.raises(ValueError, match=r"^thirteen") as stage_1:
        epoch(executor, 1, plan(13))
    assert "stage 1, subtask 1" in "".join(stage_1.value.__notes__)
    with pytest.raises(RestoreRefused, match=r"^uid 'x' and the state do not fit$"):
        epoch(executor, 1, plan(**{"raise": "refused"}))
    with pytest.raises(UserFunctionError, match=r"LostException in stage 0, source task 0: one and two"):
        epoch(executor, 1, plan(**{"raise": "lost"}))
    assert got(epoch(executor, 1, plan(4)), 1)[0] == ["4"]  # and the run goes on


def test_shuffle_files_do_not_outlive_their_epoch(start_run: StartRun, session: SparkSession) -> None:
    local = Path(session.conf.get("spark.local.dir"))
    executor = start_run(stages=1, parallelism=2)
    epoch(executor, 1, plan(1))
    # A task that was still at work when its epoch failed, in a test before this one, writes its file after the cleaning.
    time.sleep(1)
    others = _shuffles(local)
    for number in range(2, 7):
        epoch(executor, number, plan(blob_bytes=100_000))
    while _shuffles(local) - others:  # Spark deletes them behind the epoch
        time.sleep(0.05)


def _shuffles(directory: Path) -> set[str]:
    return {path.name.split("_")[1] for path in directory.rglob("shuffle_*")}


def test_local_properties_are_given_back(start_run: StartRun, session: SparkSession) -> None:
    sc = session.sparkContext
    sc.setLocalProperty("spark.scheduler.pool", "mine")
    try:
        epoch(start_run(), 1, plan(1))
        assert sc.getLocalProperty("spark.scheduler.pool") == "mine"
        assert sc.getLocalProperty("forkpoint.epoch") is None
    finally:
        sc.setLocalProperty("spark.scheduler.pool", None)


def test_interrupt_ends_a_running_epoch_and_only_that(start_run: StartRun) -> None:
    from spark_runs import ECHO

    def slow(spec: Any, ctx: Any, task: int, plan: bytes) -> Any:
        if ctx.epoch == 1:
            time.sleep(86_400)
        return run_source_task(spec, ctx, task, plan)

    executor = start_run(runtime=ECHO._replace(run_source_task=slow))
    timer = threading.Timer(1.0, executor.interrupt)
    timer.start()
    with pytest.raises(Exception, match=r"(?i)cancel"):
        epoch(executor, 1, plan(1))
    assert got(epoch(executor, 2, plan(1)), 1)[1] == ["1"]


@pytest.mark.slow
def test_background_tasks_keep_order_and_leave_epochs_room(start_run: StartRun, tmp_path: Path) -> None:
    executor = start_run(stages=1, parallelism=2)
    args = [str(i).encode() for i in range(7)]
    assert executor.run_tasks(lambda arg: arg * 2, args, "doubling") == [arg * 2 for arg in args]
    assert executor.run_tasks(lambda arg: arg, [], "nothing") == []
    epoch(executor, 1, plan(1))
    results: list[bytes] = []
    go_on = tmp_path / "go on"

    def nap(arg: bytes) -> bytes:
        while not go_on.exists():
            time.sleep(0.01)
        return arg

    background = threading.Thread(target=lambda: results.extend(executor.run_tasks(nap, args, "napping")))
    background.start()
    time.sleep(0.3)
    for number in range(2, 7):  # would wait for the background tasks if those left no room
        epoch(executor, number, plan(1))
    assert results == []
    go_on.touch()
    background.join()
    assert results == args


def test_a_background_tasks_exception_comes_out_as_itself(start_run: StartRun) -> None:
    def refuse(arg: bytes) -> bytes:
        raise RestoreRefused(arg.decode())

    with pytest.raises(RestoreRefused, match=r"^no$"):
        start_run().run_tasks(refuse, [b"no"], "refusing")


def test_staged_frame_reads_staged_files(start_run: StartRun, tmp_path: Any) -> None:
    kind = Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.LONG()])
    schema = kind.arrow_schema
    pq.write_table(pa.table([["a", "b"], [1, 2]], schema=schema), tmp_path / "1.parquet")
    executor = start_run()
    frame = executor.staged_frame([str(tmp_path / "1.parquet")], kind)
    assert sorted(map(tuple, frame.collect())) == [("a", 1), ("b", 2)]
    assert executor.staged_frame([], kind).columns == ["name", "n"]
    assert executor.staged_frame([], kind).count() == 0


def test_an_executor_starts_a_second_run(start_run: StartRun) -> None:
    executor = start_run(stages=1, parallelism=2)
    epoch(executor, 1, plan(1))
    assert executor._run is not None
    executor.start(executor._run.spec)
    assert got(epoch(executor, 1, plan(1)), 1)[1] == ["1"]


@pytest.mark.parametrize(
    ("there", "error"),
    [(True, "the executors' Python has no module"), (False, "the executors have no Python at")],
)
def test_executors_that_cannot_run_forkpoint_are_no_failure_of_the_job(
    start_run: StartRun, session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool, error: str
) -> None:
    interpreter = tmp_path / "python"
    if there:  # with Spark's own modules and nothing else, as in a cluster's image without forkpoint
        (tmp_path / "preloaded_daemon.py").write_text("from pyspark.daemon import manager\nmanager()\n")  # this session's, bare
        modules = ":".join(map(str, [tmp_path, *(Path(pyspark.__file__).parent / "python" / "lib").glob("*.zip")]))
        interpreter.write_text(f'#!/bin/sh\nPYTHONPATH={modules} exec {sys.executable} -S "$@"\n')
        interpreter.chmod(0o755)
    monkeypatch.setattr(session.sparkContext, "pythonExec", str(interpreter))
    executor = start_run(stages=1, parallelism=1)
    with pytest.raises(ConfigError, match=re.escape(error)):
        epoch(executor, 1, plan(0))

"""Tasks that stay: the same results as a Spark job for each epoch, also when they are lost, interrupted or in the way."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from echo_runtime import run_source_task, run_subtask
from pyspark.sql import SparkSession
from spark_runs import ECHO, StartRun
from test_executor import epoch, got, plan

from forkpoint.errors import JobFailed, RestoreRefused
from forkpoint.spark import residents
from forkpoint.spark.executor import SparkExecutor

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks stay after one epoch."""
    monkeypatch.setattr(residents, "SHORT_EPOCHS", 1)
    monkeypatch.setattr(residents, "SHORT_S", 60.0)


def stay(executor: SparkExecutor) -> bool:
    assert executor._run is not None
    return executor._run.residents is not None and executor._run.residents.stay


@pytest.mark.parametrize("stages", [0, 1, 3])
def test_they_give_what_jobs_give(start_run: StartRun, stages: int) -> None:
    """Proves the exchange between stages, and that tasks keep their processes."""
    executor = start_run(stages=stages, parallelism=2)
    asked = [(plan(0, 1, 2, 3), plan(5, blob_bytes=70_000)), (), (plan(4),)]
    jobs = epoch(executor, 1, *asked[0])
    assert not stay(executor)
    found = [epoch(executor, number, *plans) for number, plans in enumerate(asked, 2)]
    assert stay(executor)

    def seen(commits: list[dict[str, Any]]) -> list[Any]:
        return sorted((row["stage"], row["subtask"], row["got"]) for row in commits)

    assert seen(found[0]) == seen(jobs)
    assert len(found[1]) == 2 * stages
    assert len({(row["subtask"], row["pid"]) for commits in found for row in commits}) == 2
    assert executor._run is not None
    assert not list(Path(executor._run.spec.local_dir).glob("exchange-*"))
    assert not any(row["gc"] for commits in found for row in commits)


def test_a_lost_task_costs_no_epoch(start_run: StartRun, tmp_path: Path) -> None:
    """A worker is killed in the middle of an epoch, which runs again as a job; later, tasks stay again."""
    once = tmp_path / "once"

    def dies(spec: Any, ctx: Any, stage: int, subtask: int, rows: Any) -> Any:
        if ctx.epoch == 3 and subtask == 1 and not once.exists():
            once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return run_subtask(spec, ctx, stage, subtask, rows)

    executor = start_run(stages=1, parallelism=2, runtime=ECHO._replace(run_subtask=dies))
    for number in range(1, 3):
        epoch(executor, number, plan(1, 2))
    assert stay(executor)
    assert got(epoch(executor, 3, plan(1, 2, 3)), 1) == {0: ["2"], 1: ["1", "3"]}
    assert once.exists()
    assert not stay(executor)
    assert got(epoch(executor, 4, plan(7)), 1)[1] == ["7"]
    assert stay(executor)


def test_a_tasks_exception_comes_out_as_itself(start_run: StartRun) -> None:
    executor = start_run(stages=1, parallelism=2)
    for number in (1, 2):
        epoch(executor, number, plan(1))
    with pytest.raises(ValueError, match=r"^thirteen") as raised:
        epoch(executor, 3, plan(13))
    assert "stage 1, subtask 1" in "".join(raised.value.__notes__)
    assert got(epoch(executor, 3, plan(4)), 1)[0] == ["4"]


def test_an_interrupt_ends_their_epoch(start_run: StartRun) -> None:
    def slow(spec: Any, ctx: Any, task: int, plan: bytes) -> Any:
        if ctx.epoch == 3:
            time.sleep(86_400)
        return run_source_task(spec, ctx, task, plan)

    executor = start_run(stages=1, parallelism=2, runtime=ECHO._replace(run_source_task=slow))
    for number in (1, 2):
        epoch(executor, number, plan(1))
    threading.Timer(0.5, executor.interrupt).start()
    with pytest.raises(JobFailed, match="interrupted"):
        epoch(executor, 3, plan(1))
    assert got(epoch(executor, 4, plan(1)), 1)[1] == ["1"]


def test_they_leave_the_cores_to_others(start_run: StartRun, session: SparkSession) -> None:
    """They hold all cores; a background task, and a job of the user's, get some nevertheless, also while no epoch runs. Large
    work beside epochs needs none."""
    cores = session.sparkContext.defaultParallelism
    executor = start_run(stages=1, parallelism=cores)
    for number in (1, 2):
        epoch(executor, number, plan(1))
    assert executor.run_in_background(bytes.upper, [b"a", b"b"], "beside") == [b"A", b"B"]
    assert stay(executor)
    assert executor.run_tasks(lambda arg: arg * 2, [b"a", b"b"], "doubling") == [b"aa", b"bb"]
    assert not stay(executor)
    for number in (3, 4):
        epoch(executor, number, plan(1))
    assert stay(executor)
    assert session.sparkContext.parallelize(range(10), cores).map(str).count() == 10
    assert not stay(executor)


def test_calls_run_in_their_processes_while_an_epoch_runs(start_run: StartRun, tmp_path: Path) -> None:
    """As commits of a cluster's sinks do: without taking the cores away. Without resident tasks, they are Spark tasks."""
    go_on = tmp_path / "go on"

    def slow(spec: Any, ctx: Any, task: int, plan: bytes) -> Any:
        while ctx.epoch == 3 and not go_on.exists():
            time.sleep(0.01)
        return run_source_task(spec, ctx, task, plan)

    def process(arg: bytes) -> bytes:
        return b"%d" % os.getpid()

    def refuse(arg: bytes) -> bytes:
        raise RestoreRefused(arg.decode())

    executor = start_run(stages=1, parallelism=2, runtime=ECHO._replace(run_source_task=slow))
    assert executor.run_beside_epochs(lambda arg: arg, [b"1"], "calling") == [b"1"]
    pids = [{row["pid"] for row in epoch(executor, number, plan(1))} for number in (1, 2)][1]
    found: list[dict[str, Any]] = []
    running = threading.Thread(target=lambda: found.extend(epoch(executor, 3, plan(1))))
    running.start()
    called = executor.run_beside_epochs(process, [b"1", b"2", b"3"], "calling")
    assert {int(pid) for pid in called} == pids
    assert called[0] == called[2]
    assert not found
    with pytest.raises(RestoreRefused, match=r"^no$"):
        executor.run_beside_epochs(refuse, [b"no"], "calling")
    go_on.touch()
    running.join()
    assert {row["pid"] for row in found} == pids
    assert stay(executor)


def test_strangers_get_nothing(start_run: StartRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever connects without the key neither becomes a task nor keeps the tasks from connecting."""
    create, strangers = socket.create_server, []

    def with_stranger(address: tuple[str, int], **options: Any) -> socket.socket:
        server = create(address, **options)
        strangers.append(socket.create_connection(server.getsockname()))
        strangers[0].sendall(b"\0\0\0\x05hello")
        return server

    monkeypatch.setattr(socket, "create_server", with_stranger)
    executor = start_run(stages=1, parallelism=2)
    for number in (1, 2):
        commits = epoch(executor, number, plan(1))
    assert strangers
    assert stay(executor)
    assert got(commits, 1) == {0: [], 1: ["1"]}
    assert json.dumps(commits)


def test_large_epochs_are_for_the_shuffle(start_run: StartRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """On one host, they are in files, and the tasks stay."""
    monkeypatch.setattr(residents, "LARGE_BYTES", 100_000)
    for one_host in (True, False):
        monkeypatch.setattr(SparkExecutor, "has_other_hosts", not one_host)
        executor = start_run(stages=1, parallelism=2)
        for number in (1, 2):
            epoch(executor, number, plan(blob_bytes=1_000))
        assert stay(executor)
        assert got(epoch(executor, 3, plan(blob_bytes=200_000)), 1)[0] == [200_000]
        assert stay(executor) == one_host


def test_without_cores_or_by_the_setting_epochs_stay_jobs(start_run: StartRun, session: SparkSession) -> None:
    executor = start_run(stages=1, parallelism=session.sparkContext.defaultParallelism + 1)
    for number in (1, 2, 3):
        epoch(executor, number, plan(1))
    assert not stay(executor)


def test_two_jobs_of_an_application_go_on_side_by_side(start_run: StartRun, session: SparkSession) -> None:
    """Each would hold all cores. Whichever holds them leaves them to the other, and then lets ten seconds pass."""
    cores = session.sparkContext.defaultParallelism
    executors = [start_run(stages=1, parallelism=cores) for _ in range(2)]
    ran = [0, 0]

    def run(job: int) -> None:
        for number in range(1, 31):
            epoch(executors[job], number, plan(1))
            ran[job] += 1

    jobs = [threading.Thread(target=run, args=(job,)) for job in range(2)]
    for each in jobs:
        each.start()
    for each in jobs:
        each.join()
    assert ran == [30, 30]

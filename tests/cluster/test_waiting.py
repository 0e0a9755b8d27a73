"""Jobs that wait for a cluster without executors can be looked at and cancelled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.standalone import Cluster
from forkpoint.protocol.endpoint import endpoints
from forkpoint.protocol.registry import find_live
from forkpoint.storage.base import open_storage

pytestmark = pytest.mark.spark

A = "127.0.0.2"
APP = """
import forkpoint as fp

env = fp.StreamExecutionEnvironment.get_execution_environment().enable_checkpointing(50).set_parallelism(1)
numbers = env.from_source(fp.CounterSource(per_epoch=5), fp.WatermarkStrategy.no_watermarks(), "n").uid("n")
numbers.key_by(lambda n: n % 3, int).map_with_state(lambda n, c: (n, (c or 0) + 1), int).uid("counts").sink_to(
    fp.DiscardSink()
).uid("out")
env.execute("waiting")
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A master without workers."""
    started = Cluster(tmp_path)
    try:
        yield started
    finally:
        started.stop()


def start(home: Path, cluster: Cluster, *command: str) -> subprocess.Popen[str]:
    (home / "app.py").write_text(APP)
    environment = {key: value for key, value in os.environ.items() if key != "FORKPOINT_ENGINE"}
    environment |= {"SPARK_MASTER": cluster.url, "FORKPOINT_STATE_ROOT": str(home / "state")}
    return subprocess.Popen(
        [sys.executable, *command, str(home / "app.py")], cwd=home, stderr=subprocess.PIPE, text=True, env=environment
    )


def command(home: Path, *arguments: str) -> str:
    line = [sys.executable, "-m", "forkpoint.cli", "--state-root", str(home / "state"), *arguments]
    return subprocess.check_output(line, text=True)


def wait_for_no_executor(home: Path, process: subprocess.Popen[str]) -> None:
    storage = open_storage(home / "state")
    while not endpoints(storage):
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        time.sleep(0.1)
    with find_live(storage, "waiting") as client:
        while "Spark has no executor" not in (doing := client.status().doing or ""):
            assert process.poll() is None, (doing, process.stderr.read() if process.stderr else "")
            time.sleep(0.1)


RUN = ("-m", "forkpoint.cli", "run", "--conf", "spark.executor.memory=512m")


@pytest.mark.slow
def test_a_job_that_waits_for_its_first_executor_is_cancelled(cluster: Cluster, tmp_path: Path) -> None:
    process = start(tmp_path, cluster, *RUN)
    wait_for_no_executor(tmp_path, process)
    (view,) = json.loads(command(tmp_path, "--output", "json", "list"))["jobs"]
    assert view["state"] == "starting"
    assert "Spark has no executor" in command(tmp_path, "list")
    command(tmp_path, "cancel", "waiting")
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert "waiting" not in command(tmp_path, "list", "-a")


@pytest.mark.slow
@pytest.mark.parametrize("program", [RUN, ()])
def test_ctrl_c_while_it_waits_for_its_first_executor(cluster: Cluster, tmp_path: Path, program: tuple[str, ...]) -> None:
    process = start(tmp_path, cluster, *program)
    wait_for_no_executor(tmp_path, process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 128 + signal.SIGINT, err
    assert "Traceback" not in err
    assert not endpoints(open_storage(tmp_path / "state"))


@pytest.mark.slow
def test_a_job_that_has_lost_all_executors_is_cancelled(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start_worker(A)
    process = start(tmp_path, cluster, *RUN)
    storage = open_storage(tmp_path / "state")
    while not storage.exists("jobs/waiting/checkpoints/000000000003.json"):
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        time.sleep(0.1)
    cluster.kill_worker(A)
    wait_for_no_executor(tmp_path, process)
    command(tmp_path, "cancel", "waiting")
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert "cancelled" in command(tmp_path, "list", "-a")

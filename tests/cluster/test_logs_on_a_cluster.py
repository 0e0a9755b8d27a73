"""What functions say on other hosts is in the job's log, and in the executor's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from standalone import Cluster

pytestmark = pytest.mark.spark

HOST = "127.0.0.2"
APP = """
import logging
import forkpoint as fp

log = logging.getLogger("app")


def say(number):
    for each in range(1_000):
        print("number", number, "time", each)
    if number == 2:
        log.error("failing")
        raise ValueError("no good")
    return number


env = fp.StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
env.from_collection([1, 2], int).uid("numbers").map(say, int).uid("say").sink_to(fp.DiscardSink()).uid("out")
env.execute("talking")
"""


def test_lines_of_a_failed_task_arrive_up_to_a_limit(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    cluster = Cluster(tmp_path)
    try:
        cluster.start_worker(HOST)
        command = [sys.executable, "-m", "forkpoint.cli", "--state-root", str(tmp_path / "state"), "--log-format", "json",
                   "run", "--master", cluster.url, "--conf", "spark.executor.memory=512m", "app.py"]  # fmt: skip
        environment = {k: v for k, v in os.environ.items() if k not in ("SPARK_MASTER", "FORKPOINT_ENGINE")}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        (said,) = (file.read_text() for file in (tmp_path / HOST / "work").glob("*/*/stderr"))
    finally:
        cluster.stop()
    assert done.returncode == 3, done.stderr
    in_log = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    of_task = [each for each in in_log if each.get("uid") == "say"]
    said_in_order = [*(f"number 1 time {n}" for n in range(200)), "failing"]
    assert [each["message"] for each in of_task[:-1]] == said_in_order
    assert of_task[-1]["message"].startswith("1,800 further lines were left out")
    assert [line for line in said.splitlines() if '"uid": "say"' in line] == [json.dumps(each) for each in of_task]
    assert "no good" in in_log[-1]["message"]

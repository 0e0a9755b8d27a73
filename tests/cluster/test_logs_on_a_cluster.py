"""What functions say on other hosts is in the job's log, and in the executor's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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

COMMITTING = """
import logging
import forkpoint as fp
from forkpoint.contract.sink import Committer, CommittingSink

log = logging.getLogger("app")


class Writer(fp.SinkWriter):
    def __init__(self):
        self.values = []

    def write(self, batch):
        self.values += batch.values

    def prepare_commit(self):
        return [self.values]


class TalkingCommitter(Committer):
    def commit(self, output, newest):
        for values in output.committables:
            print("committing", values)
        if [2] in output.committables:
            log.error("failing")
            raise ValueError("no good")


class TalkingSink(CommittingSink):
    def create_writer(self, context):
        return Writer()

    def create_committer(self, context):
        return TalkingCommitter()

    def cleanup(self, uid, job, generation):
        pass


env = fp.StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
env.set_restart_strategy(fp.RestartStrategy.none())
counted = env.from_source(fp.CounterSource(3, per_epoch=1), fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
counted.sink_to(TalkingSink()).uid("talking")
env.execute("committing")
"""


def run(directory: Path, app: str) -> tuple[list[dict[str, Any]], str]:
    """The objects in the log of a program that fails with "no good", and the executor's stderr."""
    (directory / "app.py").write_text(app)
    cluster = Cluster(directory)
    try:
        cluster.start_worker(HOST)
        command = [
            sys.executable,
            "-m",
            "forkpoint.cli",
            "--state-root",
            str(directory / "state"),
            "--log-format",
            "json",
            "run",
            "--master",
            cluster.url,
            "--conf",
            "spark.executor.memory=512m",
            "app.py",
        ]
        environment = {k: v for k, v in os.environ.items() if k not in ("SPARK_MASTER", "FORKPOINT_ENGINE")}
        done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True)
        (said,) = (file.read_text() for file in (directory / HOST / "work").glob("*/*/stderr"))
    finally:
        cluster.stop()
    assert done.returncode == 3, done.stderr
    in_log = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    ours = [each["message"] for each in in_log if not each["logger"].startswith("org.apache.")]  # Spark may log its own end later
    assert "no good" in ours[-1]
    return in_log, said


@pytest.mark.slow
def test_lines_of_a_failed_task_arrive_up_to_a_limit(tmp_path: Path) -> None:
    in_log, said = run(tmp_path, APP)
    of_task = [each for each in in_log if each.get("uid") == "say"]
    said_in_order = [*(f"number 1 time {n}" for n in range(200)), "failing"]
    assert [each["message"] for each in of_task[:-1]] == said_in_order
    assert of_task[-1]["message"].startswith("1,800 further lines of 'say' were left out")
    assert [line for line in said.splitlines() if '"uid": "say"' in line] == [json.dumps(each) for each in of_task]


@pytest.mark.slow
def test_lines_of_commits_arrive_also_of_the_one_that_fails(tmp_path: Path) -> None:
    in_log, said = run(tmp_path, COMMITTING)
    of_sink = [each for each in in_log if each.get("uid") == "talking" and each["logger"] in ("stdout", "app")]
    assert [each["message"] for each in of_sink] == [*(f"committing [{n}]" for n in range(3)), "failing"]
    first = of_sink[0]["epoch"]
    assert [(each["job"], each["epoch"]) for each in of_sink] == [("committing", first + n) for n in (0, 1, 2, 2)]
    assert {json.dumps(each) for each in of_sink} <= set(said.splitlines())

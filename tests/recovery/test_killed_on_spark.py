"""Promise 1 on Spark: drivers, Python workers and JVMs are killed; what comes out is what the local engine gives undisturbed.

Starting Spark takes seconds, so each start after a kill is the one that is killed next.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from program import Plan
from runs import KILLED, Outcome, logs, outcome, read_savepoint, run_forked, start_spark

pytestmark = pytest.mark.spark


def run(plan: Plan) -> int:
    return end(start_spark(plan), plan)


def end(process: subprocess.Popen[bytes], plan: Plan) -> int:
    """The exit code; what the process has started ends with it."""
    try:
        return process.wait()
    finally:
        for child in descendants(process):
            child.kill()
        process.kill()


def descendants(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def wait_for(what: Callable[[], bool]) -> None:
    while not what():
        time.sleep(0.02)


@pytest.mark.slow
def test_a_driver_that_is_killed_at_each_step(place: Path, undisturbed: Outcome) -> None:
    plan = Plan(str(place))
    for kill in (("planned", 2), ("computed", 1), ("written", 1), ("committed", 1), ("published", 1)):
        assert run(replace(plan, kill=kill)) == KILLED, logs(place)
    assert run(plan) == 0, logs(place)
    assert outcome(place) == undisturbed
    assert not list((place / "output").rglob(".*"))


@pytest.mark.slow
def test_a_driver_that_is_killed_at_each_step_of_a_streaming_dataframes_epochs(place: Path, stopped: Outcome) -> None:
    """ "published" is before Spark's own commit of the batch, which the next start does without."""
    plan = Plan(str(place), source="stream", stop_after=100)
    for kill in (("published", 1), ("computed", 1), ("committed", 2)):
        assert run(replace(plan, kill=kill)) == KILLED, logs(place)
    assert run(plan) == 0, logs(place)
    assert outcome(place) == stopped
    assert read_savepoint(Path((place / "savepoint").read_text().removeprefix("file://"))) == (
        stopped.totals,
        stopped.timers,
    )


@pytest.mark.slow
def test_a_python_worker_that_is_killed_in_an_epoch(place: Path, undisturbed: Outcome) -> None:
    """local[2] does not repeat a task, so the job restarts by its strategy."""
    pause = place / "pause"
    plan = Plan(str(place), pause_file=str(pause), restarts=2)
    process = start_spark(plan)
    wait_for(lambda: pause.exists() and pause.read_text() != "")
    worker = int(pause.read_text())
    assert worker != process.pid
    os.kill(worker, signal.SIGKILL)
    assert end(process, plan) == 0, logs(place)
    assert "restart 1 in 0.0 s" in logs(place)
    assert outcome(place) == undisturbed


def test_a_jvm_that_is_killed_in_an_epoch(place: Path, undisturbed: Outcome) -> None:
    """The driver cannot go on without it: it says so and ends, whatever the restart strategy, and can be started again."""
    pause = place / "pause"
    plan = Plan(str(place), pause_file=str(pause), restarts=1000)
    process = start_spark(plan)
    wait_for(lambda: pause.exists() and pause.read_text() != "")
    (jvm,) = [child for child in descendants(process) if child.name() == "java"]
    jvm.kill()
    assert end(process, plan) == 1, logs(place)
    text = logs(place)
    assert "Spark terminated while the job was running" in text, text
    assert text.count("; restart ") <= 1, text
    pause.unlink(missing_ok=True)
    assert run_forked(replace(plan, pause_file=None)) == 0, logs(place)  # on the local engine, which is there at once
    assert outcome(place) == undisturbed

"""The same job on Spark: drivers, Python workers and JVMs are killed at random moments. Starting Spark takes seconds, so these
faults are few, and only in the long form."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil

from chaos import child
from chaos.case import Case, Violation
from chaos.child import Plan
from chaos.record import Record

PATIENCE = 300.0  # Spark on a machine with much else to do
TARGETS = ("driver", "worker", "JVM", "driver")


def spark(place: Path, rng: random.Random, record: Record) -> None:
    with record.trial(Case(place, rng)) as case:
        case.add_input(60)
        for target in TARGETS:
            if record.over():
                break
            case.add_input(40)
            _killed(case, target)
            case.check_so_far(f"after the {target} was killed")
        case.finish()  # on the local engine: state is the same


def _killed(case: Case, target: str) -> None:
    program = case.program(parallelism=2, rows=5, restarts=1000 if target == "worker" else 0)
    plan = replace(case.plan("none", program), engine="spark")
    process = _start(case, plan)
    below: list[psutil.Process] = []
    try:
        before = case.newest_epoch()
        _until(lambda: case.newest_epoch() > before + 1, process, case)
        time.sleep(case.rng.uniform(0, 1))
        below = psutil.Process(process.pid).children(recursive=True)
        _victim(process, below, target).kill()
        case.fault(f"Spark: {target} killed")
        if target == "worker":  # the job goes on by itself
            epoch = case.newest_epoch()
            case.add_input(20)
            _until(lambda: case.newest_epoch() > epoch, process, case)
        elif target == "JVM":  # the driver cannot go on without it, and says so
            process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        raise Violation(f"{PATIENCE:.0f} s after its {target} was killed the job has not ended: {case.last_error()}") from None
    finally:
        _end(process, below)


def _start(case: Case, plan: Plan) -> subprocess.Popen[bytes]:
    case.told.append(f"start on Spark: parallelism {plan.program.parallelism}")
    with open(case.directory / "log", "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "chaos.child", child.to_json(plan)],
            cwd=Path(__file__).parents[1],
            stdout=log,
            stderr=log,
            env={**os.environ, "SPARK_MASTER": "local[2]"},
        )


def _until(what: Callable[[], bool], process: subprocess.Popen[bytes], case: Case) -> None:
    deadline = time.monotonic() + PATIENCE
    while not what():
        if process.poll() is not None:
            raise Violation(f"the job on Spark ended with code {process.returncode}: {case.last_error()}")
        if time.monotonic() > deadline:
            raise Violation(f"the job on Spark did not get on within {PATIENCE:.0f} s")
        time.sleep(0.02)


def _victim(process: subprocess.Popen[bytes], below: list[psutil.Process], target: str) -> psutil.Process:
    if target == "driver":
        return psutil.Process(process.pid)
    found = [p for p in below if (p.name() == "java") == (target == "JVM")]
    if not found:
        raise Violation(f"the job on Spark has no {target}: {below}")
    return found[-1]


def _end(process: subprocess.Popen[bytes], below: list[psutil.Process]) -> None:
    """With all that it has started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        below = [*below, *psutil.Process(process.pid).children(recursive=True)]
    process.kill()
    for each in below:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    process.wait()

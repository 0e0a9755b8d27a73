"""Subtasks keep their host but not their process: they come to their state without the state root."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "on_cluster.py"


def measured(*options: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, str(BENCHMARK), *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_without_a_fault_no_task_reads_from_the_state_root() -> None:
    found = measured("--keys", "5000", "--rows", "4000", "--epochs", "40", "--warm-up", "4")
    assert found["catch_ups"]["host"] > 0, "tasks did not change processes, so nothing is tested"
    assert found["catch_ups"].keys() <= {"memory", "host", "reused"}
    assert found["state_reads"] == 0

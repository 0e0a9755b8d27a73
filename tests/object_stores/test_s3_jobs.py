"""Jobs from files on S3 to files on S3: each result is in a visible object once, whoever dies when."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from object_stores.buckets import Bucket
from object_stores.s3_job import KEYS

PROGRAM = Path(__file__).with_name("s3_job.py")
FILES, EACH = 12, 40


def fill(bucket: Bucket) -> None:
    for number in range(FILES):
        numbers = range(number * EACH, (number + 1) * EACH)
        bucket.put(f"in/{number:03}.json", "".join(json.dumps({"number": n}) + "\n" for n in numbers))


def counts(bucket: Bucket) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for value in bucket.values("out"):
        found.setdefault(value["key"], []).append(value["seen"])
    return {key: sorted(seen) for key, seen in sorted(found.items())}


EXPECTED = {key: list(range(1, FILES * EACH // KEYS + 1)) for key in range(KEYS)}


def run(bucket: Bucket, root: Path, *death: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), bucket.url("in"), bucket.url("out"), str(root), *death]
    path = os.pathsep.join([str(PROGRAM.parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"FORKPOINT_ENGINE": "local", "PYTHONPATH": path}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_a_job_from_s3_to_s3(bucket: Bucket, tmp_path: Path) -> None:
    fill(bucket)
    done = run(bucket, tmp_path)
    assert done.returncode == 0, done.stderr
    assert counts(bucket) == EXPECTED
    assert bucket.uploads("out") == []
    assert len(bucket.visible("out")) > 6  # several epochs


STEPS = [
    "upload+",
    "part",
    "part+",
    "staged+",
    "checked+",
    "manifest",
    "manifest+",
    "mark+",
    "complete",
    "complete+",
    "cleanup",
]


@pytest.mark.parametrize("step", STEPS)
def test_a_driver_that_is_killed_at_a_step(bucket: Bucket, tmp_path: Path, step: str) -> None:
    fill(bucket)
    for number in ["1"] if step == "cleanup" else ["2", "5"]:
        died = run(bucket, tmp_path, step, number)
        assert died.returncode == -9, died.stderr
    done = run(bucket, tmp_path)
    assert done.returncode == 0, done.stderr
    assert counts(bucket) == EXPECTED
    assert bucket.uploads("out") == []

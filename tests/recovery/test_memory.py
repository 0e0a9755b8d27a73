"""A replay's size does not show in its workers: epochs are cut by the source's limit. Twenty million rows are for
``benchmarks/memory.py`` itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "memory.py"


@pytest.mark.slow
@pytest.mark.spark
def test_a_replay_in_epochs_of_the_default_size_stays_small() -> None:
    found = json.loads(
        subprocess.run(
            [sys.executable, "-W", "ignore", SCRIPT, "--rows", "3000000", "--limit-mib", "1024"],
            env={**os.environ, "SPARK_MASTER": "local[2]"},
            stdout=subprocess.PIPE,
            check=True,
        ).stdout.splitlines()[-1]
    )
    assert found["rows"] == 3_000_000
    assert found["epochs"] >= 3
    assert 100 < found["peak_mib"]["worker"] < 1024

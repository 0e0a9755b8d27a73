"""A state root that is gone while its job runs."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

import forkpoint as fp
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.errors import SavepointCorrupt
from patience import PATIENCE_S


def test_a_job_ends_when_its_state_root_is_removed(tmp_path: Path) -> None:
    """Going on, it would look well, and nobody could ever go on from what it has committed."""
    root = tmp_path / "state"
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    env.set_state_root(str(root)).enable_checkpointing(10)
    numbers = env.from_source(fp.CounterSource(per_epoch=10), fp.WatermarkStrategy.no_watermarks(), "n").uid("numbers")
    sums = numbers.key_by(lambda n: n % 7, int).sum().uid("sums")
    sums.sink_to(fp.DiscardSink()).uid("out")
    job = env.execute_async("removed")
    checkpoints = root / JobPaths("removed").checkpoints
    while len(list(checkpoints.glob("*.json"))) < 3:
        time.sleep(0.01)
    shutil.move(root, tmp_path / "elsewhere")  # at once, as an unmounted volume
    with pytest.raises(SavepointCorrupt, match=r"its checkpoints at .* are gone"):
        job.get_job_execution_result().result(PATIENCE_S)
    assert list(checkpoints.glob("*.json")) == []

"""Iterations on Spark give what they give on the local engine, also when a savepoint is taken in the middle of the rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from loop_jobs import NUMBERS, collatz, collatz_lengths

import forkpoint as fp
from forkpoint.api.launch import Launch
from forkpoint.driver.run.job_driver import JobDriver
from forkpoint.graph.options import RestoreOptions

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("session")]


class StopAfter:
    """Asks for a stop with savepoint once some epochs have been published."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs
        self.driver: JobDriver | None = None
        self.savepoint: Any = None

    def attach(self, driver: JobDriver) -> Any:
        self.driver = driver
        return lambda ended: None

    def on_step(self, step: str, epoch: int) -> None:
        self.epochs -= step == "published"
        if self.epochs == 0 and self.driver is not None and self.savepoint is None:
            self.savepoint = self.driver.savepoint(stop=True).done


def run(root: Path, parallelism: int, *, stop: StopAfter | None = None, savepoint: str | None = None) -> list[Any]:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "spark"})
    env.set_state_root(str(root)).set_parallelism(parallelism).set_max_epoch_rows(5)
    sink = fp.CollectSink()
    collatz(env.from_collection(NUMBERS, int).uid("numbers")).sink_to(sink).uid("out")
    launch = Launch(steps=stop, on_driver=None if stop is None else stop.attach, restore=RestoreOptions(savepoint=savepoint))
    env.launch = launch
    env.execute("collatz")
    return list(sink.take())


def test_stopped_in_mid_loop_and_restored_at_another_parallelism(tmp_path: Path) -> None:
    stop = StopAfter(6)
    early = run(tmp_path, 2, stop=stop)
    late = run(tmp_path, 1, savepoint=stop.savepoint.result())
    assert early
    assert late
    assert sorted(early + late) == collatz_lengths(NUMBERS)

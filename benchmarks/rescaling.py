"""How long a job pauses when it is rescaled while it runs, and how long that takes to prepare.

    python benchmarks/rescaling.py                          1 and 10 million keys, Spark local[2] and the local engine
    python benchmarks/rescaling.py --keys 1000000 --engine local

A job that counts by key is filled with every key once, and started again with small epochs at a steady pace. Its pause is
the time between the last commit at the old parallelism and the first one at the new; beside it stands the time between
two commits before, and the longest one while stores are built.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import forkpoint as fp
from forkpoint.api.launch import Launch
from forkpoint.driver.observe.events import EpochCommitted, EpochReached, Event, RescaleEnded, RescaleStarted

JOB = "rescaling"
BEFORE, AFTER = 2, 3
STEADY_ROWS, STEADY_MS = 20_000, 200
LOAD_ROWS = 500_000
SETTLE_EPOCHS, MEASURED_EPOCHS = 12, 15
LIMIT_S = 3600


class Commits:
    """When which epoch was committed, and when stores began to be built and were switched to."""

    def __init__(self) -> None:
        self.times: dict[int, float] = {}
        self.snapshots: set[int] = set()  # epochs whose tasks wrote snapshots, which takes as long as there is state
        self.began: float | None = None
        self.switched: RescaleEnded | None = None
        self._changed = threading.Condition()

    def on_event(self, event: Event) -> None:
        with self._changed:
            match event:
                case EpochReached(epoch, "committed"):
                    self.times[epoch] = time.perf_counter()
                case EpochCommitted() if event.snapshot_bytes:
                    self.snapshots.add(event.epoch)
                case RescaleStarted():
                    self.began = time.perf_counter()
                case RescaleEnded():
                    self.switched = event
            self._changed.notify_all()

    def wait(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            if not self._changed.wait_for(condition, LIMIT_S):
                raise TimeoutError(f"epoch {max(self.times, default=0)} after {LIMIT_S} s")


def client(root: Path, engine: str, keys: int, per_epoch: int, interval_ms: int, commits: Commits) -> Any:
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(str(root)).set_parallelism(BEFORE).enable_checkpointing(interval_ms)
    env.set_max_epoch_rows(per_epoch)
    numbers = env.from_source(fp.CounterSource(per_epoch=per_epoch), fp.WatermarkStrategy.no_watermarks(), "numbers")
    counted = numbers.uid("numbers").key_by(lambda n: n % keys, int).agg(seen=fp.Count()).uid("counts")
    counted.sink_to(fp.DiscardSink()).uid("out")
    spark = (
        {"spark.master": f"local[{BEFORE}]", "spark.driver.memory": "2g", "spark.ui.showConsoleProgress": "false"}
        if engine == "spark"
        else {}
    )
    env.launch = Launch(options={"engine": engine, "spark": spark}, listeners=[commits])
    return env.execute_async(JOB)


def measure(engine: str, keys: int) -> dict[str, Any]:
    root = Path(tempfile.mkdtemp(prefix="forkpoint-rescaling-"))
    try:
        loading = Commits()
        job = client(root, engine, keys, LOAD_ROWS, 1, loading)
        loading.wait(lambda: len(loading.times) * LOAD_ROWS >= keys)
        job.cancel()
        job.get_job_execution_result().result()
        return rescaled(root, engine, keys)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def rescaled(root: Path, engine: str, keys: int) -> dict[str, Any]:
    commits = Commits()
    job = client(root, engine, keys, STEADY_ROWS, STEADY_MS, commits)
    commits.wait(lambda: len(commits.times) >= SETTLE_EPOCHS)
    asked, before = time.perf_counter(), max(commits.times)
    at = job.rescale(AFTER).result(LIMIT_S)
    commits.wait(lambda: max(commits.times) >= at + MEASURED_EPOCHS)
    job.cancel()
    job.get_job_execution_result().result()
    times = commits.times
    preparing = gaps(times, before, at - 1, without=commits.snapshots)
    steady = gaps(times, before - SETTLE_EPOCHS + 4, before)
    return {
        "engine": engine,
        "keys": keys,
        "from": BEFORE,
        "to": AFTER,
        "pause_s": round(times[at + 1] - times[at - 1], 2),
        "epoch_before_s": round(statistics.median(steady), 2),
        "epoch_while_preparing_s": round(statistics.median(preparing), 2),
        "longest_while_preparing_s": round(max(preparing), 2),
        "longest_with_a_snapshot_s": round(max(gaps(times, before, at - 1)), 2),
        "epoch_after_s": round(statistics.median(gaps(times, at + 4, at + MEASURED_EPOCHS)), 2),
        "prepared_in_s": round(times[at - 1] - asked, 1),
    }


def gaps(times: dict[int, float], first: int, last: int, *, without: Collection[int] = ()) -> list[float]:
    """The time from each commit to the next, but of these epochs."""
    found = [epoch for epoch in range(first, last) if {epoch, epoch + 1} <= times.keys() and epoch + 1 not in without]
    return [times[epoch + 1] - times[epoch] for epoch in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, nargs="*", default=[1_000_000, 10_000_000])
    parser.add_argument("--engine", nargs="*", default=["local", "spark"])
    given = parser.parse_args()
    for engine in given.engine:
        for keys in given.keys:
            print(json.dumps(measure(engine, keys)), flush=True)


if __name__ == "__main__":
    main()

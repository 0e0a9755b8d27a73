"""Savepoints of two million keys: taken while the job goes on, and restored.

Used by forkpoint_side.py. The job counts and sums by key; the first files hold every key once, the others draw from them.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from data import HOME, SCHEMA, START_MS
from scenarios import CORES, Measurement, Scenario

import forkpoint as fp
from forkpoint.api.launch import Launch, launching
from forkpoint.driver.restore import RestoreOptions

KEYS = 2_000_000
FILE_ROWS = 125_000
LOADING = KEYS // FILE_ROWS  # files that bring every key


class Steps:
    """When each epoch was committed, and how to wait for one."""

    def __init__(self) -> None:
        self.committed: dict[int, float] = {}
        self.changed = threading.Condition()

    def on_step(self, step: str, epoch: int) -> None:
        if step == "committed":
            with self.changed:
                self.committed[epoch] = time.perf_counter()
                self.changed.notify_all()

    def wait(self, epochs: int) -> None:
        with self.changed:
            if not self.changed.wait_for(lambda: len(self.committed) >= epochs, timeout=300):
                raise TimeoutError(f"only {len(self.committed)} epochs in 300 s")


def stage(directory: Path, files: int) -> None:
    directory.mkdir(parents=True)
    store = HOME / "data" / "two-million-keys"
    store.mkdir(parents=True, exist_ok=True)
    for index in range(files):
        path = store / f"{index:05}.parquet"
        if not path.exists():
            random = np.random.default_rng([KEYS, index])
            first = index * FILE_ROWS
            keys = np.arange(first, first + FILE_ROWS) if index < LOADING else random.integers(0, KEYS, FILE_ROWS)
            amounts = random.integers(1, 10_000, FILE_ROWS)
            table = pa.table({"key": keys, "amount": amounts, "ts": START_MS + np.arange(first, first + FILE_ROWS)}, SCHEMA)
            pq.write_table(table, path.with_suffix(".tmp"))
            os.utime(path.with_suffix(".tmp"), (START_MS // 1000 + index,) * 2)
            path.with_suffix(".tmp").rename(path)
        os.link(path, directory / path.name)


def job(state_root: str, directory: Path, rows: int) -> fp.StreamExecutionEnvironment:
    from forkpoint_side import build

    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(state_root).set_parallelism(CORES).set_max_epoch_rows(rows)
    build(env, "process", directory, bounded=False)
    return env


def start(env: fp.StreamExecutionEnvironment, engine: str, steps: Steps, savepoint: str | None = None) -> fp.JobClient:
    with launching(Launch(options={"engine": engine}, steps=steps, restore=RestoreOptions(savepoint=savepoint))):
        return env.execute_async("savepoint-bench")


def run(scenario: Scenario, engine: str) -> Measurement:
    """``savepoint``: seconds of each savepoint, and the job's throughput meanwhile. ``no_savepoint``: the job alone.
    ``restore``: seconds from the start of a run to its first commit, the engine being up."""
    rows = scenario.rows_per_epoch
    with tempfile.TemporaryDirectory(prefix="forkpoint-bench-") as temporary:
        directory = Path(temporary) / "bids"
        loading = KEYS // rows
        stage(directory, LOADING + scenario.epochs * rows // FILE_ROWS)
        steps = Steps()
        client = start(job(f"{temporary}/state", directory, rows), engine, steps)
        steps.wait(loading + 2)
        if scenario.kind == "no_savepoint":
            steps.wait(loading + 8)
            client.cancel().result()
            times = sorted(steps.committed.values())[loading + 1 :]
            return measured(times, rows, [])
        if scenario.kind == "savepoint":
            began = time.perf_counter()
            client.trigger_savepoint().result()
            seconds = time.perf_counter() - began
            client.cancel().result()
            during = [t for t in sorted(steps.committed.values()) if began <= t <= began + seconds]
            return measured(during, rows, [seconds])
        path = client.stop_with_savepoint().result()
        client.get_job_execution_result().result()
        seconds = restore(temporary, directory, rows, engine, path)
        return Measurement(KEYS / seconds, [seconds], KEYS)


def restore(temporary: str, directory: Path, rows: int, engine: str, path: str) -> float:
    steps = Steps()
    began = time.perf_counter()
    client = start(job(f"{temporary}/restored", directory, rows), engine, steps, path)
    steps.wait(1)
    seconds = min(steps.committed.values()) - began
    client.cancel().result()
    return seconds


def measured(times: list[float], rows: int, seconds: list[float]) -> Measurement:
    if len(times) < 2:
        raise RuntimeError(f"only {len(times)} epochs were committed meanwhile: not enough to tell the throughput")
    rate = rows * (len(times) - 1) / (times[-1] - times[0])
    steps: Any = np.diff(times).tolist()
    return Measurement(rate, seconds or steps, rows * len(times))

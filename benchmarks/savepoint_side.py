"""Savepoints of millions of keys: taken while the job runs, and restored, unchanged and changed.

Used by forkpoint_side.py. The job counts and sums by key; the first files contain every key once, the others a random
selection. The savepoint for the restores is created once and kept.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from data import HOME, SCHEMA, START_MS
from forkpoint_side import Bid, CountAndSum, keyed_bids
from memory import Watcher
from scenarios import CORES, Measurement, Scenario

import forkpoint as fp
from forkpoint.api.launch import Launch
from forkpoint.graph.options import RestoreOptions
from forkpoint.state_processor import SavepointReader

FILE_ROWS = 125_000
EPOCHS_MEASURED = 8


class Steps:
    """The commit time of each epoch, and a way to wait for one."""

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


def stage(directory: Path, keys: int, files: int) -> None:
    """Files that contain every key once, and then so many more."""
    directory.mkdir(parents=True)
    store = HOME / "data" / f"{keys}-keys"
    store.mkdir(parents=True, exist_ok=True)
    loading = keys // FILE_ROWS
    for index in range(loading + files):
        path = store / f"{index:05}.parquet"
        if not path.exists():
            random = np.random.default_rng([keys, index])
            first = index * FILE_ROWS
            drawn = np.arange(first, first + FILE_ROWS) if index < loading else random.integers(0, keys, FILE_ROWS)
            amounts = random.integers(1, 10_000, FILE_ROWS)
            table = pa.table({"key": drawn, "amount": amounts, "ts": START_MS + np.arange(first, first + FILE_ROWS)}, SCHEMA)
            pq.write_table(table, path.with_suffix(".tmp"))
            os.utime(path.with_suffix(".tmp"), (START_MS // 1000 + index,) * 2)
            path.with_suffix(".tmp").rename(path)
        os.link(path, directory / path.name)


class Averages(fp.KeyedProcessFunction):
    """The changed program: its state has an additional part, which automatic evolution can't fill in."""

    totals = fp.ValueStateDescriptor("totals", tuple[int, int, float])

    def process_element(self, bid: Bid, ctx: fp.KeyedProcessFunction.Context) -> Any:
        count, amount, _ = self.totals.value() or (0, 0, 0.0)
        count, amount = count + 1, amount + bid.amount
        self.totals.update((count, amount, amount / count))
        yield bid.key, count, amount


def with_average(totals: tuple[int, int]) -> tuple[int, int, float]:
    count, amount = totals
    return count, amount, amount / count


def job(
    state_root: str, directory: Path, rows: int, parallelism: int = CORES, *, migrated: bool = False
) -> fp.StreamExecutionEnvironment:
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(state_root).set_parallelism(parallelism).set_max_epoch_rows(rows)
    totals = keyed_bids(env, directory, bounded=False).process(Averages() if migrated else CountAndSum()).uid("totals")
    if migrated:
        totals = totals.migrate_state(1, with_average, state="totals")
    totals.sink_to(fp.DiscardSink()).uid("discard")
    return env


def start(env: fp.StreamExecutionEnvironment, engine: str, steps: Steps, savepoint: str | None = None) -> fp.JobClient:
    env.launch = Launch(options={"engine": engine}, steps=steps, restore=RestoreOptions(savepoint=savepoint))
    return env.execute_async("savepoint-bench")


def run(scenario: Scenario, engine: str) -> Measurement:
    """``savepoint``: seconds of each savepoint, and the job's throughput meanwhile. ``no_savepoint``: the job alone.
    ``next_savepoint``: of an idle job, after one and a change of 1 % of the keys, of which ``share`` is of its bytes.
    ``restore``, ``rescale``, ``migrate``: seconds from the start of a run to its first commit, with the engine running."""
    HOME.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="forkpoint-bench-", dir=HOME, ignore_cleanup_errors=True) as temporary,
        Watcher() as watcher,
    ):
        directory = Path(temporary) / "bids"
        rows, loading = scenario.rows_per_epoch, scenario.keys // scenario.rows_per_epoch
        stage(directory, scenario.keys, scenario.epochs * rows // FILE_ROWS)
        if scenario.kind in ("savepoint", "no_savepoint"):
            measurement = running(scenario, engine, temporary, directory, loading)
        elif scenario.kind == "next_savepoint":
            measurement = following(scenario, engine, temporary, directory, loading)
        else:
            measurement = restoring(scenario, engine, temporary, directory, saved(scenario, engine))
        print("peak MiB: " + ", ".join(f"{kind} {peak >> 20:,}" for kind, peak in watcher.peaks.items()), file=sys.stderr)
        return measurement


def running(scenario: Scenario, engine: str, temporary: str, directory: Path, loading: int) -> Measurement:
    rows, steps = scenario.rows_per_epoch, Steps()
    client = start(job(f"{temporary}/state", directory, rows), engine, steps)
    steps.wait(loading + 2)
    if scenario.kind == "no_savepoint":
        steps.wait(loading + 2 + EPOCHS_MEASURED)
        client.cancel().result()
        return measured(sorted(steps.committed.values())[loading + 1 :], rows, [])
    began = time.perf_counter()
    client.trigger_savepoint().result()
    seconds = time.perf_counter() - began
    client.cancel().result()
    during = [t for t in sorted(steps.committed.values()) if began <= t <= began + seconds]
    return measured(during, rows, [seconds])


def following(scenario: Scenario, engine: str, temporary: str, directory: Path, loading: int) -> Measurement:
    steps = Steps()
    client = start(job(f"{temporary}/state", directory, scenario.rows_per_epoch), engine, steps)
    steps.wait(loading)
    began = time.perf_counter()
    client.trigger_savepoint().result()
    print(f"the first savepoint: {time.perf_counter() - began:.2f} s", file=sys.stderr)
    changed = np.random.default_rng(scenario.keys).choice(scenario.keys, scenario.keys // 100, replace=False)
    times = START_MS + scenario.keys + np.arange(len(changed))
    file = Path(temporary) / "changed.parquet"
    pq.write_table(pa.table({"key": changed, "amount": np.ones(len(changed), np.int64), "ts": times}, SCHEMA), file)
    file.rename(directory / "changed.parquet")
    steps.wait(loading + 1)
    began = time.perf_counter()
    path = client.trigger_savepoint().result()
    seconds = time.perf_counter() - began
    client.cancel().result()
    saved = SavepointReader.read(path).metadata
    states = [state for operator in saved.operators for state in operator.states]
    assert sum(state.entries for state in states) == scenario.keys
    share = saved.own_bytes / sum(state.bytes for state in states)
    return Measurement(len(changed) / seconds, [seconds], scenario.keys, share)


def saved(scenario: Scenario, engine: str) -> str:
    """The savepoint after the last of the files with every key; created if missing."""
    kept = HOME / f"savepoint-{scenario.keys}-keys"
    if not kept.exists():
        with tempfile.TemporaryDirectory(prefix="forkpoint-bench-", dir=HOME) as temporary:
            directory = Path(temporary) / "bids"
            stage(directory, scenario.keys, 0)
            steps = Steps()
            client = start(job(f"{temporary}/state", directory, scenario.rows_per_epoch), engine, steps)
            steps.wait(scenario.keys // scenario.rows_per_epoch)
            path = client.stop_with_savepoint().result()
            client.get_job_execution_result().result()
            shutil.move(urlsplit(path).path, kept)
    return str(kept)


def restoring(scenario: Scenario, engine: str, temporary: str, directory: Path, path: str) -> Measurement:
    warm = start(job(f"{temporary}/warm", directory, 1000), engine, warm_steps := Steps())  # starts the engine
    warm_steps.wait(1)
    warm.cancel().result()
    parallelism = CORES + 1 if scenario.kind == "rescale" else CORES
    env = job(f"{temporary}/restored", directory, scenario.rows_per_epoch, parallelism, migrated=scenario.kind == "migrate")
    steps, began = Steps(), time.perf_counter()
    client = start(env, engine, steps, path)
    steps.wait(1)
    seconds = min(steps.committed.values()) - began
    client.cancel().result()
    return Measurement(scenario.keys / seconds, [seconds], scenario.keys)


def measured(times: list[float], rows: int, seconds: list[float]) -> Measurement:
    if len(times) < 2:
        raise RuntimeError(f"only {len(times)} epochs were committed meanwhile: not enough to tell the throughput")
    rate = rows * (len(times) - 1) / (times[-1] - times[0])
    steps: Any = np.diff(times).tolist()
    return Measurement(rate, seconds or steps, rows * len(times))

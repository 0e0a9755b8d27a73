"""Memory of a replay: bids from Parquet in epochs of the source's own limit, counted and summed by key.

    python benchmarks/memory.py [--rows 20000000] [--engine spark|local] [--limit-mib 2048]

Prints one line of JSON: the greatest resident size of the driver, of Spark's JVM and of any Python worker, in MiB, the
duration of the replay in seconds and of its epochs. Exits with 1 if a worker was above the limit.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil
from data import FILE_ROWS, stage_input
from forkpoint_side import build
from scenarios import CORES

import forkpoint as fp
from forkpoint.api.launch import Launch

MIB = 2**20
SAMPLE_SECONDS = 0.25


class Epochs:
    """Records the duration of each epoch."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._began = 0.0

    def on_step(self, step: str, epoch: int) -> None:
        if step == "planned":
            self._began = time.perf_counter()
        elif step == "published":
            self.seconds.append(time.perf_counter() - self._began)


class Watcher:
    """Samples the resident size of this process and its descendants, by kind."""

    def __init__(self) -> None:
        self.peaks: dict[str, int] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._ended.wait(SAMPLE_SECONDS):
            for process in (me, *me.children(recursive=True)):
                try:
                    kind = "driver" if process == me else "jvm" if process.name() == "java" else "worker"
                    # Pages shared with the daemon that forks the workers count for each worker.
                    self.peaks[kind] = max(self.peaks.get(kind, 0), process.memory_info().rss)
                except psutil.NoSuchProcess:
                    continue


def replay(rows: int, engine: str, kind: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="forkpoint-memory-") as temporary:
        directory = Path(temporary) / "bids"
        stage_input(FILE_ROWS, rows // FILE_ROWS, directory)
        env = fp.StreamExecutionEnvironment.get_execution_environment()
        env.set_state_root(f"{temporary}/state").set_parallelism(CORES)
        build(env, kind, directory)
        clock, began = Epochs(), time.perf_counter()
        env.launch = Launch(options={"engine": engine}, steps=clock)
        with Watcher() as watcher:
            env.execute("memory")
        return {
            "rows": rows // FILE_ROWS * FILE_ROWS,
            "engine": engine,
            "kind": kind,
            "seconds": round(time.perf_counter() - began, 1),
            "epochs": len(clock.seconds),
            "epoch_seconds": round(max(clock.seconds), 2),
            "peak_mib": {kind: round(peak / MIB) for kind, peak in watcher.peaks.items()},
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--engine", default="spark")
    parser.add_argument("--kind", default="process", choices=["process", "map_with_state", "sum"])
    parser.add_argument("--limit-mib", type=int, default=2048)
    arguments = parser.parse_args()
    found = replay(arguments.rows, arguments.engine, arguments.kind)
    print(json.dumps(found))
    if found["peak_mib"].get("worker", 0) > arguments.limit_mib:
        raise SystemExit(f"a worker took {found['peak_mib']['worker']} MiB, more than {arguments.limit_mib}")


if __name__ == "__main__":
    main()

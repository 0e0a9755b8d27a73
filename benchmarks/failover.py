"""How long a job has no leader after its driver was killed, with a standby beside it.

    python benchmarks/failover.py                                 1 million keys, 50 kills, the local engine
    python benchmarks/failover.py --engine spark --kills 10

A job that counts by key is filled with every key once, and goes on with small epochs. Its leader is killed (SIGKILL) again and
again; each time, the take-over lasts from the kill to the first epoch that the standby commits, and a new standby is
started. In the end every number must be in the output once, with its count.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from forkpoint import operations
from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.storage.base import open_storage

JOB = "failover"
FILL_ROWS, STEADY_ROWS = 200_000, 2_000
WARM_SECONDS = 3.0
APP = f"""
import os
import forkpoint as fp

KEYS = int(os.environ["KEYS"])


def count(number, state):
    state = (state or 0) + 1
    return (number, state), state


env = fp.StreamExecutionEnvironment.get_execution_environment()
env.enable_checkpointing(200).set_parallelism(2)
source = fp.CounterSource(per_epoch=int(os.environ["ROWS"]))
numbers = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
counted = numbers.key_by(lambda n: n % KEYS, int).map_with_state(count, int, tuple[int, int]).uid("counts")
counted.sink_to(fp.FileSink.csv("out")).uid("out")
env.execute({JOB!r})
"""


class Job:
    def __init__(self, home: Path, engine: str, keys: int) -> None:
        self.home, self.keys = home, keys
        (home / "app.py").write_text(APP)
        self._env = os.environ | {"FORKPOINT_ENGINE": engine, "KEYS": str(keys), "SPARK_MASTER": "local[2]"}
        self.root = str(home / "state")
        self.history = History(open_storage(self.root), JobPaths(JOB))

    def start(self, rows: int) -> dict[str, Any]:
        """A driver in the background: it leads the job, or stands by for it."""
        started: dict[str, Any] = json.loads(self.command("run", "-d", "--standby", "app.py", rows=rows))
        return started

    def command(self, *arguments: str, rows: int = STEADY_ROWS) -> bytes:
        """The output of a `forkpoint` command."""
        command = [sys.executable, "-m", "forkpoint.cli", "--state-root", self.root, "--output", "json", *arguments]
        return subprocess.check_output(command, cwd=self.home, env=self._env | {"ROWS": str(rows)})

    def gaps(self) -> list[float]:
        """The seconds between the last commits."""
        times = [self.history.load(epoch).created_ms / 1000 for epoch in self.history.epochs()]
        return [after - before for before, after in pairwise(times)]

    def fill(self) -> None:
        self.start(FILL_ROWS)
        while self.position() < self.keys:
            time.sleep(0.2)
        operations.cancel(JOB, state_root=self.root)

    def position(self) -> int:
        newest = self.history.newest()
        source = None if newest is None else newest.sources.get("numbers")
        return 0 if source is None or source.position is None else int(source.position["next"])

    def wait_for_epoch_of(self, run: str) -> None:
        """Wait until a run has committed an epoch after its first manifest."""
        while (newest := self.history.newest()) is None or newest.run != run or newest.kind == "start":
            time.sleep(0.01)

    def check(self) -> int:
        """The number of rows in the output; raises SystemExit unless each number is there once, with its count."""
        rows: set[tuple[int, int]] = set()
        lines = 0
        for file in (self.home / "out").rglob("part-*"):
            for line in file.read_text().splitlines()[1:]:
                number, count = line.split(",")
                rows.add((int(number), int(count)))
                lines += 1
        expected = {(n, n // self.keys + 1) for n in range(lines)}
        if rows != expected:
            sys.exit(f"lost or repeated: {len(expected - rows)} rows are missing, {lines - len(rows)} are repeated")
        return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=["local", "spark"], default="local")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=50)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="forkpoint-failover-") as home:
        job = Job(Path(home), options.engine, options.keys)
        job.fill()
        leader, standby = job.start(STEADY_ROWS), job.start(STEADY_ROWS)
        job.wait_for_epoch_of(leader["run"])
        took: list[float] = []
        for kill in range(options.kills):
            time.sleep(WARM_SECONDS)
            began = time.monotonic()
            os.killpg(leader["pid"], signal.SIGKILL)
            job.wait_for_epoch_of(standby["run"])
            took.append(time.monotonic() - began)
            print(f"kill {kill + 1}: {took[-1]:.2f} s", flush=True)
            leader, standby = standby, job.start(STEADY_ROWS)
        operations.cancel(JOB, state_root=job.root)
        rows = job.check()
    ordered = sorted(took)
    p99 = ordered[min(len(ordered) - 1, round(0.99 * len(ordered)))]
    print(
        f"{options.engine}, {options.keys:,} keys, {len(took)} kills: take-over median {statistics.median(took):.2f} s, "
        f"p99 {p99:.2f} s, longest {ordered[-1]:.2f} s; {rows:,} rows, none lost, none repeated"
    )


if __name__ == "__main__":
    main()

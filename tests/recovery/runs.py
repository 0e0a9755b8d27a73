"""Starting the program in processes, and what is left when they have ended."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import program
import pyarrow.parquet as pq
from program import JOB, Plan

from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.savepoint.export.exporter import export_savepoint
from forkpoint.savepoint.format.tasks import run_here
from forkpoint.storage.base import open_storage
from programs import ENVIRONMENT, Python

KILLED = -signal.SIGKILL


def write_input(directory: Path, elements: int = 100, files: int = 4, seed: int = 7) -> None:
    """Some files of events, in order of time but for a little disorder; complete when they appear."""
    rng = random.Random(seed)
    (directory / "input").mkdir(parents=True)
    for number in range(files):
        size = elements // files
        events = [
            {
                "key": f"k{rng.randrange(9)}",
                "amount": rng.randrange(14),
                "ts": (number * size + i) * 97 + rng.randrange(80),
            }
            for i in range(size)
        ]
        path = directory / "input" / f"{number:03d}.json"
        path.write_text("".join(json.dumps(event) + "\n" for event in events))
        os.utime(path, (1_700_000_000 + number,) * 2)


def start(plan: Plan) -> Python:
    """A forked process that runs the plan (local engine)."""
    return Python([program.__file__, "forked", program.to_json(plan)], env=ENVIRONMENT, start_new_session=True)


def finish(process: Python) -> int:
    return process.wait()


def run_forked(plan: Plan) -> int:
    """Run to the end and return the exit code."""
    return finish(start(plan))


def start_spark(plan: Plan, **environment: str) -> subprocess.Popen[bytes]:
    log = open(Path(plan.directory, f"log-{len(list(Path(plan.directory).glob('log-*')))}"), "wb")  # noqa: SIM115
    return subprocess.Popen(
        [sys.executable, program.__file__, program.to_json(replace(plan, engine="spark"))],
        env={**os.environ, "SPARK_MASTER": "local[2]", **environment},
        stdout=log,
        stderr=log,
    )


def logs(directory: Path) -> str:
    """What the processes wrote, for messages of failed tests."""
    return "\n".join(f"== {path.name}\n{path.read_text()[-6000:]}" for path in sorted(directory.glob("*-*")) if path.is_file())


@dataclass(frozen=True)
class Outcome:
    """All that a job leaves: lines and how often each, state by key, pending timers."""

    lines: Counter[str]
    totals: dict[str, tuple[int, int]]
    timers: set[tuple[str, int]]


def outcome(directory: Path) -> Outcome:
    return Outcome(lines(directory), *state_of(directory))


def lines(directory: Path) -> Counter[str]:
    """Of all files that a reader of the output sees."""
    files = [path for path in (directory / "output").rglob("*") if path.is_file() and not path.name.startswith(".")]
    assert not [path for path in files if not path.name.startswith("part-")], files
    return Counter(line for path in files for line in path.read_text().splitlines())


def history(directory: Path, job: str = JOB) -> History:
    return History(open_storage(str(directory / "state")), JobPaths(job))


def state_of(directory: Path, uid: str = "totals", job: str = JOB) -> tuple[dict[str, Any], set[tuple[str, int]]]:
    """State and timers at the newest checkpoint, by way of a savepoint."""
    past = history(directory, job)
    newest = past.newest()
    assert newest is not None
    with tempfile.TemporaryDirectory() as place:
        export_savepoint(storage=past.storage, manifest=newest, target=open_storage(place), savepoint_id="s", run_tasks=run_here)
        return read_savepoint(Path(place), uid)


def read_savepoint(place: Path, uid: str = "totals", state: str = "total") -> tuple[dict[str, Any], set[tuple[str, int]]]:
    rows = pq.read_table(place / "operators" / uid / state).to_pylist()
    totals = {row["key"]: (row["f0"], row["f1"]) for row in rows}
    timers: set[tuple[str, int]] = set()
    if (place / "operators" / uid / "_timers").is_dir():
        rows = pq.read_table(place / "operators" / uid / "_timers").to_pylist()
        timers = {(row["key"], row["timestamp"]) for row in rows}
    return totals, timers


def wait_until_halted(process: Any) -> None:
    """Until the process has stopped itself."""
    while True:
        try:
            state = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            break
        if state == "T":
            return
        time.sleep(0.005)
    raise AssertionError("the process did not come to the step where it was to stop")


def errors(directory: Path) -> list[str]:
    """The last lines of the errors that forked processes ended with."""
    return [path.read_text().rstrip().splitlines()[-1] for path in directory.glob("error-*")]

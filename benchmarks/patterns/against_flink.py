"""Patterns on forkpoint and on Flink 2.3's CEP in Java, in turn on the same machine.

    python benchmarks/patterns/against_flink.py [--only NAME …] [--rounds N] [--sides NAME …] [--parallelism N]

Both make the events from a sequence of numbers: 100,000 keys, each with an event a second of event time. ``stages``: three
stages, which 1 % of the events begin, within 10 s. ``loop``: one or more, then another, within 5 s. A side's throughput is the
difference in events over that in time between a long and a short run, so that starts don't count. The ratios are to Flink's heap
state; the median of the rounds.

With RocksDB (``--sides flink-rocksdb``) Flink takes the longer for an event the more there are, as it seeks past what it has
removed: 18,000 events/s of the first 75,000. So that side is only measured on request, with few events.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
HOME = HERE.parents[1]
sys.path.append(str(HOME / "tests"))
from servers.jars import jars, java  # noqa: E402

_OPENS = [f"--add-opens=java.base/java.{each}=ALL-UNNAMED" for each in ("util", "lang", "time")]
FORKPOINT = {"spark": ("spark", "functions"), "spark-columns": ("spark", "columns"), "local": ("local", "functions")}
FLINK = {"flink-heap": "hashmap", "flink-rocksdb": "rocksdb"}
EVENTS = {"stages": 6_000_000, "loop": 2_000_000}


def seconds(side: str, pattern: str, events: int, parallelism: int) -> float:
    with tempfile.TemporaryDirectory(prefix="pattern-bench-") as directory:
        environment = {**os.environ, "SPARK_MASTER": f"local[{parallelism}]"}
        if side in FLINK:
            libraries = jars("flink-patterns", HERE / "flink.xml")
            command = [java(), *_OPENS, "-Xmx2g", "-cp", f"{_compiled(libraries)}:{libraries}/*", "FlinkPatterns", pattern]
            command += [str(events), FLINK[side], str(parallelism), Path(directory).as_uri()]
        else:
            engine, conditions = FORKPOINT[side]
            command = [sys.executable, "-m", "forkpoint.cli", "--state-root", f"{directory}/state", "run"]
            command += [
                "-p",
                str(parallelism),
                "--engine",
                engine,
                str(HERE / "program.py"),
                "--",
                pattern,
                str(events),
                conditions,
            ]
        began = time.monotonic()
        done = subprocess.run(command, env=environment, cwd=directory, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{side}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        return time.monotonic() - began


def _compiled(libraries: Path) -> Path:
    classes = HOME / "build" / "flink-patterns" / "classes"
    source = HERE / "FlinkPatterns.java"
    if (
        not (classes / "FlinkPatterns.class").exists()
        or (classes / "FlinkPatterns.class").stat().st_mtime < source.stat().st_mtime
    ):
        command = [java("javac"), "-nowarn", "-cp", f"{libraries}/*", "-d", str(classes), str(source)]
        subprocess.run(command, check=True)
    return classes


def events_per_second(side: str, pattern: str, parallelism: int) -> float:
    events = EVENTS[pattern] // 80 if side == "flink-rocksdb" else EVENTS[pattern]
    short, long = (seconds(side, pattern, count, parallelism) for count in (events // 4, events))
    return events * 3 / 4 / (long - short)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", nargs="+", choices=EVENTS, default=list(EVENTS))
    arguments.add_argument("--sides", nargs="+", choices=[*FORKPOINT, *FLINK], default=[*FORKPOINT, "flink-heap"])
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--parallelism", type=int, default=2)
    given = arguments.parse_args()
    print(f"{'':12}{'':16}{'events/s':>12}{'× flink-heap':>14}")
    for pattern in given.only:
        found: dict[str, list[float]] = {side: [] for side in given.sides}
        for _ in range(given.rounds):
            for side, values in found.items():
                values.append(events_per_second(side, pattern, given.parallelism))
        heap = found.get("flink-heap")
        for side, values in found.items():
            ratio = "" if heap is None else f"{statistics.median(a / b for a, b in zip(values, heap, strict=True)):14.2f}"
            print(f"{pattern:12}{side:16}{statistics.median(values):12,.0f}{ratio}", flush=True)


if __name__ == "__main__":
    main()

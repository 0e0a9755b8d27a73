"""Runs a job on sides of forkpoint and of Flink in Java, in turn on the same machine, and prints their throughputs."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from servers.jars import compiled, jars, java

OPENS = [f"--add-opens=java.base/java.{each}=ALL-UNNAMED" for each in ("util", "lang", "time")]
FLINK = {"flink-heap": "hashmap", "flink-rocksdb": "rocksdb"}
"""Flink's sides, with their state backends."""


def java_command(server: str, program: Path, *arguments: str) -> list[str]:
    """A Java program beside its ``flink.xml``, with the jars of ``server``, which the first call fetches."""
    classpath = f"{jars(server, program.with_name('flink.xml'))}/*"
    classes = compiled(program, classpath)
    return [java(), *OPENS, "-Xmx2g", "-cp", f"{classes}:{classpath}", program.stem, *arguments]


def forkpoint_command(directory: Path, parallelism: int, *arguments: str) -> list[str]:
    """A run with its state root in a directory. ``arguments``: of ``forkpoint run``."""
    command = [sys.executable, "-m", "forkpoint.cli", "--state-root", f"{directory}/state", "run"]
    return [*command, "-p", str(parallelism), *arguments]


def seconds(side: str, command: list[str], directory: Path, parallelism: int) -> float:
    began = time.monotonic()
    environment = {**os.environ, "SPARK_MASTER": f"local[{parallelism}]"}
    done = subprocess.run(command, env=environment, cwd=directory, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{side}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return time.monotonic() - began


def compare(
    description: str | None,
    unit: str,
    jobs: Iterable[str],
    sides: list[str],
    default: list[str],
    per_second: Callable[[str, str, int], float],
) -> None:
    """Measure each job on each side, as the command line says. ``per_second``: of a side, a job and a parallelism."""
    arguments = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", nargs="+", choices=jobs, default=list(jobs))
    arguments.add_argument("--sides", nargs="+", choices=sides, default=default)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--parallelism", type=int, default=2)
    given = arguments.parse_args()
    print(f"{'':12}{'':16}{unit:>12}{'× flink-heap':>14}")
    for job in given.only:
        found: dict[str, list[float]] = {side: [] for side in given.sides}
        for _ in range(given.rounds):
            for side, values in found.items():
                values.append(per_second(side, job, given.parallelism))
        heap = found.get("flink-heap")
        for side, values in found.items():
            ratio = "" if heap is None else f"{statistics.median(a / b for a, b in zip(values, heap, strict=True)):14.2f}"
            print(f"{job:12}{side:16}{statistics.median(values):12,.0f}{ratio}", flush=True)

"""Runs jobs on sides of forkpoint and of Flink in Java, in turn on the same machine, prints their throughputs, and puts them into
flink.json, in the form of bench.json."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from servers.jars import compiled, jars, java

OPENS = [f"--add-opens=java.base/java.{each}=ALL-UNNAMED" for each in ("util", "lang", "time")]
FLINK = {"flink-heap": "hashmap", "flink-rocksdb": "rocksdb"}
"""Flink's sides, with their state backends."""
REFERENCES = {"flink-heap": "Flink heap", "flink-rocksdb": "Flink RocksDB"}
FIGURES = Path("flink.json")


@dataclass(frozen=True)
class Figure:
    """One entry of flink.json or nexmark.json, as in bench.json."""

    name: str
    value: float
    unit: str
    reference: str
    reference_value: float
    ratio: float

    @staticmethod
    def of(name: str, unit: str, ours: Sequence[float], reference: str, theirs: Sequence[float]) -> Figure:
        """Medians of the rounds."""
        ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
        return Figure(name, statistics.median(ours), unit, reference, statistics.median(theirs), ratio)


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
    kind: str,
    unit: str,
    jobs: Iterable[str],
    sides: list[str],
    default: list[str],
    per_second: Callable[[str, str, int], float],
) -> None:
    """Measure each job on each side, as the command line says. ``kind``: of the jobs, before their names in flink.json.
    ``per_second``: of a side, a job and a parallelism."""
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
        ours = [side for side in found if side not in FLINK]
        theirs = [side for side in REFERENCES if side in found]
        save([Figure.of(f"{kind} {job}, {a}", unit, found[a], REFERENCES[b], found[b]) for a in ours for b in theirs])


def save(new: Sequence[Figure]) -> None:
    """Put figures into flink.json, in place of earlier ones of the same names."""
    names = {figure.name for figure in new}
    before = json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else []
    kept = [figure for figure in before if figure["name"] not in names]
    FIGURES.write_text(json.dumps([*kept, *map(asdict, new)], indent=2) + "\n", encoding="utf-8")

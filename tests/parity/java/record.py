"""Runs the programs of ``src/`` on Flink 2.3.0 and writes what came out to ``recorded/``.

    python tests/parity/java/record.py [--check] [PROGRAM…]

Needs a JDK (17 or newer) and Maven, which gets Flink's jars into ``.flink/java`` the first time. With ``--check``
nothing is written, and the exit code tells whether Flink still gives what is recorded.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import java_combining as combining
import java_inputs as inputs
import java_recorded as recorded
import java_tools as java

HERE = Path(__file__).resolve().parent
WORK = HERE.parents[2] / ".flink" / "java"
ATTEMPTS = 6


def settled(classes: str, names: list[str]) -> dict[str, recorded.Results]:
    """Each program's results; of paced ones those that came twice."""
    found, doubtful = run_programs(classes, names)
    seen = {name: [results] for name, results in found.items()}
    for _ in range(ATTEMPTS):
        if not doubtful:
            return found
        again, paced = run_programs(classes, sorted(doubtful))
        doubtful = {name for name in paced if again[name] not in seen[name]}
        for name, results in again.items():
            seen[name].append(results)
        found.update(again)
    sys.exit(f"record.py: {sorted(doubtful)} gave something else each time; run it on a machine that is less busy")


def run_programs(classes: str, names: list[str]) -> tuple[dict[str, recorded.Results], set[str]]:
    command = [java.tool("java"), "-Xmx1g", *java.OPENS, "-cp", classes, "Parity", str(inputs.DIRECTORY), *names]
    with (WORK / "flink.log").open("w") as log:
        ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True, check=False)
    if ran.returncode:
        sys.exit(f"record.py: Flink failed\n{(WORK / 'flink.log').read_text()[-4000:]}")
    return recorded.from_flink(ran.stdout.splitlines())


def combine(classes: str) -> str:
    """What Flink makes of several channels' watermarks; no job is needed for that."""
    given = WORK / "steps"
    given.write_text(combining.steps())
    command = [java.tool("java"), "-cp", classes, "Combining", str(given)]
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    return combining.to_text(given.read_text(), ran.stdout.splitlines())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail where Flink gives something else")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help="only these")
    given = parser.parse_args()
    classes = java.class_path(HERE, WORK)
    if not given.check:
        inputs.write()
    found = settled(classes, given.programs)
    texts = {f"{name}.json": recorded.to_text(results) for name, results in found.items()}
    if not given.programs:
        texts[combining.PATH.name] = combine(classes)
    recorded.DIRECTORY.mkdir(exist_ok=True)
    changed = []
    for name, text in texts.items():
        path = recorded.DIRECTORY / name
        if not path.exists() or path.read_text() != text:
            changed.append(name)
            if not given.check:
                path.write_text(text)
    print(f"{len(texts)} programs on Flink; {len(changed)} with other results than recorded: {changed or 'none'}")
    return 1 if given.check and changed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs the programs of patterns and the queries with MATCH_RECOGNIZE on Flink 2.3.0 and writes what came out.

    python tests/parity/java/patterns/record_patterns.py [--check] [NAME…]

``recorded.json`` has an entry for each program of ``pattern_programs.py``:

- ``matches``, ``timed_out``: lists of ``[timestamp of the output, {stage: [index of an event, …]}]``, in the order of output
- ``late``: indices of the late events, in the order of output
- ``refused``: ``[name of the exception, message]`` of a pattern that Flink doesn't accept; ``failed`` likewise of a job that
  ended so, beside what had come out
- ``each``: the same again with a watermark for every millisecond, where that gives something else

``recorded_queries.json`` has an entry for each query of ``pattern_queries.py``:

- ``columns``: types by name; ``rows``: in the order of output, times and decimals as text
- ``refused``, ``failed``: as above, of the innermost cause

Each runs twice, and results that differ are not recorded. Needs a JDK (17 or newer) and Maven, which gets Flink's jars into
``.flink/patterns`` the first time. With ``--check`` nothing is written, and the exit code tells whether Flink still gives what is
recorded.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pattern_programs
import pattern_queries

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import java_tools as java  # noqa: E402

WORK = HERE.parents[3] / ".flink" / "patterns"


def on_flink(classes: str, main: str, given: Any) -> dict[str, Any]:
    """What the class ``main`` prints of each entry, by name."""
    path, log = WORK / f"{main}.json", WORK / f"{main}.log"
    path.write_text(json.dumps(given))
    command = [java.tool("java"), "-Xmx1g", *java.OPENS, "-cp", classes, main, str(path)]
    with log.open("w") as errors:
        ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, text=True, check=False)
    if ran.returncode:
        sys.exit(f"record_patterns.py: Flink failed\n{log.read_text()[-4000:]}")
    return {name: json.loads(found) for name, found in (line.split("\t") for line in ran.stdout.splitlines())}


def twice(classes: str, main: str, given: Any, names: list[str]) -> dict[str, Any]:
    one, other = on_flink(classes, main, given), on_flink(classes, main, given)
    assert set(one) == set(other) == set(names), set(names) - set(one)
    differ = [name for name in names if one[name] != other[name]]
    if differ:
        print(f"not recorded, because two runs differ: {differ}")
    return {name: one[name] for name in names if name not in differ}


def update(path: Path, found: dict[str, Any], names: list[str], check: bool) -> list[str]:
    """Names whose results were not recorded so; they are written, one a line, and those that are no longer there go."""
    recorded = json.loads(path.read_text()) if path.exists() else {}
    changed = [name for name, result in found.items() if recorded.get(name) != result]
    kept = {name: recorded[name] for name in names if name in recorded} | found
    gone = [name for name in recorded if name not in names]
    if not check:
        lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(kept[name], ensure_ascii=False)}" for name in names if name in kept)
        path.write_text(f"{{\n{lines}\n}}\n")
    return changed + gone


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail where Flink gives something else")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these programs and queries")
    given = parser.parse_args()
    classes = java.class_path(HERE, WORK)
    changed = []
    for main, every, file in (
        ("Patterns", pattern_programs.PROGRAMS, "recorded"),
        ("Queries", pattern_queries.QUERIES, "recorded_queries"),
    ):
        chosen = [one for one in every if not given.names or one["name"] in given.names]
        names = [one["name"] for one in chosen]
        found = twice(classes, main, {"tables": pattern_queries.TABLES, "entries": chosen}, names) if chosen else {}
        others = update(HERE / f"{file}.json", found, [one["name"] for one in every], given.check)
        print(f"{len(found)} of {main} on Flink; {len(others)} with other results than recorded: {others or 'none'}")
        changed += others
    return 1 if given.check and changed else 0


if __name__ == "__main__":
    sys.exit(main())

"""What Flink gave: one file of JSON lines for each program.

A line holds the results of one key of one output, in order, each as ``[timestamp, value, …]``. ``watermarks`` says which
run it is from: ``jump`` (one watermark behind each element), ``each`` (one for every millisecond on the way), or ``any``
where both gave the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).parent / "recorded"

ANY, JUMP, EACH = "any", "jump", "each"

# (input, watermarks) → output → key → results in order
Results = dict[tuple[str, str], dict[str, dict[Any, list[list[Any]]]]]


def from_flink(lines: Iterable[str]) -> tuple[dict[str, Results], set[str]]:
    """What ``java Parity`` printed, by program, and which programs are paced: may have come out wrong."""
    found: dict[str, Results] = {}
    paced = set()
    for line in lines:
        name, *rest = line.rstrip("\n").split("\t")
        if name == "program":
            found[rest[0]] = {}
            if rest[1] == "paced":
                paced.add(rest[0])
            continue
        given, watermarks, output, stamp, row = rest
        key, *values = json.loads(row)
        keys = found[name].setdefault((given, watermarks), {}).setdefault(output, {})
        keys.setdefault(key, []).append([json.loads(stamp), *values])
    return {name: _joined(results) for name, results in found.items()}, paced


def _joined(results: Results) -> Results:
    """The runs of an input as one where they gave the same."""
    joined: Results = {}
    for given in sorted({given for given, _ in results}):
        jump, each = results.get((given, JUMP), {}), results.get((given, EACH))
        if each is None or jump == each:
            joined[given, ANY] = jump
        else:
            joined[given, JUMP], joined[given, EACH] = jump, each
    return joined


def to_text(results: Results) -> str:
    lines = [
        json.dumps({"input": given, "watermarks": watermarks, "output": output, "key": key, "results": found})
        for (given, watermarks), outputs in sorted(results.items())
        for output, keys in sorted(outputs.items())
        for key, found in sorted(keys.items())
    ]
    return "".join(line + "\n" for line in lines)


def names() -> list[str]:
    return sorted(path.stem for path in DIRECTORY.glob("*.json"))


def read(program: str) -> Results:
    found: Results = {}
    for line in (DIRECTORY / f"{program}.json").read_text().splitlines():
        row = json.loads(line)
        outputs = found.setdefault((row["input"], row["watermarks"]), {})
        outputs.setdefault(row["output"], {})[row["key"]] = row["results"]
    return found

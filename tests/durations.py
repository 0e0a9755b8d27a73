"""How long each file of tests takes: recorded in ``durations.json``, so that the longest start first and no process is left alone
with one at the end.

    python tests/durations.py build/tests.xml build/spark.xml     # records what `make test` took
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
RECORD = Path(__file__).with_suffix(".json")
UNKNOWN_S = 60.0  # so that a new file starts early


def recorded() -> Mapping[str, float]:
    """Seconds by file, relative to the repository."""
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}


def measured(reports: Iterable[Path]) -> dict[str, float]:
    """Seconds by file, from JUnit's reports."""
    found: Counter[str] = Counter()
    for report in reports:
        for case in ElementTree.parse(report).iter("testcase"):
            file = f"{case.attrib['classname'].replace('.', '/')}.py"
            found[file] += float(case.attrib["time"])
    return {file: round(seconds, 1) for file, seconds in sorted(found.items()) if (ROOT / file).exists()}


if __name__ == "__main__":
    times = {**recorded(), **measured(map(Path, sys.argv[1:]))}
    kept = {file: seconds for file, seconds in sorted(times.items()) if (ROOT / file).exists()}
    RECORD.write_text(json.dumps(kept, indent=0) + "\n")
    print(f"{len(kept)} files, {sum(kept.values()):.0f} s")

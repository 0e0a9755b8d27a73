"""Fails if a benchmark uses what is no longer there: nobody runs them all, and they use internals and the tests' servers.

mypy, for each directory by itself, as its programs import each other by their plain names.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
SHARED = ("tests", "tests/kafka", "tests/cluster", "benchmarks")
LESS_STRICT = ("--explicit-package-bases", "--allow-subclassing-any", "--no-warn-return-any")


def main() -> int:
    failed = 0
    places = {program.parent for program in (HOME / "benchmarks").rglob("*.py")}
    for place in sorted(places):
        programs = [str(program) for program in sorted(place.glob("*.py")) if not program.name.startswith("pyflink_")]
        path = os.pathsep.join([*(str(HOME / each) for each in SHARED), str(place)])
        command = [sys.executable, "-m", "mypy", "--no-error-summary", *LESS_STRICT, *programs]
        failed |= subprocess.run(command, cwd=HOME, env=os.environ | {"MYPYPATH": path}).returncode
    return failed


if __name__ == "__main__":
    sys.exit(main())

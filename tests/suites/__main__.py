"""Public suites of SQL tests: python -m suites duckdb DIRECTORY | calcite CHECKOUT."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
import warnings
from pathlib import Path

from suites import quidem, sqllogic
from suites.outcomes import Outcome, report


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m suites", description=__doc__)
    parser.add_argument("suite", choices=("duckdb", "calcite"))
    parser.add_argument("directories", type=Path, nargs="+", help="with sqllogictest files, or a checkout of Calcite")
    parser.add_argument("--reasons", type=int, default=60, help="how many reasons of refusals to print")
    parser.add_argument("--only", default="", help="files whose path contains this")
    parser.add_argument("--list", type=Path, help="write a line for each query")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    found: list[Outcome] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as scratch:
        for directory in options.directories:
            if options.suite == "duckdb":
                for at, file in enumerate(sqllogic.files(directory)):
                    if options.only in str(file):
                        into = Path(scratch) / f"{len(found)}-{at}"
                        into.mkdir()
                        found += sqllogic.outcomes(file, str(file.relative_to(directory)), into)
            else:
                views = quidem.schemas(directory)
                for file in sorted((directory / "core/src/test/resources/sql").glob("*.iq")):
                    if options.only in str(file):
                        found += quidem.outcomes(file, file.name, views)
    seconds = time.monotonic() - began
    print(report(found, options.reasons))
    print(f"\n{len(found)} queries in {seconds:.0f} s, {1000 * seconds / max(len(found), 1):.0f} ms each")
    if options.list:
        lines = (f"{e.kind}\t{e.file}:{e.line}\t{e.reason}\t{' '.join(e.query.split())}\n" for e in found)
        options.list.write_text("".join(lines))
    sys.exit(any(each.kind == "wrong" for each in found))


if __name__ == "__main__":
    main()

"""Public suites of SQL tests: python -m suites duckdb DIRECTORY | calcite CHECKOUT | changes [DIRECTORY].

``duckdb`` and ``calcite`` run the queries over their tables. ``changes`` runs those that are equal, and the queries of this
repository, over random tables that change, through deaths and a savepoint, and counts them.
"""

from __future__ import annotations

import argparse
import logging
import resource
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from pathlib import Path

from suites import counted, quidem, sqllogic
from suites.outcomes import GIGABYTES, Outcome, counts, report


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m suites", description=__doc__)
    parser.add_argument("suite", choices=("duckdb", "calcite", "changes"))
    parser.add_argument("directories", type=Path, nargs="*", help="with sqllogictest files, or a checkout of Calcite")
    parser.add_argument("--reasons", type=int, default=60, help="how many reasons of refusals to print")
    parser.add_argument("--only", default="", help="files whose path contains this")
    parser.add_argument("--list", type=Path, help="write a line for each query")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_DATA, (GIGABYTES * 2**30,) * 2)
    for name in ("sqlglot", "forkpoint"):
        logging.getLogger(name).setLevel(logging.ERROR)
    began = time.monotonic()
    by_place: dict[str, list[Outcome]] = defaultdict(list)
    of_changes: dict[str, list[counted.Counted]] = defaultdict(list)
    if options.suite == "changes":
        of_changes["tests of this repository"] += counted.own() if not options.only else ()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as scratch:
        for directory in [given.resolve() for given in options.directories]:
            if options.suite == "calcite":
                views = quidem.schemas(directory)
                for file in sorted((directory / "core/src/test/resources/sql").glob("*.iq")):
                    if options.only in str(file):
                        by_place[file.name] += quidem.outcomes(file, file.name, views)
                continue
            for at, file in enumerate(sqllogic.files(directory)):
                if options.only in str(file):
                    into = Path(scratch) / f"{directory.name}-{at}"
                    into.mkdir()
                    name = str(file.relative_to(directory.parent))
                    place = name.split("/")[0] if file.parent == directory else "/".join(name.split("/")[:2])
                    if options.suite == "duckdb":
                        by_place[place] += sqllogic.outcomes(file, name, into, sqllogic.of_query)
                    else:
                        of_changes[place] += sqllogic.outcomes(file, name, into, counted.of_file)
    seconds = time.monotonic() - began
    found = [each for some in by_place.values() for each in some]
    if options.suite == "changes":
        found = [each.outcome for some in of_changes.values() for each in some]
        print(counted.table_of(of_changes), end="\n\n")
    else:
        print(counts(by_place), end="\n\n")
    print(report(found, options.reasons))
    print(f"\n{len(found)} queries in {seconds:.0f} s, {1000 * seconds / max(len(found), 1):.0f} ms each")
    if options.list:
        how = [each.how for some in of_changes.values() for each in some] or [""] * len(found)
        rows = zip(found, how, strict=True)
        lines = (f"{e.kind}\t{e.file}:{e.line}\t{e.reason}{of}\t{' '.join(e.query.split())}\n" for e, of in rows)
        options.list.write_text("".join(lines))
    sys.exit(any(each.kind == "wrong" for each in found))


if __name__ == "__main__":
    main()

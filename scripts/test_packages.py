"""Runs the tests of the packages beside the core of which something has changed since they passed on this machine: a file of the
package, what it imports of forkpoint, the servers and helpers of the tests, or a version in uv.lock.

    python scripts/test_packages.py [--all] [--only NAME] [--list] [ARGUMENT OF PYTEST…]

What passed is noted by the digest of those files, in the user's cache directory. A new machine therefore runs them all.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import grimp

from forkpoint.extras import PACKAGES as MODULES

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ROOT / "packages"
PASSED = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "forkpoint" / "passed"
SHARED = (
    "conftest.py",
    "uv.lock",
    "tests/*.py",
    "tests/servers/**/*",
    "tests/connectors/*.py",
    "tests/object_stores/*.py",
)
WITHOUT_SPARK, WITH_SPARK = "not spark and not slow", "spark and not slow"
NO_TESTS = 5  # pytest's exit code: all were deselected


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--all", action="store_true", help="also packages of which nothing has changed")
    parser.add_argument("--only", metavar="NAME", help="only this package: kinesis, redis, …")
    parser.add_argument("--list", action="store_true", help="say what would run")
    options, given = parser.parse_known_args()
    packages = [each for each in sorted(PACKAGES.iterdir()) if options.only in (None, each.name.removeprefix("forkpoint-"))]
    if not packages:
        parser.error(f"there is no package forkpoint-{options.only}")
    graph = grimp.build_graph("forkpoint", *MODULES, cache_dir=str(ROOT / ".import_linter_cache"))
    digests = {each: digest(files_of(each, graph)) for each in packages}
    due = [each for each in packages if options.all or options.only or not (PASSED / digests[each]).exists()]
    print(f"packages: {', '.join(each.name for each in due) or 'none'} to test, of {len(packages)}", flush=True)
    if options.list or not due:
        return 0
    places = [str(each.relative_to(ROOT)) for each in due]
    for expression in (WITHOUT_SPARK, WITH_SPARK):
        code = subprocess.run([sys.executable, "-m", "pytest", "-m", expression, *given, *places], cwd=ROOT).returncode
        if code not in (0, NO_TESTS):
            return code
    PASSED.mkdir(parents=True, exist_ok=True)
    for each in due:
        (PASSED / digests[each]).touch()
    return 0


def digest(files: Iterable[Path]) -> str:
    whole = hashlib.sha256()
    for file in sorted(files):
        whole.update(f"{file.relative_to(ROOT)}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return whole.hexdigest()


def files_of(package: Path, graph: grimp.ImportGraph) -> set[Path]:
    """What its tests depend on: a change in forkpoint that no import leads to is the core's to test."""
    shared = {file for pattern in SHARED for file in ROOT.glob(pattern)}
    module = package.name.replace("-", "_")
    modules = {each for own in {module, *graph.find_descendants(module)} for each in graph.find_modules_directly_imported_by(own)}
    places = [ROOT / "src" / each.replace(".", "/") for each in modules if each.partition(".")[0] == "forkpoint"]
    imported = {file for place in places for file in (place.with_suffix(".py"), place / "__init__.py")}
    return {file for file in shared | imported | {*package.rglob("*")} if file.is_file() and "__pycache__" not in file.parts}


if __name__ == "__main__":
    sys.exit(main())

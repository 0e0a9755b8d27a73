"""Runs the tests that are closest to what has changed, for about a minute.

    python scripts/test_changed.py [--since COMMIT] [--seconds 60] [--list] [ARGUMENT OF PYTEST…]

Changed is what differs from ``--since``: by default the last commit, or the one before if nothing differs. A file of tests is
as far away as the shortest chain of imports from it to a changed module. The closest ones run, as many as take ``--seconds``, as
recorded (`tests/durations.py`), on each of three processes; without Spark, and without slow tests. The rest is for `make test`.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path

import grimp

from forkpoint.extras import PACKAGES
from forkpoint.lazy import listed

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from durations import UNKNOWN_S, recorded  # noqa: E402

PROCESSES = 3
SELECTED = "not spark and not slow"
NO_TESTS = 5
NAMES = dict([*listed("forkpoint.public"), *listed("forkpoint.packages")])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--since", metavar="COMMIT")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--list", action="store_true", help="say what would run")
    options, given = parser.parse_known_args()
    changed = changed_files(options.since)
    tests = distances(changed)
    seconds = recorded()
    chosen, left = [], options.seconds * PROCESSES
    for file in sorted(tests, key=lambda file: (tests[file], seconds.get(file, UNKNOWN_S))):
        takes = seconds.get(file, UNKNOWN_S)
        if tests[file] == 0 or takes <= left:
            chosen.append(file)
            left -= takes
    print(
        f"{len(changed)} files have changed: {len(chosen)} of {len(tests)} files of tests that may be concerned",
        flush=True,
    )
    if options.list or not chosen:
        print("\n".join(f"{tests[file]} {file}" for file in chosen))
        return 0
    how = ["-n", str(PROCESSES), "--dist", "loadfile", "-m", SELECTED]
    code = subprocess.run([sys.executable, "-m", "pytest", *how, *given, *chosen], cwd=ROOT).returncode
    return 0 if code == NO_TESTS else code


def changed_files(since: str | None) -> set[str]:
    """Relative to the repository, also those that git does not know yet."""
    new = git("ls-files", "--others", "--exclude-standard")
    found = git("diff", "--name-only", since or "HEAD")
    return {*new, *(found if since or found or new else git("diff", "--name-only", "HEAD~1"))}


def git(*command: str) -> list[str]:
    return subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()


def distances(changed: Iterable[str]) -> dict[str, int]:
    """By file of tests: over how many imports it leads to something that has changed. Itself changed: 0."""
    graph = grimp.build_graph("forkpoint", *PACKAGES, cache_dir=str(ROOT / ".import_linter_cache"))
    near: dict[str, int] = {}
    waiting = deque((module, 0) for module in map(module_of, changed) if module in graph.modules)
    while waiting:
        module, distance = waiting.popleft()
        if module not in near:
            near[module] = distance
            waiting += [(each, distance + 1) for each in graph.find_modules_that_directly_import(module)]
    files = {path: imports for path in test_sources() for imports in [imported(path)]}
    helpers = {Path(path).stem: path for path in files if not Path(path).name.startswith("test_")}
    found = {}
    for path in files:
        if Path(path).name.startswith("test_"):
            distance = distance_of(path, files, helpers, near, set(changed), frozenset())
            if distance is not None:
                found[path] = distance
    return found


def distance_of(
    path: str,
    files: Mapping[str, set[str]],
    helpers: Mapping[str, str],
    near: Mapping[str, int],
    changed: set[str],
    seen: frozenset[str],
) -> int | None:
    if path in changed:
        return 0
    found = [near[module] + 1 for module in files[path] if module in near]
    for module in files[path]:
        helper = helpers.get(module.rpartition(".")[2])
        if helper is not None and helper not in seen:
            further = distance_of(helper, files, helpers, near, changed, seen | {path, helper})
            found += [] if further is None else [further + 1]
    return min(found, default=None)


def test_sources() -> list[str]:
    return [str(path.relative_to(ROOT)) for place in ("tests", "packages/*/tests") for path in ROOT.glob(f"{place}/**/*.py")]


def imported(path: str) -> set[str]:
    """The modules that a file of tests imports, also by the names that it uses of forkpoint itself."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(NAMES.get(a.name, f"{node.module}.{a.name}") for a in node.names)}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("fp", "forkpoint"):
            found |= {NAMES[node.attr]} if node.attr in NAMES else set()
    return found


def module_of(file: str) -> str:
    """Of ``src/forkpoint/a/b.py`` or ``packages/forkpoint-x/src/forkpoint_x/b.py``; anything else has none."""
    _, _, below = f"/{file}".partition("/src/")
    return below.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


if __name__ == "__main__":
    sys.exit(main())

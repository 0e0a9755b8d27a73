"""The scripts beside the package run against it: each name that they import from it exists."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import pytest

from programs import run_python

HOME = Path(__file__).parents[1]
SCRIPTS = [path for folder in ("scripts", "benchmarks", "examples") for path in sorted((HOME / folder).rglob("*.py"))]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.relative_to(HOME).as_posix())
def test_what_a_script_imports_from_forkpoint_exists(script: Path) -> None:
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "forkpoint":
            module = importlib.import_module(node.module or "")
            missing = [
                name.name
                for name in node.names
                if not hasattr(module, name.name) and not _is_module(f"{node.module}.{name.name}")
            ]
            assert not missing, f"{node.module} has no {', '.join(missing)}"


@pytest.mark.parametrize("script", sorted(set(re.findall(r"python (benchmarks/\S+\.py)", (HOME / "Makefile").read_text()))))
def test_a_benchmark_of_the_makefile_starts(script: str) -> None:
    done = run_python([str(HOME / script), "--help"], capture_output=True, text=True)
    assert done.stdout.startswith("usage: "), done.stderr


def _is_module(name: str) -> bool:
    return importlib.util.find_spec(name) is not None

"""The scripts beside the package run against it: each name that they import from it exists."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

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


def _is_module(name: str) -> bool:
    return importlib.util.find_spec(name) is not None

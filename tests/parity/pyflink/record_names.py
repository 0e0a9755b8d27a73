"""Writes the public names of PyFlink's modules to ``names.json``: each has to stand for something here, or to say what to use.

.flink/venv/bin/python tests/parity/pyflink/record_names.py
"""

from __future__ import annotations

import ast
import importlib.util
import json
from pathlib import Path

NAMES = Path(__file__).parent / "names.json"
PACKAGES = ("common", "datastream", "metrics", "table", "util")


def public_names(source: str) -> set[str]:
    """What programs can import from a module: its ``__all__``, what it defines, and what it imports from PyFlink."""
    found: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pyflink"):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            found |= set(ast.literal_eval(node.value)) if name == "__all__" else {name}
    return {name for name in found if not name.startswith("_")}


def main() -> None:
    spec = importlib.util.find_spec("pyflink")
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent
    files = [file for package in PACKAGES for file in (root / package).rglob("*.py")]
    modules = {".".join(file.relative_to(root.parent).with_suffix("").parts).removesuffix(".__init__"): file for file in files}
    submodules = {module.rpartition(".")[2] for module in modules}
    names = {module: sorted(public_names(modules[module].read_text()) - submodules) for module in sorted(modules)}
    NAMES.write_text(json.dumps(names, indent=1) + "\n")


if __name__ == "__main__":
    main()

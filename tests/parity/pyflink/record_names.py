"""Writes the public names of PyFlink's modules to ``names.json``: each has to stand for something here, or to say what to use.

.flink/venv/bin/python tests/parity/pyflink/record_names.py
"""

from __future__ import annotations

import ast
import importlib.util
import json
from pathlib import Path

NAMES = Path(__file__).parent / "names.json"
PACKAGES = ("common", "datastream", "metrics", "util")


def public_names(source: str) -> list[str]:
    """``__all__``, or else the classes and functions that are not private."""
    body = ast.parse(source).body
    for node in body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            return sorted(set(ast.literal_eval(node.value)))
    return sorted(n.name for n in body if isinstance(n, ast.ClassDef | ast.FunctionDef) and not n.name.startswith("_"))


def main() -> None:
    spec = importlib.util.find_spec("pyflink")
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent
    files = [file for package in PACKAGES for file in (root / package).rglob("*.py")]
    modules = {
        ".".join(file.relative_to(root.parent).with_suffix("").parts).removesuffix(".__init__"): file for file in files
    }
    names = {module: public_names(modules[module].read_text()) for module in sorted(modules)}
    NAMES.write_text(json.dumps(names, indent=1) + "\n")


if __name__ == "__main__":
    main()

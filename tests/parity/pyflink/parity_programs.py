"""Loads the parity programs for either engine. They are PyFlink programs; for forkpoint each import from a ``pyflink``
module takes the same names from ``forkpoint``, and nothing else changes.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from parity_inputs import Input

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
RECORDED = HERE / "recorded"
Engine = Literal["pyflink", "forkpoint"]


@dataclass(frozen=True)
class Program:
    """``build`` takes the inputs' streams by name and returns an output stream, or several by name.

    ``ordered``: whether Flink orders the elements of an output that have the same first field. ``timestamps``: whether
    those of the output are compared; not so where PyFlink's departure from Flink is in the way. ``parallelism``: the only
    one at which these are the results, None where it doesn't matter. ``departure``: why the results differ, where they
    are known to; see docs/flink-parity.md. ``mode``: the RuntimeExecutionMode.
    """

    name: str
    inputs: Mapping[str, Input]
    build: Callable[..., Any]
    ordered: bool
    timestamps: bool
    parallelism: int | None
    departure: str | None
    mode: str = "STREAMING"

    def outputs(self, **streams: Any) -> dict[str, Any]:
        """The output streams by name."""
        found = self.build(**streams)
        return dict(found) if isinstance(found, dict) else {"output": found}


def names() -> list[str]:
    """All programs."""
    return sorted(path.stem for path in PROGRAMS.glob("*.py"))


def load(name: str, engine: Engine) -> Program:
    """A program for an engine. It is no importable module, so its functions are shipped to workers by value."""
    path = PROGRAMS / f"{name}.py"
    tree = ast.parse(path.read_text(), str(path))
    module = ModuleType(f"parity_program_{name}")
    module.__file__ = str(path)
    exec(compile(tree if engine == "pyflink" else _for_forkpoint(tree), str(path), "exec"), vars(module))
    return Program(
        name,
        module.INPUTS,
        module.program,
        ordered=getattr(module, "ORDERED", True),
        timestamps=getattr(module, "TIMESTAMPS", True),
        parallelism=getattr(module, "PARALLELISM", None),
        departure=getattr(module, "DEPARTURE", None),
        mode=getattr(module, "MODE", "STREAMING"),
    )


def _for_forkpoint(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(_root(alias.name) in ("pyflink", "forkpoint") for alias in node.names):
            raise SyntaxError(f"line {node.lineno}: write `from pyflink.… import …`; only such lines can be rewritten")
        if isinstance(node, ast.ImportFrom) and _root(node.module or "") == "forkpoint":
            raise SyntaxError(f"line {node.lineno}: a parity program is a PyFlink program; import from pyflink")
        if isinstance(node, ast.ImportFrom) and _root(node.module or "") == "pyflink":
            node.module = "forkpoint"
    return tree


def _root(module: str) -> str:
    return module.partition(".")[0]


def encode(value: Any) -> Any:
    """An element as JSON: a tuple as an array, other containers as an object that names their kind."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case tuple():
            return [encode(part) for part in value]
        case list():
            return {"list": [encode(part) for part in value]}
        case dict():
            return {"dict": sorted([encode(key), encode(part)] for key, part in value.items())}
        case _ if type(value).__name__ == "Row":
            return {"row": [encode(part) for part in value]}
    raise TypeError(f"a parity program's output is made of plain values, tuples, lists, dicts and Rows, not {value!r}")


def comparable(program: Program, records: list[Any]) -> list[str]:
    """An output's records [timestamp, value] as text, without what is not compared."""
    return [json.dumps([timestamp if program.timestamps else None, value]) for timestamp, value in records]


def by_key(program: Program, records: list[Any]) -> dict[str, list[str]]:
    """The records by the first field of their values, in order where Flink defines one: what has to be the same."""
    keyed: dict[str, list[str]] = {}
    for text, (_, value) in zip(comparable(program, records), records, strict=True):
        keyed.setdefault(json.dumps(value[0] if isinstance(value, list) else value), []).append(text)
    return keyed if program.ordered else {key: sorted(texts) for key, texts in keyed.items()}

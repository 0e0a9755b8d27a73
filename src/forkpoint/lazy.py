"""Packages and modules whose names are loaded when somebody uses them, so that a command or a worker loads only what it needs.

A package, or a module, imports its names under ``if TYPE_CHECKING``, where type checkers see them, and has
``__getattr__ = loader(__name__)``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from importlib.abc import InspectLoader
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ast


def loader(package: str, *listings: str) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package: a name that the modules ``listings``, by default the package, import, or one of its
    modules."""
    places: dict[str, str] = {}

    def load(name: str) -> Any:
        if not places:
            for listing in listings or (package,):
                places.update(listed(listing))
        if name in places:
            value = getattr(import_module(places[name]), name)
        elif not name.startswith("__") and _is_module(package, name):
            value = import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)
        return value

    return load


def _is_module(package: str, name: str) -> bool:
    return hasattr(sys.modules[package], "__path__") and find_spec(f"{package}.{name}") is not None


def listed(module: str) -> Iterator[tuple[str, str]]:
    """The names that a module imports from forkpoint or its packages, and where from; the module is read, not run."""
    import ast  # takes longer than the rest of `import forkpoint`

    for node in ast.walk(ast.parse(_source(module))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(("forkpoint.", "forkpoint_")):
            yield from ((alias.name, node.module) for alias in node.names)


def docstring(module: str, function: str) -> str:
    """That of a function of a module; the module is read, not run. Empty if there is none."""
    import ast

    for node in _parsed(module).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return ast.get_docstring(node) or ""
    return ""


@cache
def _parsed(module: str) -> ast.Module:
    """A module has several commands."""
    import ast

    return ast.parse(_source(module))


def _source(module: str) -> str:
    spec = find_spec(module)
    assert spec is not None
    if isinstance(spec.loader, InspectLoader):  # also in a zip file
        source = spec.loader.get_source(module)
        if source is None:
            raise ImportError(f"the source of {module} is missing; install forkpoint with its .py files")
        return source
    assert spec.origin is not None
    return Path(spec.origin).read_text("utf-8")

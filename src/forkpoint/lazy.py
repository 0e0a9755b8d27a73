"""Loads the names of packages and modules on first use, so that a command or a worker loads only what it needs.

A package or module imports its names under ``if TYPE_CHECKING``, where type checkers see them, and has
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
    """The ``__getattr__`` of a package: loads names that the modules ``listings`` (by default the package) import, and
    submodules of the package."""
    homes: dict[str, str] = {}

    def load(name: str) -> Any:
        if not homes:
            for listing in listings or (package,):
                homes.update(listed(listing))
        if name in homes:
            value = getattr(import_module(homes[name]), name)
        elif not name.startswith("__") and hasattr(sys.modules[package], "__path__") and find_spec(f"{package}.{name}"):
            value = import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)
        return value

    return load


def listed(module: str) -> Iterator[tuple[str, str]]:
    """The names that a module imports from forkpoint or its packages, with their modules; parses the module, does not run it."""
    import ast  # takes longer than the rest of `import forkpoint`

    for node in ast.walk(ast.parse(_source(module))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(("forkpoint.", "forkpoint_")):
            yield from ((alias.name, node.module) for alias in node.names)


def docstring(module: str, function: str) -> str:
    """The docstring of a module's function, or ""; parses the module, does not run it."""
    import ast

    for node in _parsed(module).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return ast.get_docstring(node) or ""
    return ""


@cache
def _parsed(module: str) -> ast.Module:
    import ast

    return ast.parse(_source(module))


def _source(module: str) -> str:
    spec = find_spec(module)
    assert spec is not None
    if isinstance(spec.loader, InspectLoader):  # works in a zip file, too
        source = spec.loader.get_source(module)
        if source is None:
            raise ImportError(f"the source of {module} is missing; install forkpoint with its .py files")
        return source
    assert spec.origin is not None
    return Path(spec.origin).read_text("utf-8")

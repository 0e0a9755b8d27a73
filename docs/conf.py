"""Sphinx configuration of the documentation; used by `make docs`. The whole repository is the source directory, so that
links between README, docs and examples are the same on the site and in a checkout."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from importlib import import_module
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

import msgspec
from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.util.nodes import nested_parse_with_titles

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

project = "forkpoint"
author = "the forkpoint contributors"
release = version = version_of("forkpoint")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_click"]
root_doc = "docs/README"
include_patterns = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/**", "examples/**/README.md"]
exclude_patterns = [".*", "build", "dist", "src", "tests", "benchmarks", "scripts"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

html_theme = "furo"
html_title = f"forkpoint {release}"
html_show_sourcelink = False
html_copy_source = False
pygments_style = "default"

smartquotes = False  # keep quotes and dashes as they are written
default_role = "code"  # docstrings write names in `backticks`
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True, "show-inheritance": True}
python_use_unqualified_type_names = True

NAVIGATION: dict[str, list[str]] = {
    "Start": [
        "install",
        "../README",
        "quickstart",
        "from-spark",
        "pyflink",
        "../examples/flights/README",
        "../examples/dashboard/README",
        "../examples/versions/README",
    ],
    "How to: programs": [
        "state",
        "time",
        "sql",
        "sql-functions",
        "changing-queries",
        "table-api",
        "windows",
        "joins",
        "lookup",
        "connected-streams",
        "column-wise",
        "async",
        "iterations",
        "patterns",
        "graphs",
        "formats",
        "typing",
        "testing",
    ],
    "How to: systems": [
        "sources-sinks",
        "files",
        "kafka",
        "databases",
        "postgres-cdc",
        "tables",
        "kinesis",
        "rabbitmq",
        "mqtt",
        "redis",
        "cassandra",
        "opensearch",
    ],
    "How to: jobs": [
        "running",
        "configuration",
        "cluster",
        "savepoints",
        "upgrades",
        "evolution",
        "operations",
        "web-page",
        "state-processor",
        "queryable-state",
        "troubleshooting",
    ],
    "Concepts": [
        "concepts",
        "guarantees",
        "security",
        "sizing",
        "names",
        "flink-parity",
        "compatibility",
        "benchmarks",
        "decisions",
    ],
    "Reference": [
        "reference/streams",
        "reference/functions",
        "reference/windows",
        "reference/connectors",
        "reference/types",
        "reference/environment",
        "reference/sql",
        "reference/testing",
        "reference/state-processor",
        "reference/graphs",
        "reference/operations",
        "reference/options",
        "reference/command-line",
        "cli",
        "rest",
        "metrics",
        "errors",
        "reference/errors",
        "reference/formats",
    ],
    "Contributing": ["new-source", "new-operator", "development", "../CONTRIBUTING", "../CHANGELOG"],
}


def add_navigation(app: Any, docname: str, source: list[str]) -> None:
    """The navigation is here rather than in the front page, which people also read in a checkout. A missing page
    is left out; for a page that is not in the navigation Sphinx reports an error."""
    if docname != root_doc:
        return
    for caption, pages in NAVIGATION.items():
        there = [page for page in pages if list((ROOT / "docs").glob(f"{page}.*"))]
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(there) + "\n```\n"


class Generated(Directive):
    """A part of a page that is generated from the code."""

    def lines(self) -> list[str]:
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        node = nodes.section()
        node.document = self.state.document
        nested_parse_with_titles(self.state, StringList(self.lines(), source="generated"), node)
        return node.children


class OptionKeys(Generated):
    """Every key of a `Configuration`, and the option field that it sets."""

    def lines(self) -> list[str]:
        from forkpoint.api import configuration as c

        groups = [
            ("JobOptions", c._JOB_KEYS),
            ("CheckpointOptions", c._CHECKPOINT_KEYS),
            ("RestartStrategy", c._RESTART_KEYS),
            ("SavepointSchedule", c._SCHEDULE_KEYS),
        ]
        rows = [(f"``{key}``", f"``{name}.{field}``") for name, keys in groups for key, (field, _) in keys.items()]
        return table(("key", "sets"), [*rows, (f"``{c._PARAMETERS}``", "``JobOptions.parameters``")])


class Defaults(Generated):
    """The fields of a dataclass with their types and defaults."""

    required_arguments = 1

    def lines(self) -> list[str]:
        from forkpoint.graph import options

        fields = dataclasses.fields(getattr(options, self.arguments[0]))
        return table(("field", "type", "default"), [(f"``{f.name}``", f"``{f.type}``", default(f)) for f in fields])


class Records(Generated):
    """The docstring and fields of each of a module's records."""

    required_arguments = 2
    final_argument_whitespace = True

    def lines(self) -> list[str]:
        module = import_module(self.arguments[0])
        found: list[str] = []
        for name in self.arguments[1].split():
            model = getattr(module, name)
            found += ["", f"**{name}**", "", *inspect.cleandoc(vars(model).get("__doc__") or "").splitlines(), ""]
            rows = []
            for field in msgspec.structs.fields(model):
                kind = " | ".join(re.sub(r"\w+\.", "", str(model.__annotations__.get(field.name, ""))).split(" | ")) or "as above"
                given = field.default_factory() if callable(field.default_factory) else field.default
                rows.append((f"``{field.name}``", f"``{kind}``", "required" if field.required else f"``{given!r}``"))
            found += table(("field", "type", "default"), rows)
        return found


def default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return f"``{field.default!r}``"
    return "" if field.default_factory is dataclasses.MISSING else f"``{field.default_factory()!r}``"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in [head, *rows]:
        lines += [f"   {'* -' if column == 0 else '  -'} {cell}" for column, cell in enumerate(row)]
    return [*lines, ""]


def indented_blocks(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings mark layouts and examples by indentation alone; Sphinx needs a `::` before such a block."""
    result: list[str] = []
    for number, line in enumerate(lines):
        begins = line.startswith("    ") and not (result and result[-1].strip()) and not _inside(result)
        if begins and not any(each.endswith("::") for each in [r for r in result if r.strip()][-1:]):
            result += ["::", ""]
        result.append(line)
        if line.startswith("    ") and number + 1 < len(lines) and lines[number + 1] and lines[number + 1][0] != " ":
            result.append("")
    lines[:] = result


def _inside(result: list[str]) -> bool:
    """Whether the last non-empty line is indented too: the block continues after an empty line."""
    last = [line for line in result if line.strip()][-1:]
    return bool(last) and last[0].startswith("    ")


_nested: set[Any] = set()  # nested classes that have an entry; aliases of them get none


def skip_aliases(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    if not inspect.isclass(obj):
        return None
    if "." not in obj.__qualname__ or obj in _nested:
        return True
    _nested.add(obj)
    return None


def setup(app: Any) -> dict[str, Any]:
    app.connect("source-read", add_navigation)
    app.connect("autodoc-process-docstring", indented_blocks)
    app.connect("autodoc-skip-member", skip_aliases)
    app.add_directive("option-keys", OptionKeys)
    app.add_directive("defaults", Defaults)
    app.add_directive("record", Records)
    return {"parallel_read_safe": False, "parallel_write_safe": True}

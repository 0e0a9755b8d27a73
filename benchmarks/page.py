"""Puts the figures of bench.json, flink.json and nexmark.json, as far as they are there, into the tables of docs/benchmarks.md.

python benchmarks/page.py
"""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

from report import number

HOME = Path(__file__).resolve().parent.parent
REFERENCES = {  # of Nexmark's kinds: each list is a table
    "sql": [["Flink heap", "Flink RocksDB"], ["Flink heap, mini-batch off"]],
    "datastream": [["Flink heap", "Flink RocksDB", "PyFlink"]],
}


def table(figures: list[dict[str, object]]) -> str:
    rows = ["", "| work | forkpoint | Spark | unit | times |", "|---|---|---|---|---|"]
    for figure in figures:
        value, reference, ratio = figure["value"], figure["reference_value"], figure["ratio"]
        assert isinstance(value, int | float)
        cells = [
            number(reference) if isinstance(reference, int | float) else "",
            str(figure["unit"]),
            f"{ratio:.2f}" if isinstance(ratio, int | float) else "",
        ]
        rows.append(f"| {figure['name']} | {number(value)} | {' | '.join(cells)} |")
    return "\n".join([*rows, ""])


def nexmark(figures: list[dict[str, Any]]) -> str:
    tables = (
        beside(kind, [figure for figure in figures if figure["reference"] in references], references)
        for kind, of_kind in REFERENCES.items()
        for references in of_kind
    )
    return "\n".join(filter(None, tables))


def flink(figures: list[dict[str, Any]]) -> str:
    """Figures of `flink_in_turn`."""
    of_kinds: dict[str, dict[str, None]] = {}  # the references of each kind
    for figure in figures:
        of_kinds.setdefault(figure["name"].split(" ")[0], {})[figure["reference"]] = None
    return "\n".join(beside(kind, figures, list(references)) for kind, references in of_kinds.items())


def beside(kind: str, figures: list[dict[str, Any]], references: list[str]) -> str:
    """A row for each name of a kind, with each reference's throughput, and how many times that forkpoint has."""
    rows: dict[str, dict[str, dict[str, Any]]] = {}
    for figure in figures:
        if figure["name"].startswith(f"{kind} "):
            rows.setdefault(figure["name"].removeprefix(f"{kind} "), {})[figure["reference"]] = figure
    if not rows:
        return ""
    references = [each for each in references if any(each in row for row in rows.values())]
    lines = [
        "",
        f"| {kind}, thousand events/s | forkpoint | {' | | '.join(references)} | |",
        "|---" + "|--:" * (2 * len(references) + 1) + "|",
    ]
    for name, row in rows.items():
        cells = [number(next(iter(row.values()))["value"] / 1000)]
        for reference in references:
            found = row.get(reference)
            cells += ["", ""] if found is None else [number(found["reference_value"] / 1000), f"{found['ratio']:.2f} ×"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    if kind == "sql":
        means = (statistics.geometric_mean(row[each]["ratio"] for row in rows.values() if each in row) for each in references)
        lines.append(f"| geometric mean | | {' | '.join(f'| {mean:.2f} ×' for mean in means)} |")
    return "\n".join([*lines, ""])


def main() -> None:
    page = HOME / "docs" / "benchmarks.md"
    text = page.read_text(encoding="utf-8")
    for name, tables in (("bench", table), ("flink", flink), ("nexmark", nexmark)):
        if (file := HOME / f"{name}.json").exists():
            figures = json.loads(file.read_text(encoding="utf-8"))
            place = re.compile(rf"(<!-- {name}\.json: begin[^\n]*-->\n).*?(\n<!-- {name}\.json: end -->)", re.DOTALL)
            text, found = place.subn(lambda m: m[1] + tables(figures) + m[2], text)  # noqa: B023
            if found != 1:
                raise SystemExit(f"docs/benchmarks.md has no place for the figures of {name}.json, or more than one")
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

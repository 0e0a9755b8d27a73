"""Puts the figures of bench.json into the table of docs/benchmarks.md.

python benchmarks/page.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from report import number

HOME = Path(__file__).resolve().parent.parent
TABLE = re.compile(r"(<!-- figures: begin[^\n]*-->\n).*?(\n<!-- figures: end -->)", re.DOTALL)


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


def main() -> None:
    figures = json.loads((HOME / "bench.json").read_text(encoding="utf-8"))
    page = HOME / "docs" / "benchmarks.md"
    text, found = TABLE.subn(lambda m: m[1] + table(figures) + m[2], page.read_text(encoding="utf-8"))
    if found != 1:
        raise SystemExit("docs/benchmarks.md has no place for the figures, or more than one")
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

"""Draws nexmark.json: docs/images/nexmark.svg, the throughput of each query of SQL as a multiple of Flink's.

python benchmarks/nexmark/picture.py [nexmark.json]

The colours are legible on light and on dark pages: which of them a page has, an image in it cannot know.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "images" / "nexmark.svg"
GROUPS = {
    "row by row": ("q0", "q1", "q2", "q14", "q21", "q22"),
    "joins": ("q3", "q4", "q9", "q13", "q20"),
    "windows": ("q5", "q7", "q8", "q11"),
    "aggregates": ("q15", "q16", "q17"),
    "top n": ("q18", "q19"),
}
COLOURS = {"Flink RocksDB": "#2f81f7", "Flink heap": "#8e9cb3"}
INK, RULE = "#79818b", "#79818b40"
WIDTH, TOP, HEIGHT, BELOW, LEFT = 830, 62, 236, 54, 44
GAP, BAR, SPACE = 20, 14, 2
Ratios = dict[str, dict[str, float]]
"""By query, and then by reference."""


def ratios(figures: list[dict[str, str | float]]) -> Ratios:
    found: Ratios = {}
    for figure in figures:
        kind, _, query = str(figure["name"]).partition(" ")
        if kind == "sql" and figure["reference"] in COLOURS:
            found.setdefault(query, {})[str(figure["reference"])] = float(figure["ratio"])
    return found


def drawn(found: Ratios) -> str:
    groups = {name: [query for query in queries if query in found] for name, queries in GROUPS.items()}
    if undrawn := set(found) - {query for queries in groups.values() for query in queries}:
        raise SystemExit(f"picture.py: GROUPS lacks {', '.join(sorted(undrawn))}")
    values = [ratio for by_reference in found.values() for ratio in by_reference.values()]
    low, high = min(0, math.floor(math.log2(min(values)))), math.ceil(math.log2(max(values)))

    def y(ratio: float) -> float:
        return TOP + HEIGHT * (high - math.log2(ratio)) / (high - low)

    parts = [*_heading(), *_scale(low, high, y(1), [(2.0**n, y(2.0**n)) for n in range(low, high + 1)])]
    step = (WIDTH - LEFT - GAP * len(groups)) / len(found)
    x = float(LEFT + GAP / 2)
    for name, queries in groups.items():
        start = x
        for query in queries:
            left = x + step / 2 - BAR - SPACE / 2
            for reference, colour in COLOURS.items():
                ratio = found[query].get(reference)
                if ratio is not None:
                    parts += _bar(left, y(ratio), y(1), ratio, colour, f"{query}: {ratio:.2f} × {reference}")
                left += BAR + SPACE
            parts.append(_text(x + step / 2, TOP + HEIGHT + 20, query, size=12))
            x += step
        middle, bottom = (start + x) / 2, TOP + HEIGHT + 30
        parts.append(f'<path d="M{start + 4:.1f} {bottom}H{x - 4:.1f}" stroke="{INK}" stroke-width="1"/>')
        parts.append(_text(middle, bottom + 18, name, size=12.5))
        x += GAP
    size = f'width="{WIDTH}" height="{TOP + HEIGHT + BELOW}" viewBox="0 0 {WIDTH} {TOP + HEIGHT + BELOW}"'
    style = 'font-family="system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif"'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style} role="img">', *parts, "</svg>", ""])


def _heading() -> Iterator[str]:
    yield "<title>Throughput of Nexmark's queries, as a multiple of Flink's</title>"
    yield _text(0, 17, "Nexmark: how many times Flink’s throughput", size=16, anchor="start", weight=600)
    yield _text(0, 38, "SQL as published, the same two cores, in turn; Flink 2.3 in Java", size=12.5, anchor="start")
    x = float(WIDTH)
    for reference, colour in reversed(COLOURS.items()):
        x -= 6.9 * len(reference)
        yield _text(x, 17, reference, size=12.5, anchor="start")
        yield f'<rect x="{x - 17}" y="7" width="11" height="11" rx="2" fill="{colour}"/>'
        x -= 34


def _scale(low: int, high: int, one: float, lines: list[tuple[float, float]]) -> Iterator[str]:
    for ratio, y in lines:
        text = f"{ratio:.0f} ×" if ratio >= 1 else f"1/{1 / ratio:.0f} ×"
        yield f'<path d="M{LEFT} {y:.1f}H{WIDTH}" stroke="{INK if y == one else RULE}" stroke-width="1"/>'
        yield _text(LEFT - 8, y + 4, text, size=11.5, anchor="end", weight=600 if y == one else 400)


def _bar(x: float, end: float, one: float, ratio: float, colour: str, title: str) -> Iterator[str]:
    top, height = min(end, one), abs(end - one)
    shape = f'x="{x:.1f}" y="{top:.1f}" width="{BAR}" height="{max(height, 1):.1f}"'
    yield f'<rect {shape} fill="{colour}"><title>{escape(title)}</title></rect>'
    if colour == COLOURS["Flink RocksDB"]:
        text = f"{ratio:.1f}" if ratio < 10 else f"{ratio:.0f}"
        yield _text(x + BAR / 2, top - 5 if end <= one else top + height + 12, text, size=11)


def _text(x: float, y: float, text: str, *, size: float, anchor: str = "middle", weight: int = 400) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}"'
    return f'<text {place} fill="{INK}">{escape(text)}</text>'


def main() -> None:
    figures = json.loads(Path(*sys.argv[1:2] or ["nexmark.json"]).read_text(encoding="utf-8"))
    PICTURE.write_text(drawn(ratios(figures)), encoding="utf-8")


if __name__ == "__main__":
    main()

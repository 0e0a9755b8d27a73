"""HTML for notebooks: tables and drawings of graphs. Pure; escapes all text, because names come from untrusted programs.

Text inherits the page's colour, so that it is readable on light and dark pages. Loads no external resources.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from forkpoint.wording import visible_cell

_ACCENT = "#3b82f6"  # readable on white and on black
_WIDTH, _LINE, _PAD, _GAP_X, _GAP_Y = 200, 16, 10, 90, 24
_SHOWN = 27  # characters of a line in a box
_LOOKS = ('font-weight="bold"', 'opacity="0.8"')  # of a box's title and of its other lines
_CELL = "padding:2px 10px 2px 0;border-bottom:1px solid color-mix(in srgb,currentColor 25%,transparent);vertical-align:top;"


@dataclass(frozen=True)
class Node:
    """A box; its first line is a title."""

    lines: tuple[str, ...]
    accented: bool = False


@dataclass(frozen=True)
class Arrow:
    """An arrow between two nodes, given by index."""

    start: int
    end: int
    label: str = ""


def escape(text: str) -> str:
    """Escapes text for HTML, and makes characters visible that hide or reorder text."""
    return html.escape(visible_cell(text))


def page(title: str, *parts: str) -> str:
    """A block of a title and the parts."""
    return (
        '<div class="forkpoint" style="color:inherit;overflow-x:auto"><div style="font-weight:bold;margin:4px 0">'
        f"{escape(title)}</div>{''.join(parts)}</div>"
    )


def facts(values: Mapping[str, str | None]) -> str:
    """Names and values, a line per name; omits None."""
    lines = [f"<div><b>{escape(name)}</b> {escape(value)}</div>" for name, value in values.items() if value is not None]
    return f'<div style="margin:4px 0">{"".join(lines)}</div>'


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> str:
    """``right``: titles of right-aligned columns."""
    aligned = [f"text-align:{'right' if title in right else 'left'};{_CELL}" for title in titles]
    head = "".join(f'<th scope="col" style="{style}">{escape(t)}</th>' for t, style in zip(titles, aligned, strict=True))
    body = "".join(
        "<tr>" + "".join(f'<td style="{s}">{escape(cell)}</td>' for cell, s in zip(row, aligned, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<table style="border-collapse:collapse"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def drawing(title: str, nodes: Sequence[Node], arrows: Sequence[Arrow]) -> str:
    """An SVG of the nodes from left to right, each to the right of its predecessors. Arrows to earlier nodes (of a loop) run
    back below the boxes."""
    height = max((len(node.lines) for node in nodes), default=0) * _LINE + 2 * _PAD
    cells = _grid(len(nodes), arrows)
    columns, rows = max((x for x, _ in cells), default=0) + 1, max((y for _, y in cells), default=0) + 1
    width, total = columns * (_WIDTH + _GAP_X) - _GAP_X + 4, rows * (height + _GAP_Y) + 4
    corners = [(2 + x * (_WIDTH + _GAP_X), 2 + y * (height + _GAP_Y)) for x, y in cells]
    lines = "".join(_arrow(arrow, corners, height) for arrow in arrows)
    boxes = "".join(_box(node, corner, height) for node, corner in zip(nodes, corners, strict=True))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(title)}" width="{width}" height="{total}" '
        f'viewBox="0 0 {width} {total}" font-family="sans-serif" font-size="12" fill="currentColor">{lines}{boxes}</svg>'
    )


def _grid(count: int, arrows: Sequence[Arrow]) -> list[tuple[int, int]]:
    """The column and row of each node. A node's row is close to its predecessors' rows."""
    before: list[list[int]] = [[] for _ in range(count)]
    for arrow in arrows:
        if arrow.start < arrow.end:
            before[arrow.end].append(arrow.start)
    columns, rows = [0] * count, [0] * count
    for node in range(count):
        columns[node] = max((columns[each] + 1 for each in before[node]), default=0)
    taken: dict[int, set[int]] = {}
    for node in sorted(range(count), key=lambda each: (columns[each], each)):
        used = taken.setdefault(columns[node], set())
        wanted = min((rows[each] for each in before[node]), default=0)
        rows[node] = next(row for row in range(wanted, wanted + count + 1) if row not in used)
        used.add(rows[node])
    return list(zip(columns, rows, strict=True))


def _arrow(arrow: Arrow, corners: Sequence[tuple[int, int]], height: int) -> str:
    (x1, y1), (x2, y2) = corners[arrow.start], corners[arrow.end]
    if arrow.start < arrow.end:
        x1, y1, y2, bend = x1 + _WIDTH, y1 + height // 2, y2 + height // 2, _GAP_X // 2
        path = f"M{x1},{y1} C{x1 + bend},{y1} {x2 - bend},{y2} {x2 - 6},{y2}"
        tip = f"M{x2},{y2} l-7,-4 v8 z"
    else:
        x1, x2, y1, y2, bend = x1 + _WIDTH // 2, x2 + _WIDTH // 2, y1 + height, y2 + height, _GAP_Y
        path = f"M{x1},{y1} C{x1},{y1 + bend} {x2},{y2 + bend} {x2},{y2 + 6}"
        tip = f"M{x2},{y2} l-4,7 h8 z"
    label = (
        f'<text x="{(x1 + x2) // 2}" y="{(y1 + y2) // 2 - 5}" text-anchor="middle" font-size="10" opacity="0.75">'
        f"{escape(arrow.label)}</text>"
    )
    return f'<path d="{path}" fill="none" stroke="currentColor" opacity="0.6"/><path d="{tip}" opacity="0.6"/>{label}'


def _box(node: Node, corner: tuple[int, int], height: int) -> str:
    x, y = corner
    stroke = f'stroke="{_ACCENT}" stroke-width="2"' if node.accented else 'stroke="currentColor" stroke-opacity="0.6"'
    texts = "".join(
        f'<text x="{x + _PAD}" y="{y + _PAD + _LINE * index + 11}" {_LOOKS[index > 0]}>'
        f"{escape(line if len(line) <= _SHOWN else line[: _SHOWN - 1] + '…')}</text>"
        for index, line in enumerate(node.lines)
    )
    return (
        f"<g><title>{'&#10;'.join(escape(line) for line in node.lines)}</title>"
        f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{height}" rx="6" fill="currentColor" fill-opacity="0.06" {stroke}/>'
        f"{texts}</g>"
    )

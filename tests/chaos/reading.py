"""What a job has left, read from its files by pyarrow and json alone, and what of it is not as expected."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from chaos.model import Expected, Line

SINKS = ("elements", "windows", "late", "ranks")
Lines = dict[str, Counter[Line]]


def published(places: Iterable[Path]) -> Lines:
    """All that readers of these directories see, and those who have taken files from there, by sink."""
    found: Lines = {sink: Counter() for sink in SINKS}
    for place in places:
        for sink in SINKS:
            for path in (place / sink).rglob("*"):
                if not path.name.startswith(".") and path.is_file():
                    found[sink].update(_lines(path))
    return found


def _lines(path: Path) -> list[Line]:
    match path.suffix:
        case ".txt":
            return [tuple(map(_number, line.split())) for line in path.read_text().splitlines()]
        case ".jsonl":
            return [tuple(json.loads(line).values()) for line in path.read_text().splitlines()]
        case ".parquet":
            return [tuple(row.values()) for row in _rows(path)]
    raise AssertionError(f"{path} is no file of a sink")


def _number(word: str) -> int | str:
    return int(word) if word.lstrip("-").isdigit() else word


def _rows(path: Path) -> list[dict[str, Any]]:
    with pa.OSFile(str(path)) as file:
        rows: list[dict[str, Any]] = pq.ParquetFile(file).read(use_threads=False).to_pylist()
    return rows


def state_difference(expected: Expected, savepoint: Path) -> list[str]:
    """What a savepoint's state has otherwise than expected."""

    def rows(uid: str, state: str) -> list[dict[str, Any]]:
        return [row for path in sorted((savepoint / "operators" / uid / state).glob("*.parquet")) for row in _rows(path)]

    contents: dict[tuple[str, int], list[int]] = {}
    for row in sorted(rows("windows", "window-contents"), key=lambda row: row["index"]):
        contents.setdefault((row["key"], row["namespace_start"]), []).append(row["id"])
    sources = json.loads((savepoint / "savepoint.json").read_text())["sources"]
    pairs: list[tuple[str, Any, Any]] = [
        ("elements read", expected.read, read_in(sources)),
        ("totals", _items(expected.totals), [(r["key"], (r["f0"], r["f1"])) for r in rows("totals", "total")]),
        ("timers", expected.timers, [(r["key"], r["timestamp"]) for r in rows("totals", "_timers")]),
        ("windows", _items(_in_tuples(expected.windows)), _items(_in_tuples(contents))),
        (
            "windows' timers",
            [(key, start + 999) for key, start in expected.windows],
            [(r["key"], r["timestamp"]) for r in rows("windows", "_timers")],
        ),
        ("ranks", _items(expected.seen), [(r["key"], r["value"]) for r in rows("ranks", "seen")]),
        ("lines passed", expected.passed, sum(r["value"] for r in rows("tally", "passed"))),
    ]
    return [text for name, wanted, got in pairs if (text := _unequal(name, wanted, got))]


def read_in(sources: dict[str, Any]) -> int:
    """How many elements were read, from the positions in a manifest or savepoint."""
    return sum(split["count"] for source in sources.values() for split in source["splits"].values())


def _items(values: dict[Any, Any]) -> list[Any]:
    return list(values.items())


def _in_tuples(values: dict[Any, list[int]]) -> dict[Any, tuple[int, ...]]:
    return {key: tuple(ids) for key, ids in values.items()}


def _unequal(name: str, wanted: Any, got: Any) -> str:
    if isinstance(wanted, int):
        return "" if wanted == got else f"state: {name} {got}, expected {wanted}"
    lost, more = Counter(wanted) - Counter(got), Counter(got) - Counter(wanted)
    return f"state: {name}: missing {_some(lost)}, unexpected {_some(more)}" if lost or more else ""


@dataclass
class Difference:
    """Lines of output that are not there, and those that are there too often or should not be; and state."""

    lost: Counter[tuple[str, Line]] = field(default_factory=Counter)
    doubled: Counter[tuple[str, Line]] = field(default_factory=Counter)
    wrong: Counter[tuple[str, Line]] = field(default_factory=Counter)
    state: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.lost or self.doubled or self.wrong or self.state)

    def __str__(self) -> str:
        parts = [
            f"{sum(lines.values())} lines {what}: {_some(lines)}"
            for what, lines in (("lost", self.lost), ("twice", self.doubled), ("never expected", self.wrong))
            if lines
        ]
        return "; ".join([*parts, *self.state])


def difference(expected: Lines, got: Lines, *, complete: bool = True) -> Difference:
    """``complete``: all that is expected has to be there."""
    found = Difference()
    for sink in SINKS:
        if complete:
            found.lost.update({(sink, line): n for line, n in (expected[sink] - got[sink]).items()})
        for line, n in (got[sink] - expected[sink]).items():
            (found.doubled if line in expected[sink] else found.wrong)[sink, line] += n
    return found


def _some(lines: Counter[Any], limit: int = 6) -> str:
    shown = ", ".join(map(str, sorted(lines, key=str)[:limit]))
    return f"{shown}, …" if len(lines) > limit else shown or "nothing"

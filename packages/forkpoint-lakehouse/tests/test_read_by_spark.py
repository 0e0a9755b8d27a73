"""Spark reads what the sinks have written as their own libraries do."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lakehouse import read_by_spark
from table_jobs import expected, make_sink
from table_reading import in_order, read, run, sunk

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ELEMENTS = 600


class Point(NamedTuple):
    x: float
    y: float | None


class Reading(NamedTuple):
    id: int
    real: float
    text: str | None
    well: bool
    day: date
    local: datetime
    amount: Decimal
    place: Point
    places: list[Point]


class Named(NamedTuple):
    id: int
    name: str


def reading(n: int) -> Reading:
    return Reading(
        n,
        n / 3,
        None if n % 2 else f"täxt {n}",
        n % 2 == 0,
        date(2024, 2, 29) + timedelta(n),
        datetime(1969, 12, 31, 23, 59, 59, n),  # noqa: DTZ001
        Decimal(n) / 8,
        Point(n, None),
        [Point(n, 0.5)] * n,
    )


def test_appended_upserted_changed_and_partitioned_tables(kind: str, tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("appended", "upserted", "typed")]
    for place in places:
        place.mkdir()
    appended, upserted, typed = map(str, places)
    run(tmp_path / "a", make_sink(kind, appended), ELEMENTS)
    run(tmp_path / "b", make_sink(kind, upserted, mode="upsert", key=("key",)), ELEMENTS)
    sunk(tmp_path / "c", [Named(n, f"name {n}") for n in range(5)], Named, make_sink(kind, typed, partition_by="id"), 2)
    sunk(tmp_path / "d", [reading(n) for n in range(3, 8)], Reading, make_sink(kind, typed, mode="upsert", key="id"), 2)
    found = read_by_spark(kind, places)
    assert sorted(tuple(row.values()) for row in found[0]) == expected(ELEMENTS)
    assert found == [in_order(as_text(read(kind, place))) for place in places]
    assert [row["text"] for row in found[2]] == [None, None, None, None, "täxt 4", None, "täxt 6", None]


def as_text(rows: list[dict[str, Any]]) -> Any:
    return json.loads(json.dumps(rows, default=str))

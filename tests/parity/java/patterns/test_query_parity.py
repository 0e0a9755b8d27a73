"""MATCH_RECOGNIZE gives the rows that Flink SQL 2.3.0 gave, or is refused."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pattern_queries import QUERIES, TABLES

import forkpoint as fp
from forkpoint.errors import ForkpointError

RECORDED: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "recorded_queries.json").read_text())
SQL = {query["name"]: query["sql"] for query in QUERIES if query["name"] in RECORDED}
ON_FLINK = sorted(name for name in SQL if "rows" in RECORDED[name] and "failed" not in RECORDED[name])
# Where forkpoint gives something else on purpose: docs/flink-parity.md says why.
DEPARTURES = {"subset"}  # Flink gives NULL for the variables of SUBSET
NOT_HERE = {
    "define_case_of_names",  # a variable of DEFINE with another spelling than in PATTERN is ignored by Flink
    "measures_match_proctime",
    "measures_nested_aggregates",
    "pattern_anchors",  # ignored by Flink
}
COMPARED = [name for name in ON_FLINK if name not in DEPARTURES | NOT_HERE]


def rows(name: str, directory: Path) -> list[list[Any]]:
    tables = fp.TableEnvironment.create(fp.EnvironmentSettings.new_instance().in_streaming_mode().build())
    tables.get_config().set("execution.engine", "local")
    for table, given in TABLES.items():
        columns = ", ".join(f"`{column}` {of}" for column, of in given["columns"].items())
        time, behind_ms = given["watermark"]
        path = directory / f"{table}.json"
        path.write_text("".join(json.dumps(dict(zip(given["columns"], row, strict=True))) + "\n" for row in given["rows"]))
        tables.execute_sql(
            f"CREATE TABLE {table} ({columns}, WATERMARK FOR `{time}` AS `{time}` - INTERVAL '{(behind_ms + 1) / 1000}' SECOND) "
            f"WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'json')"
        )
    with tables.execute_sql(SQL[name]).collect() as found:
        return [[_plain(value) for value in row] for row in found]


def _plain(value: Any) -> Any:
    """A value as it is recorded."""
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    return float(value) if isinstance(value, Decimal) else value


def expected(name: str) -> list[list[Any]]:
    of = list(RECORDED[name]["columns"].values())
    return [
        [float(v) if each.startswith("DECIMAL") and v is not None else v for v, each in zip(row, of, strict=True)]
        for row in RECORDED[name]["rows"]
    ]


def unordered(found: list[list[Any]]) -> list[str]:
    return sorted(map(repr, found))


def test_most_queries_are_compared() -> None:
    assert len(COMPARED) >= 95
    assert set(ON_FLINK) >= DEPARTURES | NOT_HERE


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * bool(at % 4)) for at, name in enumerate(COMPARED)]
)
def test_rows_are_those_of_flink(name: str, tmp_path: Path) -> None:
    assert unordered(rows(name, tmp_path)) == unordered(expected(name))


@pytest.mark.parametrize("name", sorted(NOT_HERE))
def test_some_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ForkpointError):
        rows(name, tmp_path)


@pytest.mark.parametrize("name", sorted(DEPARTURES))
def test_departures_differ(name: str, tmp_path: Path) -> None:
    assert unordered(rows(name, tmp_path)) != unordered(expected(name))

"""Rows that are appended: each once, whoever dies, in both kinds of table. Read back with their libraries and DuckDB."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from table_jobs import expected, make_sink
from table_reading import files, iceberg, rows, run

PROGRAM = Path(__file__).with_name("table_jobs.py")
PATHS = [str(PROGRAM.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
ENVIRONMENT = os.environ | {"FORKPOINT_ENGINE": "local", "PYTHONPATH": os.pathsep.join(PATHS)}
ELEMENTS = 300


def with_duckdb(paths: list[str]) -> list[tuple[Any, ...]]:
    return duckdb.read_parquet(paths).order("key, seen").fetchall()


def notes(root: Path) -> list[Path]:
    return list(root.rglob("uncommitted/**/*.json"))


def test_rows_arrive_once(kind: str, tmp_path: Path, place: Path) -> None:
    run(tmp_path / "root", make_sink(kind, str(place)), ELEMENTS)
    assert rows(kind, place) == expected(ELEMENTS) == with_duckdb(files(kind, place))
    epochs = list(range(2, 2 + ELEMENTS // 50))  # the first one is the start
    if kind == "delta":
        history = DeltaTable(place).history()
        assert [int(e["forkpoint.epoch"]) for e in reversed(history) if "forkpoint.epoch" in e] == epochs
    else:
        assert [int(s.summary.additional_properties["forkpoint.epoch"]) for s in iceberg(place).snapshots()] == epochs
    assert not notes(tmp_path / "root")


STEPS = ["note+", "write+", "commit", "commit+", "forget+"]
CASES = [(kind, step) for kind in ("delta", "iceberg") for step in STEPS] + [
    ("iceberg", "catalog"),
    ("iceberg", "catalog+"),
]


@pytest.mark.parametrize(("kind", "step"), CASES)
def test_a_driver_that_is_killed_at_a_step(kind: str, tmp_path: Path, place: Path, step: str) -> None:
    root = tmp_path / "root"
    program = [sys.executable, str(PROGRAM), kind, str(place), str(root), str(ELEMENTS)]
    died = subprocess.run([*program, step, "3"], env=ENVIRONMENT, capture_output=True)
    assert died.returncode == -9, died.stderr.decode()
    subprocess.run(program, env=ENVIRONMENT, check=True)
    assert rows(kind, place) == expected(ELEMENTS) == with_duckdb(files(kind, place))
    assert len(list(place.rglob("*.parquet"))) == len(files(kind, place))  # nothing is left of what was not committed
    assert not notes(root)

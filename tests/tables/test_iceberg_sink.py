"""IcebergSink: each row once, whoever dies or sleeps. Tables are read back with pyiceberg, their files with DuckDB."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyiceberg.catalog import load_catalog
from table_jobs import catalog, expected, make_sink
from test_delta_sink import ELEMENTS, ENVIRONMENT, PROGRAM, run


@pytest.fixture
def place(tmp_path: Path) -> Path:
    directory = tmp_path / "warehouse"
    directory.mkdir()
    return directory


def load(place: Path) -> Any:
    return load_catalog("default", **catalog(str(place))).load_table("ns.counts")


def rows(place: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in load(place).scan().to_arrow().to_pylist())


def files(place: Path) -> list[str]:
    return [task.file.file_path.removeprefix("file://") for task in load(place).scan().plan_files()]


def with_duckdb(place: Path) -> list[tuple[Any, ...]]:
    return duckdb.read_parquet(files(place)).order("key, seen").fetchall()


def test_rows_arrive_once(tmp_path: Path, place: Path) -> None:
    run(tmp_path / "root", make_sink("iceberg", str(place)))
    assert rows(place) == expected(ELEMENTS) == with_duckdb(place)
    epochs = [int(s.summary.additional_properties["forkpoint.epoch"]) for s in load(place).snapshots()]
    assert epochs == list(range(2, 2 + ELEMENTS // 50))  # the first one is the start
    assert not list((tmp_path / "root").rglob("uncommitted/**/*.json"))


@pytest.mark.parametrize("step", ["note+", "write+", "commit", "catalog", "catalog+", "commit+"])
def test_a_driver_that_is_killed_at_a_step(tmp_path: Path, place: Path, step: str) -> None:
    root = tmp_path / "root"
    program = [sys.executable, str(PROGRAM), "iceberg", str(place), str(root), str(ELEMENTS)]
    for number in ("1", "4"):
        died = subprocess.run([*program, step, number], env=ENVIRONMENT, capture_output=True)
        assert died.returncode == -9, died.stderr.decode()
    subprocess.run(program, env=ENVIRONMENT, check=True)
    assert rows(place) == expected(ELEMENTS) == with_duckdb(place)
    assert len(list(place.rglob("*.parquet"))) == len(files(place))  # nothing is left of what was not committed
    assert not list(root.rglob("uncommitted/**/*.json"))

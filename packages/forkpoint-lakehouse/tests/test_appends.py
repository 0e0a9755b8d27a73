"""Rows that are appended: each once, whoever dies, in both kinds of table. Read back with their libraries and DuckDB."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from forkpoint.graph.options import RestoreOptions
from programs import ENVIRONMENT, run_python
from table_jobs import expected, make_sink
from table_reading import files, iceberg, job, rows, run

LIBRARIES = ["pyiceberg.catalog.sql", "deltalake"]
PROGRAM = Path(__file__).with_name("table_jobs.py")
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


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "step"), CASES)
def test_a_driver_that_is_killed_at_a_step(kind: str, tmp_path: Path, place: Path, step: str) -> None:
    root = tmp_path / "root"
    program = [PROGRAM, kind, place, root, ELEMENTS]
    died = run_python([*program, step, "3"], env=ENVIRONMENT, loading=LIBRARIES, capture_output=True)
    assert died.returncode == -9, died.stderr.decode()
    run_python(program, env=ENVIRONMENT, loading=LIBRARIES, check=True)
    assert rows(kind, place) == expected(ELEMENTS) == with_duckdb(files(kind, place))
    assert len(list(place.rglob("*.parquet"))) == len(files(kind, place))  # nothing is left of what was not committed
    assert not notes(root)


def test_rescaled_runs_go_on(kind: str, tmp_path: Path, place: Path) -> None:
    running = job(tmp_path / "root", make_sink(kind, str(place)), 1500, parallelism=1)
    thread = threading.Thread(target=running.begin(), daemon=True)
    thread.start()
    for epoch, parallelism in ((4, 3), (10, 2)):
        while running.driver.status().epoch < epoch and thread.is_alive():
            time.sleep(0.02)
        running.driver.rescale(parallelism).done.result()
    thread.join()
    assert rows(kind, place) == expected(1500)


def test_a_fork_writes_as_a_job_of_its_own(kind: str, tmp_path: Path, place: Path) -> None:
    """To the same table, from a savepoint in the middle: what follows is there twice."""
    original = job(tmp_path / "root", make_sink(kind, str(place)), 1000)
    thread = threading.Thread(target=original.begin(), daemon=True)
    thread.start()
    while original.driver.status().epoch < 5 and thread.is_alive():
        time.sleep(0.02)
    savepoint = original.driver.savepoint().done.result()
    thread.join()
    assert rows(kind, place) == expected(1000)
    run(tmp_path / "root", make_sink(kind, str(place)), 1000, name="fork", restore=RestoreOptions(savepoint))
    twice = Counter(rows(kind, place))
    assert set(twice) == set(expected(1000))
    assert 0 < sum(count == 2 for count in twice.values()) < 1000
    assert max(twice.values()) == 2

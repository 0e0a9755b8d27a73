"""DeltaSink: each row once, whoever dies or sleeps. Tables are read back with deltalake, their files with DuckDB."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from table_jobs import build, expected

import forkpoint as fp
from forkpoint.api.execution import Job, prepare
from forkpoint.api.launch import Launch
from forkpoint.graph.options import RestartStrategy

PROGRAM = Path(__file__).with_name("table_jobs.py")
ELEMENTS = 600
PATHS = [str(PROGRAM.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
ENVIRONMENT = os.environ | {"FORKPOINT_ENGINE": "local", "PYTHONPATH": os.pathsep.join(PATHS)}


def job(
    root: Path, to: Any, elements: int = ELEMENTS, *, name: str = "counting", parallelism: int = 2, **options: Any
) -> Job:
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(str(root)).set_parallelism(parallelism)
    env.options = replace(env.options, restart=options.pop("restart", RestartStrategy.none()))
    build(env, elements, to)
    env.launch = Launch(options={"engine": "local"}, **options)
    return prepare(env, name)


def run(root: Path, to: Any, elements: int = ELEMENTS, **options: Any) -> Any:
    return job(root, to, elements, **options).begin()()


def rows(table: Path) -> list[tuple[Any, ...]]:
    found = DeltaTable(table).to_pyarrow_table()
    return sorted(tuple(row.values()) for row in found.to_pylist())


def with_duckdb(table: Path) -> list[tuple[Any, ...]]:
    return duckdb.read_parquet(DeltaTable(table).file_uris()).order("key, seen").fetchall()


def data_files(table: Path) -> int:
    return len(list(table.rglob("*.parquet")))


def test_rows_arrive_once(tmp_path: Path) -> None:
    table = tmp_path / "table"
    run(tmp_path / "root", fp.DeltaSink(str(table)))
    assert rows(table) == expected(ELEMENTS) == with_duckdb(table)
    assert DeltaTable(table).version() == ELEMENTS / 50  # one commit for each epoch, and the table's creation
    assert not list((tmp_path / "root").rglob("uncommitted/**/*.json"))


STEPS = ["note", "note+", "write", "write+", "commit", "commit+", "settle", "forget+"]


@pytest.mark.parametrize("step", STEPS)
def test_a_driver_that_is_killed_at_a_step(tmp_path: Path, step: str) -> None:
    table, root = tmp_path / "table", tmp_path / "root"
    program = [sys.executable, str(PROGRAM), "delta", str(table), str(root), str(ELEMENTS)]
    for number in ("1", "4"):
        died = subprocess.run([*program, step, number], env=ENVIRONMENT, capture_output=True)
        assert died.returncode == -9, died.stderr.decode()
    subprocess.run(program, env=ENVIRONMENT, check=True)
    assert rows(table) == expected(ELEMENTS) == with_duckdb(table)
    assert data_files(table) == len(DeltaTable(table).file_uris())  # nothing is left of epochs that were not committed
    assert not list(root.rglob("uncommitted/**/*.json"))

"""What queries over orders result in: the changes of a job added up, and DuckDB's answer."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

import forkpoint as fp
from forkpoint.testing import ABORT, EOF, PAUSE
from servers.jars import BUILD, downloaded


class Order(NamedTuple):
    k: str | None
    g: int | None
    v: int | None
    x: float | None


def folded(query: str, rows: list[Order], *, epoch_rows: int, parallelism: int, engine: str = "local") -> Counter[Any]:
    """What remains of the changes of a result. Nothing may be removed that isn't there. ``//``: DuckDB's division of integers."""
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": engine})
    env.set_parallelism(parallelism)
    env.set_max_epoch_rows(epoch_rows)
    tables = fp.StreamTableEnvironment.create(env)
    tables.create_temporary_view("orders", env.from_collection(rows, type_info=Order))
    found: Counter[Any] = Counter()
    for row in tables.execute_sql(query.replace("//", "/")).collect():
        values = tuple(row)
        if row.get_row_kind() is fp.RowKind.DELETE:
            assert found[values] > 0, (values, found)
            found[values] -= 1
        else:
            found[values] += 1
    return +found


def interrupted(rng: random.Random, rows: Sequence[Any]) -> list[Any]:
    """A script with these rows, between which now and then an epoch ends, the process dies, or a run stops."""
    script: list[Any] = []
    for row in rows:
        script += rng.choice([*[[]] * 20, [PAUSE], [PAUSE], [ABORT], [PAUSE, EOF]])
        script.append(row)
    return script


def answered(query: str, rows: list[Order]) -> Counter[Any]:
    """DuckDB's answer."""
    schema = pa.schema([("k", pa.string()), ("g", pa.int64()), ("v", pa.int64()), ("x", pa.float64())])
    orders = pa.Table.from_pylist([row._asdict() for row in rows], schema=schema)  # noqa: F841 (DuckDB finds it by its name)
    return Counter(map(tuple, duckdb.sql(query.replace("LEFT SEMI", "SEMI").replace("LEFT ANTI", "ANTI")).fetchall()))


def tpc_tables(benchmark: str, directory: Path, scale: float) -> Path:
    """The directory, with the tables and queries of TPC-H or TPC-DS. Skips the test if their generators cannot be installed."""
    packages = ["duckdb==1.5.5", "duckdb-extensions==1.5.5", f"duckdb-extension-{benchmark}==1.5.5"]
    install = [sys.executable, "-m", "pip", "install", "--quiet", *packages]
    libraries = downloaded(BUILD / benchmark, lambda into: [*install, "--target", str(into)], f"pip cannot install {packages}")
    program = [sys.executable, str(Path(__file__).with_name("tpc_data.py")), benchmark, str(directory), str(scale)]
    environment = {**os.environ, "PYTHONPATH": str(libraries), "HOME": str(directory)}
    done = subprocess.run(program, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return directory

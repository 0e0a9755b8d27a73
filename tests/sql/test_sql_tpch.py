"""TPC-H's 22 queries, which nobody here wrote, over tables that grow from epoch to epoch, end with DuckDB's answer."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forkpoint as fp
from servers.jars import BUILD, downloaded

pytestmark = pytest.mark.slow
PACKAGES = ("duckdb==1.5.5", "duckdb-extensions==1.5.5", "duckdb-extension-tpch==1.5.5")
SCALE = 0.01  # 60,000 line items
TYPES = {"int32": "INT", "int64": "BIGINT", "string": "STRING", "date32[day]": "DATE"}
SPELLINGS = [
    (r"CAST\(('[^']*') AS date\)", r"DATE \1"),
    (r"interval\s+'?(\d+)'?\s+(day|month|year)s?", r"INTERVAL '\1' \2"),
    (r"GROUP BY\s+supplier_no", "GROUP BY l_suppkey"),  # a name from SELECT, which SQL does not know there
]


@pytest.fixture(scope="module")
def tpch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    install = [sys.executable, "-m", "pip", "install", "--quiet", *PACKAGES]
    libraries = downloaded(BUILD / "tpch", lambda into: [*install, "--target", str(into)], f"pip cannot install {PACKAGES}")
    directory = tmp_path_factory.mktemp("tpch")
    program = [sys.executable, str(Path(__file__).with_name("tpch_data.py")), str(directory), str(SCALE)]
    environment = {**os.environ, "PYTHONPATH": str(libraries), "HOME": str(directory)}
    done = subprocess.run(program, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return directory


def ddl(path: Path) -> str:
    fields = pq.read_schema(path)
    types = [f"DECIMAL({t.precision}, {t.scale})" if pa.types.is_decimal(t) else TYPES[str(t)] for t in fields.types]
    columns = ", ".join(f"{name} {of}" for name, of in zip(fields.names, types, strict=True))
    return f"CREATE TABLE {path.stem} ({columns}) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet')"


def rounded(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """DuckDB divides decimals as DOUBLE."""
    return tuple(round(float(value), 2) if isinstance(value, Decimal | float) else value for value in row)


@pytest.mark.parametrize("number", range(1, 23))
def test_a_query_over_growing_tables_ends_with_the_answer(tpch: Path, number: int) -> None:
    query = json.loads((tpch / "queries.json").read_text())[str(number)].strip().rstrip(";")
    text = query
    for pattern, spelling in SPELLINGS:
        text = re.sub(pattern, spelling, text, flags=re.IGNORECASE)
    if "LIMIT" not in text.upper():  # the changes of a result have no order
        text = re.sub(r"order by(?!.*order by).*$", "", text, flags=re.IGNORECASE | re.DOTALL)
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    env.set_parallelism(1 + number % 2)
    env.set_max_epoch_rows(4000)
    tables = fp.StreamTableEnvironment.create(env)
    with duckdb.connect() as database:
        for path in sorted(tpch.glob("*.parquet")):
            tables.execute_sql(ddl(path))
            database.execute(f"CREATE VIEW {path.stem} AS FROM '{path}'")
        answer = Counter(map(rounded, database.execute(query).fetchall()))
    found: Counter[Any] = Counter()
    for row in tables.execute_sql(text).collect():
        found[rounded(tuple(row))] += -1 if row.get_row_kind() is fp.RowKind.DELETE else 1
    if answer == Counter([(None,)]):  # the sum of no rows: a stream has no row until there is one
        answer = Counter()
    assert {row: count for row, count in found.items() if count} == answer

"""TPC-DS's 99 queries, which nobody here wrote: those that are read end with DuckDB's answer."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest
from sql_results import tpc_tables

from suites.sqllogic import Tables, of_query

pytestmark = pytest.mark.slow
SCALE = 0.01
REFUSED: dict[int, str] = {}
"""The queries that are not read, and why."""


@pytest.fixture(scope="module")
def tpcds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tpc_tables("tpcds", tmp_path_factory.mktemp("tpcds"), SCALE)


@pytest.mark.parametrize("number", range(1, 100))
def test_a_query_ends_with_the_answer(tpcds: Path, number: int) -> None:
    query = json.loads((tpcds / "queries.json").read_text())[str(number)].strip().rstrip(";")
    with duckdb.connect() as database:
        paths = sorted(tpcds.glob("*.parquet"))
        for path in paths:
            database.execute(f"CREATE VIEW {path.stem} AS FROM '{path}'")
        found = of_query(query, (f"q{number}", 1), Tables(database, tpcds, {path.stem: path.stem for path in paths}))
    assert found is not None
    if number in REFUSED:
        assert (found.kind, found.reason[: len(REFUSED[number])]) == ("refused", REFUSED[number])
    else:
        assert found.kind == "equal", found.reason

"""TPC-DS's 99 queries, which nobody here wrote: those that are read end with DuckDB's answer."""

from __future__ import annotations

import json
import re
from pathlib import Path

import duckdb
import pytest
from sql_results import tpc_tables

from suites.sqllogic import Tables, of_query

pytestmark = pytest.mark.slow
SCALE = 0.01
REFUSED = {41: "a subquery with aggregates can be compared with the outer query by = only"}
NO_ROW = (13, 16, 32, 38, 88, 90, 92, 94, 95, 96)
"""Aggregates without GROUP BY: in a stream, they have no row until there is one."""
SPELLINGS = [
    (r"(?<!CAST\()(?<!date )('\d{4}-\d\d-\d\d')", r"CAST(\1 AS DATE)"),
    (r"d1\.d_date \+ 5\b", "d1.d_date + INTERVAL '5' DAY"),
]


@pytest.fixture(scope="module")
def tpcds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tpc_tables("tpcds", tmp_path_factory.mktemp("tpcds"), SCALE)


@pytest.mark.parametrize("number", range(1, 100))
def test_a_query_ends_with_the_answer(tpcds: Path, number: int) -> None:
    query = json.loads((tpcds / "queries.json").read_text())[str(number)].strip().rstrip(";")
    for pattern, spelling in SPELLINGS:
        query = re.sub(pattern, spelling, query, flags=re.IGNORECASE)
    with duckdb.connect() as database:
        paths = sorted(tpcds.glob("*.parquet"))
        for path in paths:
            database.execute(f"CREATE VIEW {path.stem} AS FROM '{path}'")
        found = of_query(query, (f"q{number}", 1), Tables(database, tpcds, {path.stem: path.stem for path in paths}))
    assert found is not None
    wanted = "refused" if number in REFUSED else "differs" if number in NO_ROW else "equal"
    assert (found.kind, found.reason[:40]) == (wanted, REFUSED.get(number, found.reason)[:40])

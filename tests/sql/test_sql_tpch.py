"""TPC-H's 22 queries, which nobody here wrote, over tables that grow and lose rows, end with DuckDB's answer."""

from __future__ import annotations

import json
import re
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sql_results import tpc_tables

import forkpoint as fp
from forkpoint.connectors.formats.changes import change_type
from forkpoint.relational.changes import row_type
from forkpoint.sql.errors import Text
from forkpoint.sql.parser import parse
from forkpoint.sql.statements import CreateTable

pytestmark = pytest.mark.slow
SCALE = 0.01  # 60,000 line items
TYPES = {"int32": "INT", "int64": "BIGINT", "string": "STRING", "date32[day]": "DATE"}
SPELLINGS = [
    (r"CAST\(('[^']*') AS date\)", r"DATE \1"),
    (r"interval\s+'?(\d+)'?\s+(day|month|year)s?", r"INTERVAL '\1' \2"),
    (r"GROUP BY\s+supplier_no", "GROUP BY l_suppkey"),  # a name from SELECT, which SQL does not know there
]


@pytest.fixture(scope="module")
def tpch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tpc_tables("tpch", tmp_path_factory.mktemp("tpch"), SCALE)


def ddl(path: Path) -> str:
    fields = pq.read_schema(path)
    types = [f"DECIMAL({t.precision}, {t.scale})" if pa.types.is_decimal(t) else TYPES[str(t)] for t in fields.types]
    columns = ", ".join(f"{name} {of}" for name, of in zip(fields.names, types, strict=True))
    return f"CREATE TABLE {path.stem} ({columns}) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet')"


def rounded(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """DuckDB divides decimals as DOUBLE."""
    return tuple(round(float(value), 2) if isinstance(value, Decimal | float) else value for value in row)


def refreshed(database: duckdb.DuckDBPyConnection, table: str, into: Path, refreshes: int) -> None:
    """Make a table's view the rows that remain after refreshes, and write the changes that lead there, as a source of changes has
    them: rows are added as by RF1 and removed as by RF2, some of them twice."""
    key = f"{table[0]}_orderkey % 11"
    stages = [(0, 1, f"{key} NOT IN (7, 8)"), (1, 1, f"{key} IN (7, 8)"), (1, -1, f"{key} IN (3, 4)")]
    stages += [(2, 1, f"{key} = 4"), (2, -1, f"{key} IN (5, 7)")]
    changes = (f"SELECT {stage} AS stage, {weight} AS weight, * FROM {table}_rows WHERE {of}" for stage, weight, of in stages)
    changed = f"SELECT * FROM ({' UNION ALL '.join(changes)}) WHERE stage <= {refreshes}"
    database.execute(f"CREATE TABLE {table}_changes AS {changed}")
    columns = [column[0] for column in database.execute(f"SELECT * FROM {table}_rows LIMIT 0").description]
    row = f"struct_pack({', '.join(f'{name} := {name}' for name in columns)})"
    database.execute(
        f"""COPY (SELECT CASE weight WHEN 1 THEN 0 ELSE 3 END AS kind, CASE weight WHEN -1 THEN {row} END AS before,
                   CASE weight WHEN 1 THEN {row} END AS after, NULL::VARCHAR AS database, NULL::VARCHAR AS "table",
                   NULL::TIMESTAMPTZ AS time FROM {table}_changes ORDER BY stage, hash({", ".join(columns[:4])})) TO '{into}'"""
    )
    names = ", ".join(columns)
    database.execute(f"CREATE VIEW {table} AS SELECT {names} FROM {table}_changes GROUP BY {names} HAVING sum(weight) > 0")


@pytest.mark.parametrize("number", range(1, 23))
def test_a_query_over_growing_tables_ends_with_the_answer(tpch: Path, number: int) -> None:
    with duckdb.connect() as database:
        tables = environment(number)
        for path in sorted(tpch.glob("*.parquet")):
            tables.execute_sql(ddl(path))
            database.execute(f"CREATE VIEW {path.stem} AS FROM '{path}'")
        check(number, tpch, tables, database)


@pytest.mark.parametrize("number", range(1, 23))
def test_a_query_over_tables_that_lose_rows_ends_with_the_answer(tpch: Path, tmp_path: Path, number: int) -> None:
    with duckdb.connect() as database:
        tables = environment(number)
        for path in sorted(tpch.glob("*.parquet")):
            if path.stem in ("orders", "lineitem"):
                database.execute(
                    f"CREATE VIEW {path.stem}_rows AS FROM '{path}' WHERE {path.stem[0]}_orderkey % 5 < 2"
                )  # to be quick
                refreshed(database, path.stem, into := tmp_path / path.name, 1 + number % 2)
                add_changes(tables, path, into)
            else:
                tables.execute_sql(ddl(path))
                database.execute(f"CREATE VIEW {path.stem} AS FROM '{path}'")
        check(number, tpch, tables, database)


def environment(number: int) -> fp.StreamTableEnvironment:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    env.set_parallelism(1 + number % 2)
    env.set_max_epoch_rows(4000)
    return fp.StreamTableEnvironment.create(env)


def add_changes(tables: fp.StreamTableEnvironment, path: Path, changes: Path) -> None:
    """A table whose source has changes, in Parquet."""
    statement, *_ = parse(Text(ddl(path)))
    assert isinstance(statement, CreateTable)
    source = fp.FileSource.parquet(str(changes), change_type(row_type(statement.schema)), bounded=True)
    stream = tables._session.env.from_source(source, fp.WatermarkStrategy.no_watermarks(), path.stem).uid(path.stem)
    tables.create_temporary_view(path.stem, tables.from_changelog_stream(stream))


def check(number: int, tpch: Path, tables: fp.StreamTableEnvironment, database: duckdb.DuckDBPyConnection) -> None:
    query = json.loads((tpch / "queries.json").read_text())[str(number)].strip().rstrip(";")
    text = query
    for pattern, spelling in SPELLINGS:
        text = re.sub(pattern, spelling, text, flags=re.IGNORECASE)
    if "LIMIT" not in text.upper():  # the changes of a result have no order
        text = re.sub(r"order by(?!.*order by).*$", "", text, flags=re.IGNORECASE | re.DOTALL)
    answer = Counter(map(rounded, database.execute(query).fetchall()))
    found: Counter[Any] = Counter()
    for row in tables.execute_sql(text).collect():
        found[rounded(tuple(row))] += -1 if row.get_row_kind() is fp.RowKind.DELETE else 1
    if answer == Counter([(None,)]):  # the sum of no rows: a stream has no row until there is one
        answer = Counter()
    assert {row: count for row, count in found.items() if count} == answer

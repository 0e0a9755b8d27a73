"""SQL reads the savepoint and nothing else of the machine, whoever wrote it."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from saved_job import saved

import forkpoint as fp
from forkpoint.errors import EditRefused
from forkpoint.savepoint.inspect import sandbox
from forkpoint.savepoint.inspect.query_limits import QueryLimits
from forkpoint.state_processor import SavepointReader, SavepointWriter


@pytest.fixture(scope="module")
def savepoint(tmp_path_factory: pytest.TempPathFactory) -> SavepointReader:
    return saved(tmp_path_factory.mktemp("saved"), parallelism=1, max_parallelism=8)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of each kind that DuckDB reads."""
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "secret.csv").write_text("a,b\nsecret,2\n")
    (tmp_path / "secret.json").write_text('{"a": "secret"}')
    duckdb.connect().execute(f"COPY (SELECT 'secret' AS a) TO '{tmp_path}/secret.parquet'").close()
    return tmp_path


READS = [
    "SELECT * FROM read_text('{0}/secret.txt')",
    "SELECT * FROM read_blob('{0}/secret.txt')",
    "SELECT * FROM read_csv('{0}/secret.csv')",
    "SELECT * FROM read_csv_auto('{0}/secret.csv')",
    "SELECT * FROM sniff_csv('{0}/secret.csv')",
    "SELECT * FROM read_json('{0}/secret.json')",
    "SELECT * FROM read_ndjson_objects('{0}/secret.json')",
    "SELECT * FROM read_parquet('{0}/secret.parquet')",
    "SELECT * FROM parquet_metadata('{0}/secret.parquet')",
    "SELECT * FROM glob('{0}/*')",
    "SELECT * FROM '{0}/secret.csv'",
    "FROM '{0}/secret.parquet'",
    "WITH q AS (FROM '{0}/secret.csv') SELECT * FROM q",
    "SELECT * FROM everything.total WHERE key IN (SELECT content FROM read_text('{0}/secret.txt'))",
    "SELECT (SELECT count(*) FROM READ_TEXT('{0}/secret.txt'))",
    "SELECT 1; SELECT * FROM read_text('{0}/secret.txt')",
    "SELECT * FROM query('FROM read_text(''{0}/secret.txt'')')",
    "SELECT * FROM query_table('{0}/secret.csv')",
    "SELECT * FROM json_execute_serialized_sql('{{}}')",
    "DESCRIBE (SELECT * FROM read_csv('{0}/secret.csv'))",
    "SELECT * FROM read_csv('https://example.com/a.csv')",
    "SELECT * FROM read_parquet('s3://bucket/a.parquet')",
    "SELECT * FROM sqlite_scan('{0}/secret.txt', 't')",
]
CHANGES = [
    "COPY everything.total TO '{0}/out.csv'",
    "COPY (SELECT 1) TO '{0}/out.parquet'",
    "EXPORT DATABASE '{0}/out'",
    "ATTACH '{0}/out.db'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "CREATE SECRET (TYPE s3)",
    "SET enable_external_access = true",
    "PRAGMA enable_external_access = true",
    "SELECT 1; SET lock_configuration = false",
    "CREATE TABLE t AS SELECT 1",
    "SELECT * FROM enable_logging()",
    "SELECT * FROM duckdb_secrets()",
    "SELECT getenv('HOME')",
    # Addresses in this process's memory.
    "SELECT * FROM arrow_scan(1, 2, 3)",
    "SELECT * FROM python_arrow_scan(1, 2, 3)",
    "SELECT * FROM pandas_scan(1)",
    "SELECT * FROM python_map_function(1)",
]


@pytest.mark.parametrize("sql", READS + CHANGES)
def test_a_query_sees_nothing_but_states(savepoint: SavepointReader, secret: Path, sql: str) -> None:
    before = sorted(os.listdir(secret))
    with pytest.raises((fp.EditRefused, fp.StateNotFound)) as found:
        savepoint.query(sql.format(secret))
    assert "secret,2" not in str(found.value)
    assert sorted(os.listdir(secret)) == before


@pytest.mark.parametrize(
    "condition",
    [
        "(SELECT count(*) FROM read_text('{0}/secret.txt')) = 1",
        "EXISTS (FROM '{0}/secret.csv')",
        "EXISTS (FROM glob('{0}/*'))",
        "true) UNION ALL (SELECT length(content) FROM read_text('{0}/secret.txt')",
        "true); COPY rows TO '{0}/out.csv'; SELECT 0 FROM rows WHERE (true",
        "EXISTS (FROM pandas_scan(1))",
    ],
)
def test_a_condition_sees_nothing_but_its_rows(savepoint: SavepointReader, secret: Path, tmp_path: Path, condition: str) -> None:
    edit = SavepointWriter.from_existing_savepoint(savepoint)
    with pytest.raises(fp.EditRefused, match=r"the condition .* is invalid"):
        edit.filter("everything", condition.format(secret), "total").write(tmp_path / "new")
    assert not (tmp_path / "out.csv").exists()


def test_even_sql_that_nobody_looked_at_is_kept_inside(secret: Path) -> None:
    """The second lock: DuckDB's own settings."""
    files = [each.format(secret) for each in READS if "{0}" in each and "secret.parquet" not in each]
    inside = ("CREATE TABLE", "SELECT * FROM", "SELECT getenv", "SELECT 1; SET")
    with sandbox.connected() as (connection, _):
        sandbox.lock(connection, [str(secret / "secret.parquet")])
        assert connection.sql(f"FROM read_parquet('{secret}/secret.parquet')").fetchall() == [("secret",)]
        for sql in [*files, *(each.format(secret) for each in CHANGES if not each.startswith(inside))]:
            if "everything" in sql:
                continue
            with pytest.raises(duckdb.Error):
                connection.sql(sql).fetchall()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM range(3)",
        "SELECT unnest([1, 2])",
        "SELECT * FROM generate_series(1, 3) t(i) JOIN (SELECT 1 AS i) USING (i)",
        "WITH q AS (SELECT max(sum) AS m FROM everything.total) SELECT m FROM q",
        "SELECT DISTINCT ON (key) key, sum FROM EVERYTHING.Total ORDER BY ALL",
        "DESCRIBE SELECT * FROM everything.total",
        "SELECT date_trunc('day', now())",
        "SELECT regexp_extract(key, '[0-9]+')::INT AS n FROM everything.total ORDER BY n",
    ],
)
def test_plain_sql_works(savepoint: SavepointReader, sql: str) -> None:
    assert savepoint.query(sql).num_rows > 0


@pytest.mark.parametrize("sql", ["", " ", ";", "-- nothing"])
def test_an_empty_query_is_refused(savepoint: SavepointReader, sql: str) -> None:
    with pytest.raises(fp.EditRefused, match="the query is empty"):
        savepoint.query(sql)


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT 1; SELECT 2", "has several statements"),
        ("DELETE FROM everything.total", "may only read: give one SELECT"),
    ],
)
def test_only_one_select_is_run(savepoint: SavepointReader, sql: str, why: str) -> None:
    with pytest.raises(EditRefused, match=why):
        savepoint.query(sql)


LIMITS = QueryLimits(seconds=20, rows=5, result_bytes=1 << 20, memory_bytes=256 << 20, spill_bytes=1 << 20, threads=1)


def test_a_query_without_end_is_ended(savepoint: SavepointReader) -> None:
    began = time.monotonic()
    with pytest.raises(EditRefused, match="took longer than 1 s"):
        savepoint.query_within(
            "SELECT sum(a.range * b.range) FROM range(10000000000) a, range(1000) b", replace(LIMITS, seconds=1)
        )
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("sql", ["SELECT repeat('x', 2000000000)", "SELECT list(repeat('x', 1000000)) FROM range(2000)"])
def test_a_query_of_too_much_memory_is_ended(savepoint: SavepointReader, sql: str) -> None:
    with pytest.raises(EditRefused, match="needs more memory than 256 MiB"):
        savepoint.query_within(sql, LIMITS)


def test_the_first_rows_of_many_are_given_in_their_order(savepoint: SavepointReader) -> None:
    found, more = savepoint.query_within("SELECT range AS n FROM range(100000) ORDER BY n DESC", LIMITS)
    assert (found.column("n").to_pylist(), more) == ([99_999 - n for n in range(5)], True)
    few, more = savepoint.query_within("SELECT range AS n FROM range(5);", LIMITS)
    assert (few.column("n").to_pylist(), more) == ([0, 1, 2, 3, 4], False)


def test_what_is_larger_than_a_result_may_be_is_left_out(savepoint: SavepointReader) -> None:
    large, more = savepoint.query_within("SELECT repeat('x', 400000) AS x FROM range(4)", LIMITS)
    assert (len(large), more) == (2, True)


def test_limits_change_no_result(savepoint: SavepointReader) -> None:
    sql = 'SELECT count(*) AS n, sum("sum") AS total FROM everything.total'
    assert savepoint.query_within(sql, LIMITS) == (savepoint.query(sql), False)
    with pytest.raises(EditRefused, match="may only read"):
        savepoint.query_within("SELECT * FROM read_text('/etc/passwd')", LIMITS)
    with pytest.raises(EditRefused, match="invalid"):
        savepoint.query_within("SELECT nothing FROM everything.total", LIMITS)


def test_queries_run_side_by_side(savepoint: SavepointReader) -> None:
    """Connections of one name would share a database."""
    with ThreadPoolExecutor(4) as pool:
        sql = "SELECT count(*) FROM everything.total, range(20000)"
        found = list(pool.map(lambda _: savepoint.query(sql).column(0)[0].as_py(), range(12)))
    assert len(set(found)) == 1

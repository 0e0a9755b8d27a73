"""Tables of databases and of generated rows, and references to secrets."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

import forkpoint as fp
from forkpoint.contract.source import ReaderContext
from forkpoint.sql.errors import Text
from forkpoint.sql.parser import parse
from forkpoint.sql.statements import CreateTable
from forkpoint.table.connectors import registry
from forkpoint.table.connectors.options import TableOptions
from forkpoint.table.connectors.registry import source_of

GENERATED = """CREATE TABLE g (
    n BIGINT, id INT NOT NULL, big BIGINT, s STRING, b BOOLEAN, x DOUBLE, f FLOAT, t TIMESTAMP_LTZ(3), d DATE, at TIME, y BYTES,
    m DECIMAL(5, 2)
) WITH (
    'connector' = 'datagen', 'rows-per-second' = '1000000', 'number-of-rows' = '5000',
    'fields.n.kind' = 'sequence', 'fields.n.start' = '5', 'fields.n.end' = '2004', 'fields.id.min' = '-3', 'fields.id.max' = '3',
    'fields.s.length' = '21', 'fields.x.min' = '0', 'fields.x.max' = '0.5', 'fields.b.null-rate' = '0.25',
    'fields.y.length' = '0', 'fields.t.max-past' = '1 min'
)"""


def generated() -> Any:
    (table,) = parse(Text(GENERATED))
    assert isinstance(table, CreateTable)
    return source_of(table)


def test_generated_rows_are_the_same_whenever_they_are_read() -> None:
    source = generated()
    reader = source.create_reader()
    reader.open(ReaderContext("g", 1_700_000_000_000))
    at_once = [row for each in _ranges(source, [2000]) for batch in reader.read(each) for row in batch.to_pylist()]
    in_pieces = [row for each in _ranges(source, [1, 700, 1299]) for batch in reader.read(each) for row in batch.to_pylist()]
    assert at_once == in_pieces  # 2000 rows: the sequence ends before number-of-rows
    assert [row["n"] for row in at_once] == list(range(5, 2005))
    assert {row["id"] for row in at_once} == set(range(-3, 4))
    assert len({row["big"] for row in at_once}) == 2000
    assert min(row["big"] for row in at_once) < -(2**62) < 2**62 < max(row["big"] for row in at_once)
    assert {len(row["s"]) for row in at_once} == {21}
    assert {row["y"] for row in at_once} == {b""}
    assert min(row["m"] for row in at_once) < -900 < 900 < max(row["m"] for row in at_once)
    assert 400 < sum(row["b"] is None for row in at_once) < 600
    assert all(0 <= row["x"] < 0.5 for row in at_once)
    ages = [1_700_000_000 - row["t"].timestamp() for row in at_once]
    assert 0 <= min(ages) < 5 < 55 < max(ages) < 60


def _ranges(source: Any, sizes: list[int]) -> list[Any]:
    """Ranges of these sizes, as epochs plan them; a new enumerator begins where the last one ended."""
    found, position = [], None
    for size in sizes:
        enumerator = source.create_enumerator(position)
        planned = 0
        while planned < size:
            ranges = enumerator.plan(size - planned, 1)
            planned += sum(each.rows for each in ranges)
            found += ranges
        position = enumerator.position
    return found


def test_rows_are_written_to_a_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = sqlite3.connect(tmp_path / "db")
    database.execute("CREATE TABLE totals (k TEXT NOT NULL PRIMARY KEY, n INTEGER, total INTEGER)")
    database.execute("CREATE TABLE log (k TEXT, v INTEGER)")
    database.commit()
    monkeypatch.setenv("DATABASE", str(tmp_path / "db"))
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    env.set_max_epoch_rows(7)
    t_env = fp.StreamTableEnvironment.create(env)
    options = "'connector' = 'jdbc', 'url' = 'jdbc:sqlite:${env:DATABASE}', 'table-name'"
    t_env.execute_sql(f"CREATE TABLE log (k STRING, v BIGINT) WITH ({options} = 'log')")
    t_env.execute_sql(
        f"CREATE TABLE totals (k STRING, n BIGINT, total BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ({options} = 'totals')"
    )
    rows = [(f"key {n % 5}", n) for n in range(40)]
    t_env.create_temporary_view(
        "input", env.from_collection(rows, fp.Types.ROW_NAMED(["k", "v"], [fp.Types.STRING(), fp.Types.LONG()]))
    )
    statements = t_env.create_statement_set()
    statements.add_insert_sql("INSERT INTO log SELECT k, v FROM input WHERE v < 10")
    # Groups come, change, and go: their sums are above the limit for some epochs only.
    statements.add_insert_sql(
        "INSERT INTO totals SELECT k, COUNT(*), SUM(v) FROM input GROUP BY k HAVING COUNT(*) < 8 OR k = 'key 1'"
    )
    statements.execute().wait()
    assert database.execute("SELECT * FROM log ORDER BY v").fetchall() == rows[:10]
    assert database.execute("SELECT * FROM totals").fetchall() == [("key 1", 8, sum(range(1, 40, 5)))]

    parts = "'scan.partition.column' = 'v', 'scan.partition.num' = '3', 'scan.partition.lower-bound' = '1'"
    parts += ", 'scan.partition.upper-bound' = '8', 'scan.fetch-size' = '2'"
    t_env.execute_sql(f"CREATE TABLE scanned (v BIGINT, k STRING) WITH ({options} = 'log', {parts})")
    found = t_env.execute_sql("SELECT s.v, l.k FROM scanned AS s JOIN log AS l ON l.v = s.v").collect()
    assert sorted(map(tuple, found)) == [(v, k) for k, v in rows[1:9]]


def test_a_connector_that_is_not_installed_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "entry_points", lambda **_: ())
    for name, extra in {
        "postgres-cdc": "postgres",
        "redis": "redis",
        "cassandra": "cassandra",
        "opensearch": "opensearch",
    }.items():
        (table,) = parse(Text(f"CREATE TABLE t (k STRING) WITH ('connector' = '{name}')"))
        assert isinstance(table, CreateTable)
        with pytest.raises(fp.SqlError, match=rf"connector '{name}' is in a package: pip install \"forkpoint\[{extra}\]\""):
            registry.sink_of(table)


def test_secrets_of_the_environment_stand_in_no_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    t_env = fp.StreamTableEnvironment.create(env)
    t_env.execute_sql(
        "CREATE TABLE t (k STRING) WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json', "
        "'properties.bootstrap.servers' = 'b:1', 'properties.sasl.password' = 'x${env:PASSWORD}y')"
    )
    with pytest.raises(
        fp.SqlError, match=r"'properties.sasl.password' refers to the environment variable PASSWORD, which is not set"
    ):
        t_env.execute_sql("SELECT * FROM t")
    monkeypatch.setenv("PASSWORD", "hunter2")
    t_env.execute_sql("ALTER TABLE t SET ('properties.sasl.username' = '${env:NAME}', 'url' = 'db://u:${env:PASSWORD}@host')")
    ((shown,),) = t_env.execute_sql("SHOW CREATE TABLE t").collect()
    assert "'properties.sasl.password' = '*********" in shown
    assert "'properties.sasl.username' = '${env:NAME}'" in shown  # a reference is no secret
    assert "'url' = 'db://u:${env:PASSWORD}@host'" in shown
    t_env.execute_sql("ALTER TABLE t RESET ('url', 'properties.sasl.username')")
    table = t_env._session.catalog.tables["t"]
    assert TableOptions(table).prefixed("properties.")["sasl.password"] == "xhunter2y"
    assert source_of(table).output_type() is not None

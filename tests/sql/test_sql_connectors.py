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
    found = t_env.execute_sql("SELECT k FROM scanned").collect()  # not the column that says what each task reads
    assert sorted(map(tuple, found)) == sorted((k,) for k, _ in rows[1:9])


def test_values_of_each_type_are_written_to_sqlite_and_read_again(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "db")
    types = "b BOOLEAN, d DATE, t TIME, ts TIMESTAMP, tl TIMESTAMP, a JSON, r TEXT, m JSON, iv TEXT, x NUMERIC(10, 2), y TEXT"
    database.execute(f"CREATE TABLE v ({types})")
    t_env = fp.StreamTableEnvironment.create(
        fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    )
    t_env.execute_sql(
        "CREATE TABLE v (b BOOLEAN, d DATE, t TIME, ts TIMESTAMP, tl TIMESTAMP_LTZ, a ARRAY<INT>, r ROW<x INT>, "
        "m MAP<STRING, INT>, iv INTERVAL DAY TO SECOND, x DECIMAL(10, 2), y DECIMAL(10, 2)) "
        f"WITH ('connector' = 'jdbc', 'url' = 'sqlite:///{tmp_path}/db', 'table-name' = 'v')"
    )
    values = (
        "TRUE, DATE '2024-01-02', TIME '10:00:00', TIMESTAMP '2024-01-02 10:00:00.5', TO_TIMESTAMP_LTZ(1500, 3), ARRAY[1, NULL], "
        "ROW(1), MAP['a', 1], INTERVAL '26' HOUR, 0.1, 0.20"
    )
    t_env.execute_sql(f"INSERT INTO v SELECT {values} UNION ALL SELECT {', '.join(['NULL'] * 11)}").wait()
    assert sorted(database.execute("SELECT iv, x, y FROM v"), key=str) == [("P1DT7200S", 0.1, "0.20"), (None,) * 3]
    (wanted,) = (tuple(row) for row in t_env.execute_sql(f"SELECT {values}").collect())
    found = {tuple(map(str, row)) for row in t_env.execute_sql("SELECT * FROM v").collect()}
    nested = str(wanted[6]).replace("EXPR$0", "x")
    full = (*map(str, wanted[:6]), nested, *map(str, wanted[7:9]), "0.10", "0.20")
    assert found == {full, ("None",) * 11}
    t_env.execute_sql("CREATE TEMPORARY VIEW keys AS SELECT TRUE AS k, PROCTIME() AS now")
    lookup = "SELECT v.* FROM keys JOIN v FOR SYSTEM_TIME AS OF keys.now AS v ON keys.k = v.b"
    assert [tuple(map(str, row)) for row in t_env.execute_sql(lookup).collect()] == [full]


@pytest.mark.parametrize("epoch_rows", [1000, 7])
def test_each_key_has_its_current_row_wherever_its_changes_come_from(tmp_path: Path, epoch_rows: int) -> None:
    """The old row of an order is removed where its old customer is, and the new one added where the new customer is. Other orders
    are gone in the epoch that they came in."""
    with sqlite3.connect(tmp_path / "db") as database:
        for name in ("named", "plain", "same"):
            database.execute(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, k TEXT)")
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    t_env = fp.StreamTableEnvironment.create(env.set_parallelism(3).set_max_epoch_rows(epoch_rows))
    insert, before, after, delete = fp.RowKind.INSERT, fp.RowKind.UPDATE_BEFORE, fp.RowKind.UPDATE_AFTER, fp.RowKind.DELETE
    changes = []
    for n in range(30):
        changes += [(insert, n, f"c{n % 7}"), (before, n, f"c{n % 7}"), (after, n, f"c{n % 5}")]
        changes += [(insert, n + 100, "c1"), (delete, n + 100, "c1")]
    customers = [(insert, f"c{n}") for n in range(4)]
    for name, rows, columns in (("orders", changes, {"id": "INT", "k": "STRING"}), ("customers", customers, {"c": "STRING"})):
        schema = fp.Schema.new_builder()
        for column, of in columns.items():
            schema.column(column, of)
        stream = env.from_collection([fp.Row.of_kind(*each) for each in rows], fp.Types.ANY())
        keyed = schema.primary_key(next(iter(columns))).build()
        t_env.create_temporary_view(name, t_env.from_changelog_stream(stream, keyed))
    options = f"'connector' = 'jdbc', 'url' = 'jdbc:sqlite:{tmp_path / 'db'}', 'table-name'"
    for name in ("named", "plain", "same"):
        t_env.execute_sql(f"CREATE TABLE {name} (id INT, k STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ({options} = '{name}')")
    statements = t_env.create_statement_set()
    statements.add_insert_sql("INSERT INTO named SELECT id, c FROM orders LEFT JOIN customers ON k = c")
    statements.add_insert_sql("INSERT INTO plain SELECT id, k FROM orders")
    statements.add_insert_sql("INSERT INTO same SELECT id, 'x' FROM orders LEFT JOIN customers ON k = c")
    statements.execute().wait()
    with sqlite3.connect(tmp_path / "db") as database:
        assert database.execute("SELECT * FROM plain").fetchall() == [(n, f"c{n % 5}") for n in range(30)]
        named = [(n, f"c{n % 5}" if n % 5 < 4 else None) for n in range(30)]
        assert database.execute("SELECT * FROM named").fetchall() == named
        assert database.execute("SELECT * FROM same").fetchall() == [(n, "x") for n in range(30)]


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

"""Both kinds of table as tables of SQL."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import forkpoint as fp
from forkpoint.errors import ConfigError, RecordParseError
from forkpoint.sql.errors import Text
from forkpoint.sql.parser import parse
from forkpoint.sql.statements import CreateTable
from forkpoint.table.connectors.registry import source_of
from table_jobs import catalog
from table_reading import iceberg, rows


def options(kind: str, directory: Path) -> str:
    found = {"connector": kind, "table-path": str(directory)}
    if kind == "iceberg":
        properties = catalog(str(directory))
        found = {"connector": kind, "catalog-type": properties.pop("type"), "catalog-database": "ns", **properties}
        found["catalog-table"] = "counts"
    return ", ".join(f"'{option}' = '{value}'" for option, value in found.items())


def environment() -> fp.StreamTableEnvironment:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    env.set_parallelism(2)
    env.set_max_epoch_rows(2)
    return fp.StreamTableEnvironment.create(env)


def test_results_of_queries_are_appended_or_replaced_by_key(kind: str, place: Path) -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    env.set_max_epoch_rows(1)
    tables = fp.StreamTableEnvironment.create(env)
    changes = [("INSERT", 1, "a"), ("INSERT", 2, "a"), ("INSERT", 3, "b"), ("DELETE", 1, "a"), ("DELETE", 3, "b")]
    schema = fp.Schema.new_builder().column("id", "BIGINT").column("k", "STRING").build()
    stream = env.from_collection([fp.Row.of_kind(fp.RowKind[kind], *values) for kind, *values in changes], fp.Types.ANY())
    tables.create_temporary_view("t", tables.from_changelog_stream(stream, schema))
    for name, key in (("counts", ", PRIMARY KEY (k) NOT ENFORCED"), ("plain", "")):
        (directory := place / name).mkdir()
        tables.execute_sql(f"CREATE TABLE {name} (k STRING, n BIGINT{key}) WITH ({options(kind, directory)})")
    statements = tables.create_statement_set()
    statements.add_insert_sql("INSERT INTO counts SELECT k, COUNT(*) FROM t GROUP BY k")
    statements.add_insert_sql("INSERT INTO plain VALUES ('x', 1), ('y', 2)")
    statements.execute().wait()
    assert rows(kind, place / "counts") == [("a", 1)]
    assert rows(kind, place / "plain") == [("x", 1), ("y", 2)]


COLUMNS = "id BIGINT, k STRING, x DOUBLE, d DECIMAL(9, 2), t TIMESTAMP(6), l TIMESTAMP_LTZ(6), a ARRAY<INT>, y BYTES, c DATE"
ROWS = [
    "SELECT 1, 'a', 1.5E0, 1.25, TIMESTAMP '2020-01-02 03:04:05.678', TO_TIMESTAMP_LTZ(1, 0), ARRAY[1, 2], ENCODE('y', 'UTF-8'), "
    "DATE '2020-01-02'",
    "SELECT id + 1, CAST(NULL AS STRING), x, d, t, l, a, y, c FROM target UNION ALL "
    "SELECT id + 2, 'b c', x, d, t, l, a, y, c FROM target",
]


def test_tables_are_read_at_a_version(kind: str, place: Path) -> None:
    tables = environment()
    tables.execute_sql(f"CREATE TABLE target ({COLUMNS}) PARTITIONED BY (k) WITH ({options(kind, place)})")
    tables.execute_sql(f"INSERT INTO target {ROWS[0]}").wait()
    query = "SELECT id, k, x, d, t, l, a, y, c FROM target {} WHERE id > 0"
    first = list(map(tuple, tables.execute_sql(query.format("")).collect()))
    option, version = ("versionAsOf", DeltaTable(place).version()) if kind == "delta" else ("snapshot-id", newest(place))
    (found,) = first
    assert (found[0], found[1], str(found[3]), found[6], found[7]) == (1, "a", "1.25", [1, 2], b"y")
    assert found[4:6] == (datetime.fromisoformat("2020-01-02 03:04:05.678"), datetime.fromtimestamp(1, UTC))
    tables.execute_sql(f"INSERT INTO target {ROWS[1]}").wait()
    after = sorted(tuple(row)[:3] for row in tables.execute_sql(query.format("")).collect())
    assert after == [(1, "a", 1.5), (2, None, 1.5), (3, "b c", 1.5)]
    hint = f"/*+ OPTIONS('{option}' = '{version}') */"
    assert list(map(tuple, tables.execute_sql(query.format(hint)).collect())) == first


def newest(place: Path) -> int:
    return int(iceberg(place).current_snapshot().snapshot_id)


def test_reading_goes_on_at_the_version_that_it_began_with(kind: str, place: Path) -> None:
    tables = environment()
    tables.execute_sql(f"CREATE TABLE t (n BIGINT) WITH ({options(kind, place)})")
    for n in range(4):
        tables.execute_sql(f"INSERT INTO t VALUES ({n})").wait()
    (table,) = parse(Text(f"CREATE TABLE t (n BIGINT) WITH ({options(kind, place)})"))
    assert isinstance(table, CreateTable)
    source, found, position, epochs = source_of(table), [], None, 0
    while not (enumerator := source.create_enumerator(position)).finished:
        reader, epochs = source.create_reader(), epochs + 1
        for planned in enumerator.plan(2, 2):
            found += [n for batch in reader.read(planned) for n in batch.column("n").to_pylist()]
        position = json.loads(json.dumps(enumerator.position))
        tables.execute_sql("INSERT INTO t VALUES (99)").wait()
    assert (sorted(found), epochs) == ([0, 1, 2, 3], 2)


def test_what_cannot_be_read_is_refused(kind: str, place: Path) -> None:
    tables = environment()
    tables.execute_sql(f"CREATE TABLE t (n BIGINT, s STRING) WITH ({options(kind, place)})")
    with pytest.raises(ConfigError, match=r"does not exist; correct '(table-path|catalog-database)'"):
        list(tables.execute_sql("SELECT * FROM t").collect())
    tables.execute_sql("INSERT INTO t VALUES (1, 'x')").wait()
    for column, problem in (("m BIGINT", "has no column 'm'; it has n, s"), ("s ARRAY<INT>", "which cannot be read as list")):
        tables.execute_sql(f"CREATE TEMPORARY TABLE other ({column}) WITH ({options(kind, place)})")
        with pytest.raises(ConfigError, match=problem):
            list(tables.execute_sql("SELECT * FROM other").collect())
        tables.execute_sql("DROP TEMPORARY TABLE other")
    tables.execute_sql(f"CREATE TABLE numbers (s BIGINT) WITH ({options(kind, place)})")
    with pytest.raises(RecordParseError, match="column 's': Failed to parse string: 'x'"):
        list(tables.execute_sql("SELECT * FROM numbers").collect())
    tables.execute_sql(f"CREATE TABLE both (n BIGINT, s BIGINT) WITH ({options(kind, place)})")
    assert list(map(tuple, tables.execute_sql("SELECT n FROM both").collect())) == [(1,)]  # the other column is not read


def test_delta_tables_that_arrow_cannot_read_are_refused(place: Path) -> None:
    schema = pa.schema([("n", pa.int64())])
    DeltaTable.create(str(place), schema, configuration={"delta.enableDeletionVectors": "true"})
    tables = environment()
    tables.execute_sql(f"CREATE TABLE t (n BIGINT) WITH ({options('delta', place)})")
    with pytest.raises(ConfigError, match=r"cannot be read: .*deletionVectors"):
        list(tables.execute_sql("SELECT * FROM t").collect())

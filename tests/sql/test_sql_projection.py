"""Sources of tables read only the columns that a job's queries use: what the others hold is not even looked at."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import forkpoint as fp
from forkpoint.connectors.kafka.source import KafkaSource
from forkpoint.errors import ForkpointError
from forkpoint.types.kinds.records import RecordType

COLUMNS = {"k": "STRING", "v": "BIGINT", "w": "INT", "d": "BIGINT", "r": "ROW<x INT, y INT>", "ts": "TIMESTAMP_LTZ(3)"}
ROWS = [
    {"k": "abc"[n % 3], "v": n, "w": n % 5, "d": 7, "r": {"x": n, "y": -n}, "ts": f"2026-01-01T00:00:{n:02}Z"} for n in range(30)
]
BROKEN: dict[str, Any] = {"k": [1], "v": "x", "w": "x", "d": "x", "r": "x", "ts": "x"}
WINDOWS = "TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND))"
BY_WINDOW = f"SELECT window_start, COUNT(*) AS n FROM {WINDOWS} GROUP BY window_start, window_end"


def tables_of(directory: Path, watermark: str = "", **options: str) -> fp.StreamTableEnvironment:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    tables = fp.StreamTableEnvironment.create(env)
    given = {"connector": "filesystem", "path": str(directory), "format": "json", **options}
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in given.items())
    columns = ", ".join(f"{name} {of}" for name, of in COLUMNS.items())
    tables.execute_sql(f"CREATE TABLE t ({columns}{watermark}) WITH ({listed})")
    tables.create_temporary_function("twice", fp.udf(lambda v: 2 * v, result_type=fp.DataTypes.BIGINT()))
    return tables


def written(directory: Path, broken: str) -> Path:
    """The rows, with unreadable values in some columns."""
    directory.mkdir()
    lines = (json.dumps(row | {name: BROKEN[name] for name in broken.split()}) for row in ROWS)
    (directory / "rows.json").write_text("\n".join(lines))
    return directory


def rows_of(tables: fp.StreamTableEnvironment, query: str) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for row in tables.execute_sql(query).collect():
        found[tuple(row)] += 1 if row.get_row_kind() in (fp.RowKind.INSERT, fp.RowKind.UPDATE_AFTER) else -1
    return +found


@pytest.mark.parametrize(
    ("query", "watermark", "unread"),
    [
        ("SELECT k, v FROM t WHERE w > 2", "", "d r ts"),
        ("SELECT k, SUM(v) AS s FROM t GROUP BY k", "", "w d r ts"),
        ("SELECT COUNT(*) AS n FROM t", "", "k v d r ts"),  # one column of few bytes is read
        ("SELECT DISTINCT w FROM (SELECT w, v + d AS s FROM t)", "", "k v d r ts"),
        ("SELECT twice(v) AS v, r.x FROM t", "", "k w d ts"),
        ("SELECT x.v FROM t AS x JOIN t AS y ON x.v = y.w", "", "k d r ts"),
        ("SELECT v FROM t WHERE w = 1 UNION ALL SELECT d FROM t", "", "k r ts"),
        ("SELECT v, RAND() < 2 AS r FROM t", "", "k w d r ts"),
        (
            "SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS n FROM t) WHERE n < 3",
            "",
            "w d r ts",
        ),
        (BY_WINDOW, ", WATERMARK FOR ts AS ts - INTERVAL '1' SECOND", "k v w d r"),
        ("SELECT k, w FROM t", ", WATERMARK FOR ts AS ts - INTERVAL '1' SECOND", "v d r"),
        (f"SELECT k, SUM(v) AS s FROM {WINDOWS} GROUP BY k, window_start, window_end", ", WATERMARK FOR ts AS ts", "w d r"),
    ],
)
def test_other_columns_are_not_read(query: str, watermark: str, unread: str, tmp_path: Path) -> None:
    expected = rows_of(tables_of(written(tmp_path / "right", ""), watermark), query)
    assert expected
    assert rows_of(tables_of(written(tmp_path / "broken", unread), watermark), query) == expected
    used = " ".join(COLUMNS.keys() - set(unread.split()) - ({"w"} if "COUNT(*) AS n FROM t" in query else set()))
    for name in used.split():  # each is looked at
        with pytest.raises(ForkpointError):
            rows_of(tables_of(written(tmp_path / name, name), watermark), query)


def test_all_queries_of_a_job_share_a_source(tmp_path: Path) -> None:
    tables = tables_of(written(tmp_path / "in", "d r ts"))
    for name in ("one", "two"):
        tables.execute_sql(
            f"CREATE TABLE {name} (k STRING, n BIGINT) WITH ('connector' = 'filesystem', 'path' = '{tmp_path / name}', "
            "'format' = 'json')"
        )
    both = tables.create_statement_set()
    both.add_insert_sql("INSERT INTO one SELECT k, v FROM t")
    both.add_insert_sql("INSERT INTO two SELECT k, w FROM t")
    both.execute().wait()
    for name, column in (("one", "v"), ("two", "w")):
        lines = [json.loads(line) for file in (tmp_path / name).rglob("part*") for line in file.read_text().splitlines()]
        assert Counter((line["k"], line["n"]) for line in lines) == Counter((row["k"], row[column]) for row in ROWS)


def test_columns_of_parquet(tmp_path: Path) -> None:
    columns = {name: [row[name] for row in ROWS] for name in ("k", "v")}
    pq.write_table(pa.table({**columns, "w": ["x"] * len(ROWS)}), tmp_path / "rows.parquet")
    tables = tables_of(tmp_path, format="parquet")
    assert rows_of(tables, "SELECT k, v FROM t") == Counter((row["k"], row["v"]) for row in ROWS)
    with pytest.raises(ForkpointError):
        rows_of(tables, "SELECT k, w FROM t")


def test_rows_of_orc_without_any_of_the_columns(tmp_path: Path) -> None:
    """They are there, as in Parquet, although Arrow finds no rows if it is asked for no columns."""
    orc.write_table(pa.table({name: [row[name] for row in ROWS] for name in ("k", "v")}), tmp_path / "rows.orc")
    orc.write_table(pa.table({"other": [1, 2]}), tmp_path / "other.orc")
    tables = tables_of(tmp_path, format="orc")
    assert rows_of(tables, "SELECT COUNT(*) AS n FROM t") == {(len(ROWS) + 2,): 1}
    assert rows_of(tables, "SELECT w, r FROM t") == {(None, None): len(ROWS) + 2}
    assert rows_of(tables, "SELECT v, w FROM t WHERE k = 'a'") == Counter((row["v"], None) for row in ROWS if row["k"] == "a")


def test_columns_of_a_database(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "db") as database:
        database.execute("CREATE TABLE t (k TEXT, v INTEGER)")  # it does not even have the others
        database.executemany("INSERT INTO t VALUES (?, ?)", [(row["k"], row["v"]) for row in ROWS])
    tables = tables_of(tmp_path, connector="jdbc", url=f"jdbc:sqlite:{tmp_path / 'db'}", **{"table-name": "t"})
    tables.execute_sql("ALTER TABLE t RESET ('path', 'format')")
    assert rows_of(tables, "SELECT v FROM t WHERE k = 'a'") == Counter((row["v"],) for row in ROWS if row["k"] == "a")


def kafka(value: fp.DeserializationSchema[Any], **options: Any) -> KafkaSource[Any]:
    builder = fp.KafkaSource.builder().set_bootstrap_servers("nowhere:1").set_topics("t").set_value_only_deserializer(value)
    for name, option in options.items():
        getattr(builder, f"set_{name}")(option)
    return builder.build()


TYPE = fp.Types.ROW_NAMED(["a", "b"], [fp.Types.LONG(), fp.Types.LONG()])


def test_messages_that_are_skipped_do_not_depend_on_the_query() -> None:
    assert isinstance(TYPE, RecordType)
    part = RecordType("row", "Row", TYPE.members[:1])
    source = kafka(fp.JsonRowDeserializationSchema(TYPE)).projected(part)
    assert source is not None
    assert source.output_type() == part
    found = source.schema.schema.deserialize_batch(pa.array([b'{"a": 1, "b": "x"}', b'{"b": 2, "a": 3}'], pa.binary()))  # type: ignore[attr-defined]
    assert (found.elements.column(0).to_pylist(), found.bad) == ([1, 3], ())
    assert kafka(fp.JsonRowDeserializationSchema(TYPE), on_parse_error="skip").projected(part) is None
    for options in ({"ignore_parse_errors": True}, {"fail_on_missing_field": True}):
        assert kafka(fp.JsonRowDeserializationSchema(TYPE, **options)).projected(part) is None
    assert fp.FileSource.json("/", TYPE, on_parse_error="skip").projected(part) is None
    assert fp.FileSource.csv("/", TYPE, header=False).projected(part) is None  # columns are matched by their places

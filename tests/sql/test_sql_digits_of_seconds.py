# ruff: noqa: DTZ001 (SQL has times without zone)
"""TIMESTAMP(3) and the like: what values, texts and types have so many digits of seconds, and what is stored has none."""

from __future__ import annotations

import json
from datetime import datetime, time
from pathlib import Path
from typing import Any

import pytest

import forkpoint as fp
from forkpoint.relational.canonical import canonical
from forkpoint.relational.plan import Plan
from forkpoint.relational.precision import as_it_runs
from forkpoint.sql.errors import Text
from forkpoint.sql.parser import parse
from forkpoint.sql.statements import Query
from forkpoint.table.session import Session
from forkpoint.table.statements import execute

T = fp.DataTypes
DAY = "2020-01-02 03:04:05"
T3 = f"CAST('{DAY}.123956' AS TIMESTAMP(3))"

# Values and types, as Flink has them (its CastRulesTest, CastFunctionITCase, and DateTimeUtils).
CASES: list[tuple[str, str, Any]] = [
    (T3, "TIMESTAMP(3) NOT NULL", datetime(2020, 1, 2, 3, 4, 5, 123000)),
    (f"CAST(TIMESTAMP '{DAY}.9999' AS TIMESTAMP(0))", "TIMESTAMP(0) NOT NULL", datetime(2020, 1, 2, 3, 4, 5)),
    ("CAST('1960-01-02 03:04:05.123956' AS TIMESTAMP(4))", "TIMESTAMP(4) NOT NULL", datetime(1960, 1, 2, 3, 4, 5, 123900)),
    (f"TRY_CAST('{DAY}.5' AS TIMESTAMP(0))", "TIMESTAMP(0)", datetime(2020, 1, 2, 3, 4, 5)),
    (f"CAST(CAST({T3} AS TIMESTAMP_LTZ(1)) AS TIME(3))", "TIME(3) NOT NULL", time(3, 4, 5, 100000)),
    ("CAST(LOWER('03:04:05.987') AS TIME)", "TIME NOT NULL", time(3, 4, 5, 987000)),
    ("CAST(DATE '2020-01-02' AS TIMESTAMP(3))", "TIMESTAMP(3) NOT NULL", datetime(2020, 1, 2)),
    (f"CAST({T3} AS TIMESTAMP(9))", "TIMESTAMP(9) NOT NULL", datetime(2020, 1, 2, 3, 4, 5, 123000)),
    (f"CAST(ARRAY[TIMESTAMP '{DAY}.99'] AS ARRAY<TIMESTAMP(1)>)[1]", "TIMESTAMP(1)", datetime(2020, 1, 2, 3, 4, 5, 900000)),
    # a text has all digits of its type, a TIME no zeros
    (f"CAST({T3} AS STRING)", "STRING NOT NULL", f"{DAY}.123"),
    (f"CAST(CAST('{DAY}' AS TIMESTAMP(3)) AS STRING)", "STRING NOT NULL", f"{DAY}.000"),
    (f"CAST(CAST('{DAY}.5' AS TIMESTAMP(0)) AS STRING)", "STRING NOT NULL", DAY),
    (f"CAST(CAST('{DAY}.5' AS TIMESTAMP_LTZ(8)) AS STRING)", "STRING NOT NULL", f"{DAY}.50000000"),
    ("CAST(CAST('03:04:05.120' AS TIME(3)) AS STRING)", "STRING NOT NULL", "03:04:05.12"),
    ("CAST(CAST('03:04:05' AS TIME(2)) AS STRING)", "STRING NOT NULL", "03:04:05.0"),
    ("CAST(CAST('03:04:05.9' AS TIME(0)) AS STRING)", "STRING NOT NULL", "03:04:05"),
    ("CAST(CAST(NULL AS TIMESTAMP(3)) AS STRING)", "STRING", None),
    # types of what is computed
    (f"COALESCE({T3}, TIMESTAMP '{DAY}')", "TIMESTAMP(3) NOT NULL", datetime(2020, 1, 2, 3, 4, 5, 123000)),
    (f"IF(TRUE, {T3}, TIMESTAMP '{DAY}.12345')", "TIMESTAMP(5) NOT NULL", datetime(2020, 1, 2, 3, 4, 5, 123000)),
    (f"{T3} + INTERVAL '0.001' SECOND", "TIMESTAMP(3) NOT NULL", datetime(2020, 1, 2, 3, 4, 5, 124000)),
    (f"{T3} + INTERVAL '0.000001' SECOND", "TIMESTAMP(6) NOT NULL", datetime(2020, 1, 2, 3, 4, 5, 123001)),
    (f"{T3} + (TIMESTAMP '{DAY}' - TIMESTAMP '{DAY}')", "TIMESTAMP(6) NOT NULL", datetime(2020, 1, 2, 3, 4, 5, 123000)),
    (f"FLOOR({T3} TO SECOND)", "TIMESTAMP(3) NOT NULL", datetime(2020, 1, 2, 3, 4, 5)),
    ("CAST(TO_TIMESTAMP_LTZ(0, 3) AS STRING)", "STRING NOT NULL", "1970-01-01 00:00:00.000"),
]


@pytest.fixture
def t_env() -> fp.StreamTableEnvironment:
    return fp.StreamTableEnvironment.create(
        fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    )


def test_values_and_types(t_env: fp.StreamTableEnvironment) -> None:
    query = f"SELECT {', '.join(f'{expression} AS c{at}' for at, (expression, _, _) in enumerate(CASES))}"
    union = t_env.sql_query(f"SELECT {T3} AS a, 1 AS b UNION ALL SELECT CAST(NULL AS TIMESTAMP(5)), 2")
    assert [str(of) for of in union.get_schema().get_field_data_types()] == ["TIMESTAMP(5)", "INT NOT NULL"]
    table = t_env.sql_query(query)
    (row,) = table.execute().collect()
    types = table.get_schema().get_field_data_types()
    for (expression, of, expected), found, found_type in zip(CASES, row, types, strict=True):
        assert (expression, str(found_type), found) == (expression, of, expected)


@pytest.mark.parametrize("of", ["TIMESTAMP(10)", "TIME(12)"])
def test_there_are_at_most_nine_digits(of: str, t_env: fp.StreamTableEnvironment) -> None:
    with pytest.raises(fp.SqlError, match="0 to 9 digits of seconds"):
        t_env.execute_sql(f"CREATE TABLE t (a {of}) WITH ('connector' = 'print')")


def test_definitions_keep_digits(t_env: fp.StreamTableEnvironment) -> None:
    """DDL, DESCRIBE, DataTypes and printed schemas have them, and what SHOW CREATE TABLE prints makes the same table again."""
    columns = {
        "a": "TIMESTAMP(3)",
        "b": "TIMESTAMP_LTZ(0) NOT NULL",
        "c": "TIME(3)",
        "d": "TIMESTAMP",
        "e": "TIMESTAMP(9)",
        "f": "ROW<x TIMESTAMP(3), y ARRAY<TIME(1)>>",
    }
    t_env.execute_sql(f"CREATE TABLE t ({', '.join(f'{n} {of}' for n, of in columns.items())}) WITH ('connector' = 'print')")
    described = [row[1] + " NOT NULL" * (not row[2]) for row in t_env.execute_sql("DESCRIBE t").collect()]
    assert described == list(columns.values())
    (ddl,) = next(iter(t_env.execute_sql("SHOW CREATE TABLE t").collect()))
    t_env.execute_sql("DROP TABLE t")
    t_env.execute_sql(ddl)
    assert next(iter(t_env.execute_sql("SHOW CREATE TABLE t").collect()))[0] == ddl
    types = t_env.from_path("t").get_schema().get_field_data_types()
    row = T.ROW([T.FIELD("x", T.TIMESTAMP(3)), T.FIELD("y", T.ARRAY(T.TIME(1)))])
    assert types == [T.TIMESTAMP(3), T.TIMESTAMP_LTZ(0, False), T.TIME(3), T.TIMESTAMP(6), T.TIMESTAMP(9), row]
    schema = fp.Schema.new_builder().column("a", T.TIMESTAMP(3)).column("f", row).build()
    assert str(schema) == "(\n  `a` TIMESTAMP(3),\n  `f` ROW<x TIMESTAMP(3), y ARRAY<TIME(1)>>\n)"


def test_sources_and_sinks_cut(t_env: fp.StreamTableEnvironment, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    row = {"a": f"{DAY}.123956", "b": f"{DAY}.123956Z", "c": "03:04:05.9", "d": [f"{DAY}.99", None], "e": f"{DAY}.123956"}
    (tmp_path / "in" / "1.json").write_text(json.dumps(row) + "\n")
    columns = "a TIMESTAMP(3), b TIMESTAMP_LTZ(1), c TIME(0), d ARRAY<TIMESTAMP(1)>, e TIMESTAMP"
    files = f"WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = '{tmp_path}"
    t_env.execute_sql(f"CREATE TABLE t ({columns}) {files}/in')")
    t_env.execute_sql(f"CREATE TABLE s (e TIMESTAMP(3), d ARRAY<TIMESTAMP(0)>, n INT) {files}/out')")
    t_env.execute_sql("INSERT INTO s SELECT e, d, 1 FROM t").wait()
    (written,) = [json.loads(line) for file in (tmp_path / "out").glob("part-*") for line in file.read_text().splitlines()]
    assert written["e"] == f"{DAY}.123"
    assert written["d"] == [DAY, None]
    late, of = [(datetime(2020, 1, 1, 0, 0, 0, 999999), 1)], fp.Types.ROW([fp.Types.SQL_TIMESTAMP(), fp.Types.INT()])
    schema = fp.Schema.new_builder().column("f0", T.TIMESTAMP(2)).column("f1", "INT").build()
    stream = t_env.from_data_stream(t_env._session.env.from_collection(late, of), schema)
    assert [str(of) for of in stream.get_schema().get_field_data_types()] == ["TIMESTAMP(2)", "INT"]
    elements = t_env.from_elements(late, T.ROW([T.FIELD("a", T.TIMESTAMP(3)), T.FIELD("b", T.INT())]))
    (read,), (of_stream,), (element,) = (
        each.execute().collect() for each in (t_env.sql_query("SELECT * FROM t"), stream, elements)
    )
    assert read.a == datetime(2020, 1, 2, 3, 4, 5, 123000)
    assert read.b.microsecond == 100000
    assert read.c == time(3, 4, 5)
    assert read.d == [datetime(2020, 1, 2, 3, 4, 5, 900000), None]
    assert read.e.microsecond == 123956
    assert (of_stream[0].microsecond, element[0].microsecond) == (990000, 999000)


def test_results_are_shown_with_their_digits(t_env: fp.StreamTableEnvironment, capsys: pytest.CaptureFixture[str]) -> None:
    table = t_env.sql_query(f"SELECT {T3} AS a, CAST({T3} AS TIMESTAMP_LTZ(0)) AS b, CAST({T3} AS TIMESTAMP(8)) AS c")
    table.execute().print()
    assert capsys.readouterr().out.splitlines() == [
        "+----+-------------------------+---------------------+-------------------------------+",
        "| op |                       a |                   b |                             c |",
        "+----+-------------------------+---------------------+-------------------------------+",
        "| +I | 2020-01-02 03:04:05.123 | 2020-01-02 03:04:05 |  2020-01-02 03:04:05.12300000 |",
        "+----+-------------------------+---------------------+-------------------------------+",
        "1 row in set",
    ]
    assert [str(of) for of in table.to_pandas().dtypes] == ["datetime64[ms]", "datetime64[s, UTC]", "datetime64[us]"]


DDL = """
CREATE TABLE t (k STRING, at {0}, ltz {1}, r ROW<x {0}, y ARRAY<{0}>>, WATERMARK FOR at AS at)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');
CREATE TABLE u (k STRING PRIMARY KEY NOT ENFORCED, at {0}, WATERMARK FOR at AS at) WITH ('connector' = 'upsert-kafka',
'topic' = 'u', 'properties.bootstrap.servers' = 'h', 'key.format' = 'raw', 'value.format' = 'json');
"""
QUERIES = """
SELECT at, MAX(ltz), LAST_VALUE(r.x), COUNT(DISTINCT at) FROM t GROUP BY at, r.x;
SELECT a.at, b.r FROM t AS a LEFT JOIN t AS b ON a.at = b.at AND a.ltz > b.ltz;
SELECT a.k, b.at FROM t AS a, t AS b WHERE a.k = b.k AND a.at BETWEEN b.at - INTERVAL '1' HOUR AND b.at;
SELECT t.at, u.at FROM t LEFT JOIN u FOR SYSTEM_TIME AS OF t.at ON t.k = u.k;
SELECT window_start, window_time, MIN(at), SUM(CAST(at > CAST(ltz AS TIMESTAMP(3)) AS INT))
FROM TABLE(HOP(TABLE t, DESCRIPTOR(at), INTERVAL '1' DAY, INTERVAL '2' DAY))
WHERE window_end > TIMESTAMP '2020-01-01 00:00:00' GROUP BY window_start, window_end, window_time, k;
SELECT TUMBLE_START(at, INTERVAL '1' DAY), COUNT(*) FROM t GROUP BY TUMBLE(at, INTERVAL '1' DAY);
SELECT k, COUNT(*) FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(at), INTERVAL '1' DAY))
GROUP BY window_start, window_end, k;
SELECT k, e, ROW_NUMBER() OVER (PARTITION BY k ORDER BY at DESC), MAX(at) OVER (PARTITION BY k ORDER BY at DESC)
FROM t, UNNEST(r.y) AS u (e);
SELECT at FROM t WHERE at = (SELECT MAX(at) FROM t)
UNION SELECT COALESCE(CAST(ltz AS TIMESTAMP(3)), at) FROM t WHERE at <> DATE '2020-01-01';
SELECT CASE WHEN k = 'a' THEN at ELSE at + INTERVAL '1' HOUR END, ARRAY[at, r.x], CAST(ARRAY[at] AS ARRAY<TIMESTAMP(3)>) FROM t
"""


def test_what_is_stored_has_no_digits() -> None:
    """Plans of tables with and without digits are the same where no value is cut: saved state fits both."""
    plans: list[list[Plan]] = []
    for of in (("TIMESTAMP(3)", "TIMESTAMP_LTZ(3)"), ("TIMESTAMP", "TIMESTAMP_LTZ")):
        session = Session(fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"}))
        source, found = Text(DDL.format(*of) + QUERIES.replace("(3)", "(3)" if of[0].endswith(")") else "")), []
        for statement in parse(source):
            if isinstance(statement, Query):
                plan = session.plan(statement)
                session.stream(plan)
                found.append(canonical(as_it_runs(plan)))
            else:
                execute(session, statement, source)
        plans.append(found)
    for with_digits, without in zip(*plans, strict=True):
        assert with_digits == without
        assert "precision" not in repr(with_digits).replace("precision=UNSET", "")


def test_a_cut_is_part_of_what_is_stored() -> None:
    """But for windows, which look at milliseconds only."""
    session = Session(fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"}))
    ddl = """CREATE TABLE t (s STRING, at AS CAST(s AS {}), WATERMARK FOR at AS at)
        WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json')"""

    def stored(query: str, of: str) -> Plan:
        source = Text(f"{ddl.format(of)}; {query}; DROP TABLE t")
        create, select, drop = parse(source)
        execute(session, create, source)
        assert isinstance(select, Query)
        found = canonical(as_it_runs(session.plan(select)))
        execute(session, drop, source)
        return found

    key = "SELECT COUNT(*) FROM t GROUP BY at"
    windows = "SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(at), INTERVAL '1' SECOND)) GROUP BY window_start, window_end"
    assert stored(key, "TIMESTAMP(3)") != stored(key, "TIMESTAMP")
    assert stored(windows, "TIMESTAMP(3)") == stored(windows, "TIMESTAMP")
    assert stored(windows, "TIMESTAMP(2)") != stored(windows, "TIMESTAMP")

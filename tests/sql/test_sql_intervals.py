"""Intervals as values: differences of times, arithmetic, texts, and columns."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import forkpoint as fp
from forkpoint.sql.types import type_of_text

MOMENTS = st.one_of(st.none(), st.datetimes(datetime.fromisoformat("1950-01-01"), datetime.fromisoformat("2050-01-01")))
DDL = """CREATE TABLE intervals (d INTERVAL DAY(3) TO SECOND(3), m INTERVAL YEAR TO MONTH, h INTERVAL HOUR)
WITH ('connector' = 'print')"""


def rows_of(query: str, view: Any = None) -> list[Any]:
    tables = fp.StreamTableEnvironment.create(
        fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    )
    if view is not None:
        of = fp.DataTypes.ROW([fp.DataTypes.FIELD(name, getattr(fp.DataTypes, of)()) for name, of in VIEW.items()])
        tables.create_temporary_view("v", tables.from_elements(view, of))
    return [tuple(row) for row in tables.execute_sql(query).collect()]


VIEW = {"i": "INT", "t": "TIMESTAMP", "u": "TIMESTAMP", "n": "INT"}
EXPRESSIONS = {
    "t - u": "t - u",
    "t - (t - u)": "t - (t - u)",
    "u + (t - u) * n": "u + (t - u) * n",
    "n * (t - u) + INTERVAL '1' DAY": "n * (t - u) + INTERVAL '1 day'",
    "-(t - u) - INTERVAL '1:30' HOUR TO MINUTE": "-(t - u) - INTERVAL '90 minutes'",
    "t - u > INTERVAL '1' HOUR": "t - u > INTERVAL '1 hour'",
    "CASE WHEN n > 0 THEN t - u ELSE INTERVAL '5' SECOND END": "CASE WHEN n > 0 THEN t - u ELSE INTERVAL '5 seconds' END",
    "CAST(t AS DATE) - u": "CAST(CAST(t AS DATE) AS TIMESTAMP) - u",
}


@settings(max_examples=1, deadline=None)
@given(st.lists(st.tuples(MOMENTS, MOMENTS, st.integers(-3, 3)), min_size=40, max_size=40))
def test_arithmetic_equals_duckdb(rows: list[Any]) -> None:
    """DuckDB counts months and days of an interval apart, so only whole results are compared."""
    view = [(i, *row) for i, row in enumerate(rows)]
    found = sorted(rows_of(f"SELECT i, {', '.join(EXPRESSIONS)} FROM v", view), key=lambda row: row[0])
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE v (i INT, t TIMESTAMP, u TIMESTAMP, n INT)")
        connection.executemany("INSERT INTO v VALUES (?, ?, ?, ?)", view)
        wanted = connection.sql(f"SELECT i, {', '.join(EXPRESSIONS.values())} FROM v ORDER BY i").fetchall()
    assert found == wanted


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("CAST(INTERVAL '1-06' YEAR TO MONTH AS STRING)", "+1-06"),
        ("CAST(-INTERVAL '7' YEAR AS STRING)", "-7-00"),
        ("CAST(INTERVAL '10' DAY AS STRING)", "+10 00:00:00.000"),
        ("CAST(INTERVAL '-1 02:03:04.5' DAY TO SECOND AS STRING)", "-1 02:03:04.500"),
        (
            "'in ' || CAST(TIMESTAMP '2024-03-01 00:00:00.000001' - TIMESTAMP '2024-02-29 00:00:00' AS STRING)",
            "in +1 00:00:00.000001",
        ),
        ("DATE '2024-01-31' + INTERVAL '1' MONTH * 1", date(2024, 2, 29)),
        ("DATE '2024-03-01' - DATE '2024-02-01'", timedelta(days=29)),
        ("TIME '08:00:00' - TIME '09:30:00'", timedelta(hours=-1, minutes=-30)),
        ("TIME '08:00:00' + (TIME '08:00:00' - TIME '09:30:00')", time(6, 30)),
        ("INTERVAL '7' SECOND / 2", timedelta(seconds=3.5)),
        ("INTERVAL '14' MONTH / 3 = INTERVAL '4' MONTH", True),
        ("CASE WHEN 1 > 2 THEN INTERVAL '1' DAY ELSE NULL END", None),
        ("COALESCE(NULL, IF(FALSE, INTERVAL '1' DAY, NULL), INTERVAL '2' DAY)", timedelta(days=2)),
    ],
)
def test_values(expression: str, value: Any) -> None:
    assert rows_of(f"SELECT {expression}") == [(value,)]


def test_columns(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    tables = fp.StreamTableEnvironment.create(
        fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    )
    tables.execute_sql(DDL)
    described = [tuple(row)[:2] for row in tables.execute_sql("DESCRIBE intervals").collect()]
    assert described == [("d", "INTERVAL DAY TO SECOND"), ("m", "INTERVAL YEAR TO MONTH"), ("h", "INTERVAL DAY TO SECOND")]
    for _, of in described:
        assert type_of_text(of).label == of
    tables.execute_sql(
        "INSERT INTO intervals SELECT a.d, INTERVAL '2' YEAR, b.d FROM (VALUES (1, INTERVAL '1' DAY)) AS a (k, d) "
        "JOIN (VALUES (1, INTERVAL '3' HOUR)) AS b (k, d) ON a.k = b.k AND a.d > b.d"
    ).wait()
    assert "+I[1 day, 0:00:00, 24, 3:00:00]" in capfd.readouterr().out
    days = "(VALUES (INTERVAL '1' DAY), (INTERVAL '24' HOUR)) AS t (d)"
    assert rows_of(f"SELECT d, COUNT(*) FROM {days} GROUP BY d HAVING COUNT(*) = 2") == [(timedelta(days=1), 2)]


def test_intervals_of_programs() -> None:
    tables = fp.StreamTableEnvironment.create(
        fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    )
    types = fp.DataTypes
    of = types.ROW(
        [types.FIELD("d", types.INTERVAL(types.DAY(), types.SECOND(3))), types.FIELD("m", types.INTERVAL(types.YEAR()))]
    )
    table = tables.from_elements([(timedelta(hours=30), 14), (None, None)], of)
    assert [str(each) for each in table.get_schema().get_field_data_types()] == [
        "INTERVAL DAY TO SECOND",
        "INTERVAL YEAR TO MONTH",
    ]
    result = table.select(fp.col("d") + fp.col("d"), fp.col("m"), fp.col("d").cast(types.STRING()), fp.lit(2).hours)
    assert {tuple(row) for row in result.execute().collect()} == {
        (timedelta(hours=60), 14, "+1 06:00:00.000", timedelta(hours=2)),
        (None, None, None, timedelta(hours=2)),
    }
    with pytest.raises(fp.ConfigError, match="takes units of days, or of years"):
        types.INTERVAL(types.YEAR(), types.DAY())

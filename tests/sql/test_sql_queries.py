"""Queries equal DuckDB's answer over the whole input, wherever epochs end, at any parallelism."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import forkpoint as fp
from forkpoint.table.environment import StreamTableEnvironment


class Order(NamedTuple):
    k: str | None
    g: int | None
    v: int | None
    x: float | None


ROWS = st.lists(
    st.builds(
        Order,
        st.sampled_from(["a", "b", "", "ä", None]),
        st.sampled_from([0, 1, -5, None]),
        st.one_of(st.none(), st.integers(-1000, 1000)),
        st.one_of(st.none(), st.sampled_from([0.5, -0.25, 1024.0, 3.0])),
    ),
    max_size=60,
)

QUERIES = [
    "SELECT k, v + 1 AS w FROM orders WHERE v > 0",
    "SELECT g, COUNT(*), COUNT(v), SUM(v), MIN(v), MAX(v) FROM orders GROUP BY g",
    "SELECT k, g, COUNT(*), SUM(x), MAX(k) FROM orders WHERE v IS NOT NULL OR x > 0 GROUP BY k, g",
    "SELECT k, SUM(v) * 2 + g FROM orders GROUP BY k, g HAVING COUNT(v) > 1",
    "SELECT COUNT(*) FILTER (WHERE v > 10), SUM(v) FILTER (WHERE g = 1) FROM orders HAVING COUNT(*) > 0",
    "SELECT DISTINCT k, g FROM orders",
    "SELECT UPPER(k) AS u, COUNT(*) FROM orders GROUP BY UPPER(k)",
    "SELECT n, COUNT(*) FROM (SELECT k, COUNT(*) AS n FROM orders GROUP BY k) AS per_key GROUP BY n",
    "SELECT SUM(n), COUNT(*) FROM (SELECT k, g, SUM(v) AS n FROM orders GROUP BY k, g HAVING SUM(v) > 0) t HAVING COUNT(*) > 0",
    "WITH large AS (SELECT k, v FROM orders WHERE v > 100) SELECT k, COUNT(*) FROM large GROUP BY k",
    "SELECT CASE WHEN v < 0 THEN 'minus' WHEN v > 0 THEN 'plus' END AS sign, COUNT(*) FROM orders "
    "GROUP BY CASE WHEN v < 0 THEN 'minus' WHEN v > 0 THEN 'plus' END",
    "SELECT k, COALESCE(SUM(v), 0), AVG(x) FROM orders WHERE k IN ('a', 'b') AND NOT (v BETWEEN -5 AND 5) GROUP BY k",
    "SELECT k FROM orders WHERE k LIKE '%a%' OR k || '!' = 'b!' OR k IS NULL",
    "SELECT g % 2 AS odd, MAX(x), MIN(k) FROM orders WHERE (v > 0) IS NOT TRUE GROUP BY g % 2",
]


def folded(query: str, rows: list[Order], *, epoch_rows: int, parallelism: int) -> Counter[Any]:
    """What remains of the changes of a result. Nothing may be removed that isn't there."""
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    env.set_parallelism(parallelism)
    env.set_max_epoch_rows(epoch_rows)
    tables = StreamTableEnvironment.create(env)
    tables.create_temporary_view("orders", env.from_collection(rows, type_info=Order))
    found: Counter[Any] = Counter()
    for row in tables.execute_sql(query).collect():
        values = tuple(row)
        if row.get_row_kind() is fp.RowKind.DELETE:
            assert found[values] > 0, (values, found)
            found[values] -= 1
        else:
            found[values] += 1
    return +found


def answered(query: str, rows: list[Order]) -> Counter[Any]:
    """DuckDB's answer."""
    schema = pa.schema([("k", pa.string()), ("g", pa.int64()), ("v", pa.int64()), ("x", pa.float64())])
    orders = pa.Table.from_pylist([row._asdict() for row in rows], schema=schema)  # noqa: F841 (DuckDB finds it by its name)
    return Counter(map(tuple, duckdb.sql(query).fetchall()))


@pytest.mark.parametrize("query", QUERIES)
@settings(max_examples=8, deadline=None)
@given(ROWS, st.sampled_from([1, 7, 1000]), st.sampled_from([1, 3]))
def test_the_changes_of_a_result_add_up_to_the_answer(query: str, rows: list[Order], epoch_rows: int, parallelism: int) -> None:
    assert folded(query, rows, epoch_rows=epoch_rows, parallelism=parallelism) == answered(query, rows)


def test_an_epoch_emits_net_changes_only() -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    tables = StreamTableEnvironment.create(env)
    rows = [Order("a", 1, v, math.pi) for v in range(100)]
    tables.create_temporary_view("orders", env.from_collection(rows, type_info=Order))
    assert [tuple(row) for row in tables.execute_sql("SELECT k, COUNT(*) FROM orders GROUP BY k").collect()] == [("a", 100)]

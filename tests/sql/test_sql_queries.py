"""Queries equal DuckDB's answer over the whole input, wherever epochs end, at any parallelism."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sql_results import Order, answered, folded

import forkpoint as fp

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
    "SELECT k, v FROM orders WHERE v > 0 UNION ALL SELECT k, g FROM orders UNION ALL SELECT 'x', NULL FROM orders WHERE g = 1",
    "SELECT k, g FROM orders UNION SELECT k, v FROM orders",
    "SELECT k, COUNT(*), SUM(n) FROM (SELECT k, g AS n FROM orders WHERE g > 0 UNION ALL "
    "SELECT k, COUNT(*) FROM orders GROUP BY k) AS t GROUP BY k",
    "SELECT COUNT(*) FROM orders HAVING COUNT(*) > 0",
    "SELECT k NOT LIKE '%a%', k NOT IN ('a', 'b'), v NOT BETWEEN 0 AND 5 FROM orders",
    # Conditions keep the others from rows for which they have no value.
    "SELECT CASE WHEN v <> 0 THEN 100 // v END FROM orders WHERE (v = 0 OR 100 // v > 0) AND 7 // g < 9 AND g <> 0",
    "SELECT g, COUNT(DISTINCT k), SUM(DISTINCT v), AVG(DISTINCT x), COUNT(DISTINCT v) FILTER (WHERE x > 0) "
    "FROM orders GROUP BY g",
    "SELECT MIN(n), MAX(n), COUNT(DISTINCT n) FROM (SELECT k, COUNT(*) AS n FROM orders GROUP BY k) t HAVING COUNT(*) > 0",
    "SELECT n % 3 AS r, MIN(k), MAX(k), MAX(s), MIN(s) "
    "FROM (SELECT k, g, COUNT(*) AS n, SUM(v) AS s FROM orders GROUP BY k, g) t GROUP BY n % 3",
    "SELECT UPPER(k) AS u, COUNT(*) FROM orders GROUP BY UPPER(k)",
    "SELECT n, COUNT(*) FROM (SELECT k, COUNT(*) AS n FROM orders GROUP BY k) AS per_key GROUP BY n",
    "SELECT SUM(n), COUNT(*) FROM (SELECT k, g, SUM(v) AS n FROM orders GROUP BY k, g HAVING SUM(v) > 0) t HAVING COUNT(*) > 0",
    "WITH large AS (SELECT k, v FROM orders WHERE v > 100) SELECT k, COUNT(*) FROM large GROUP BY k",
    "SELECT CASE WHEN v < 0 THEN 'minus' WHEN v > 0 THEN 'plus' END AS sign, COUNT(*) FROM orders "
    "GROUP BY CASE WHEN v < 0 THEN 'minus' WHEN v > 0 THEN 'plus' END",
    "SELECT k, COALESCE(SUM(v), 0), AVG(x) FROM orders WHERE k IN ('a', 'b') AND NOT (v BETWEEN -5 AND 5) GROUP BY k",
    "SELECT k FROM orders WHERE k LIKE '%a%' OR k || '!' = 'b!' OR k IS NULL",
    "SELECT g % 2 AS odd, MAX(x), MIN(k) FROM orders WHERE (v > 0) IS NOT TRUE GROUP BY g % 2",
    "SELECT a.k, b.g, c.v FROM orders AS a JOIN orders AS b ON a.k = b.k JOIN orders AS c ON b.g = c.g AND a.v < c.v",
    "SELECT a.k, b.g, b.x FROM orders AS a LEFT JOIN orders AS b ON a.g = b.v AND a.x > b.x",
    "SELECT k, a.v, b.v FROM orders AS a FULL JOIN orders AS b USING (k) WHERE a.v > b.v OR b.v IS NULL",
    "SELECT a.k, b.k FROM orders AS a, orders AS b WHERE a.v = b.v AND a.g = 0",
    "SELECT a.k, a.v FROM orders AS a LEFT ANTI JOIN orders AS b ON a.g = b.v AND a.x < b.x",
    "SELECT a.k, b.n, COALESCE(b.m, 7) FROM orders AS a LEFT JOIN (SELECT k, COUNT(*) AS n, MAX(v) AS m FROM orders WHERE v > 10 "
    "GROUP BY k) AS b ON a.k = b.k WHERE b.n IS NULL OR b.n < 3",
    # What is computed from a row that is missing is NULL, whatever it would be for a row of NULLs.
    "SELECT a.k, c.y FROM orders AS a LEFT JOIN (SELECT k, COALESCE(v, -1) AS y FROM orders WHERE g = 0) AS c ON a.k = c.k",
    "SELECT k, v FROM orders WHERE g NOT IN (SELECT v FROM orders WHERE x > 0) AND v NOT IN (SELECT g FROM orders WHERE g > 0)",
    "SELECT k, v FROM orders AS a WHERE v = (SELECT MAX(v) FROM orders AS b WHERE b.k = a.k) AND g IN (SELECT g FROM orders "
    "WHERE x > 0) AND NOT EXISTS (SELECT 1 FROM orders AS c WHERE c.k = a.k AND c.v > a.v + 100)",
    # What has no row of the subquery has what its aggregates are over no rows.
    "SELECT k, (SELECT COALESCE(SUM(v), -1) FROM orders AS b WHERE b.g = a.v) AS s, (SELECT COUNT(*) + 1 FROM orders AS b "
    "WHERE b.g = a.v) AS n FROM orders AS a WHERE (SELECT MAX(v) IS NULL FROM orders AS b WHERE b.g = a.v) OR k = 'a'",
    "SELECT k, (SELECT MAX(v) FROM orders) AS m, (SELECT COUNT(*) FROM orders AS b WHERE b.g = a.v) AS n FROM orders AS a",
    "SELECT g, SUM(v) FROM orders GROUP BY g HAVING SUM(v) > (SELECT SUM(v) FROM orders WHERE g = 1)",
    "SELECT k, v, r FROM (SELECT k, v, RANK() OVER (PARTITION BY k ORDER BY v DESC NULLS LAST) AS r FROM orders) t WHERE r < 3",
    "SELECT k, v, SUM(v) OVER (PARTITION BY k ORDER BY v NULLS FIRST) AS s, COUNT(*) OVER (PARTITION BY g) AS c FROM orders",
    "SELECT v, LEAD(v, 2, -7) OVER w AS n, MIN(g) OVER w AS m, SUM(v) OVER (ORDER BY v RANGE BETWEEN 100 PRECEDING AND "
    "CURRENT ROW) AS s FROM orders WHERE v IS NOT NULL WINDOW w AS (PARTITION BY k ORDER BY v)",
    "SELECT g, SUM(v) OVER (PARTITION BY g ORDER BY v NULLS FIRST, k NULLS FIRST, x NULLS FIRST ROWS BETWEEN 2 PRECEDING AND "
    "1 FOLLOWING) AS s FROM orders",
    "SELECT k, NTILE(3) OVER w AS n, PERCENT_RANK() OVER w AS p, CUME_DIST() OVER (PARTITION BY k ORDER BY v NULLS FIRST) AS c "
    "FROM orders WINDOW w AS (PARTITION BY g ORDER BY v NULLS FIRST, k NULLS FIRST, x NULLS FIRST)",
    "SELECT k, SUM(v) AS s, RANK() OVER (ORDER BY SUM(v) DESC NULLS LAST) AS r FROM orders GROUP BY k",
    "SELECT k, SUM(v) AS s FROM orders GROUP BY k ORDER BY COUNT(*) DESC NULLS LAST, k NULLS FIRST LIMIT 2 OFFSET 1",
    "SELECT k, g FROM orders UNION SELECT k, v FROM orders ORDER BY 2 NULLS FIRST, 1 NULLS FIRST LIMIT 3",
    "(SELECT k, g FROM orders INTERSECT SELECT k, v FROM orders) EXCEPT SELECT k, g FROM orders WHERE x > 0",
    "(SELECT k, g FROM orders INTERSECT ALL SELECT k, v FROM orders) UNION ALL (SELECT k, g FROM orders EXCEPT ALL VALUES "
    "('a', 0), (NULL, 1), ('a', 0))",
    "SELECT o.k, n.name, (SELECT MAX(m) FROM (VALUES (7), (2)) AS s(m)) AS seven FROM orders AS o "
    "JOIN (VALUES (1, 'one'), (0, 'zero'), (NULL, 'null')) AS n(g, name) ON o.g = n.g",
    # Subqueries anywhere, and questions about them with three answers.
    "SELECT k, v, g IN (SELECT v FROM orders WHERE x > 0) AS i, EXISTS (SELECT 1 FROM orders AS b WHERE b.v > a.v + 900) AS e, "
    "(SELECT MIN(b.k) FROM orders AS b WHERE b.v = a.g) IN (SELECT k FROM orders) AS m FROM orders AS a",
    "SELECT k, v FROM orders AS a WHERE v IN (SELECT b.g FROM orders AS b WHERE b.k = a.k) OR v > ALL (SELECT g FROM orders) "
    "OR x < ANY (SELECT b.x FROM orders AS b WHERE b.g = a.g) AND NOT EXISTS (SELECT 1 FROM orders AS c WHERE c.v = a.g)",
    "SELECT k, (SELECT g FROM (SELECT DISTINCT g FROM orders WHERE g = 1) AS b WHERE b.g = a.g) AS one, v <> ALL (SELECT g FROM "
    "orders WHERE k = 'a') AS n FROM orders AS a WHERE g <= ANY (SELECT v FROM orders) AND v <> ALL (SELECT g FROM orders)",
    "SELECT g, COUNT(*), g IN (SELECT v FROM orders) AS i FROM orders GROUP BY g HAVING COUNT(*) > 1 OR g = ANY (SELECT v FROM "
    "orders) OR NOT EXISTS (SELECT 1 FROM orders WHERE v = 7)",
    "SELECT k, v, RANK() OVER (w ORDER BY v NULLS FIRST) AS r, COUNT(*) OVER (n ROWS 1 PRECEDING) AS c FROM orders "
    "WHERE v IS NOT NULL WINDOW w AS (PARTITION BY k), n AS (w ORDER BY v, g NULLS FIRST, x NULLS FIRST)",
    "SELECT a.k, COUNT(*), SUM(b.v) FROM orders AS a RIGHT JOIN orders AS b ON a.g = b.v AND b.x > 0 GROUP BY a.k",
]


@pytest.mark.parametrize("query", QUERIES)
@settings(max_examples=3, deadline=None)
@given(ROWS, st.sampled_from([1, 7, 1000]), st.sampled_from([1, 3]))
def test_the_changes_of_a_result_add_up_to_the_answer(query: str, rows: list[Order], epoch_rows: int, parallelism: int) -> None:
    assert folded(query, rows, epoch_rows=epoch_rows, parallelism=parallelism) == answered(query, rows)


def test_an_epoch_emits_net_changes_only() -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    tables = fp.StreamTableEnvironment.create(env)
    rows = [Order("a", 1, v, math.pi) for v in range(100)]
    tables.create_temporary_view("orders", env.from_collection(rows, type_info=Order))
    assert [tuple(row) for row in tables.execute_sql("SELECT k, COUNT(*) FROM orders GROUP BY k").collect()] == [("a", 100)]


class Seen(NamedTuple):
    k: str
    at: fp.Instant


def test_extremes_of_times_with_a_zone() -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    env.set_max_epoch_rows(1)
    first, last = datetime(1969, 12, 31, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
    tables = fp.StreamTableEnvironment.create(env)
    tables.create_temporary_view("seen", env.from_collection([Seen("a", last), Seen("a", first), Seen("b", last)], Seen))
    query = "SELECT MIN(f), MAX(l), MIN(l) FROM (SELECT k, MIN(`at`) AS f, MAX(`at`) AS l FROM seen GROUP BY k) AS t"
    *_, row = tables.execute_sql(query).collect()
    assert tuple(row) == (first, last, last)


class Reading(NamedTuple):
    x: float


def test_all_nans_are_one_group() -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    tables = fp.StreamTableEnvironment.create(env)
    tables.create_temporary_view("readings", env.from_collection([Reading(-math.nan), Reading(math.nan), Reading(1.0)], Reading))
    counts = [row[1] for row in tables.execute_sql("SELECT x, COUNT(*) FROM readings GROUP BY x").collect()]
    assert sorted(counts) == [1, 2]


class Tagged(NamedTuple):
    tags: list[int]
    x: float


@settings(max_examples=3, deadline=None)
@given(st.permutations([Tagged([at % 3], x) for at in range(4) for x in (0.0, -0.0)]))
def test_rows_of_equal_order_have_the_same_numbers_in_each_epoch(rows: list[Tagged]) -> None:
    """Else rows would be removed that have never been there."""
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    env.set_max_epoch_rows(2)
    tables = fp.StreamTableEnvironment.create(env)
    tables.create_temporary_view("tagged", env.from_collection(rows, Tagged))
    counts: Counter[str] = Counter()
    for row in tables.execute_sql("SELECT tags, x, ROW_NUMBER() OVER (ORDER BY tags IS NULL) AS r FROM tagged").collect():
        counts[repr(tuple(row))] += 1 if row.get_row_kind() is fp.RowKind.INSERT else -1
        assert counts[repr(tuple(row))] >= 0
    assert Counter(count for count in counts.values() if count) == {1: 8}


def test_tables_with_commas_are_joined_in_the_order_of_the_equations() -> None:
    """FROM has a and b next to each other, whose rows would all be pairs."""
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    tables = fp.StreamTableEnvironment.create(env)
    for view in ("a (p, q) AS VALUES (1, 'one'), (2, 'two')", "b (r) AS VALUES (3), (4)", "c (s, t) AS VALUES (1, 4), (2, 5)"):
        tables.execute_sql(f"CREATE TEMPORARY VIEW {view}")
    query = "SELECT * FROM a, b, c WHERE r = c.t AND a.p = c.s"
    plan = tables.explain_sql(query)
    assert plan.index("AS t  [") < plan.index("EXPR$0 AS r  [")  # c is joined before b
    assert [tuple(row) for row in tables.execute_sql(query).collect()] == [(1, "one", 4, 1, 4)]

"""Table functions in Python: LATERAL TABLE has the rows that UNNEST has in DuckDB."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from sql_functions import environment, folded
from sql_results import Order, answered

import forkpoint as fp
from forkpoint.sql.errors import SqlError


@fp.udtf(result_types=["BIGINT", "STRING"])
def counted(k, n):
    for number in range(n or 0):
        yield number, None if k is None else f"{k}{number}"


class Split(fp.TableFunction):
    def eval(self, text: str | None) -> Any:
        return [] if text is None else list(text)


TABLES: dict[str, Any] = {
    "counted": counted,
    "split": fp.udtf(Split(), input_types=["STRING"], result_types="STRING"),
    "maybe": fp.udtf(lambda v: v, result_types=fp.DataTypes.BIGINT()),
    "pairs": fp.udtf(lambda v: fp.Row(v, v + 1) if v else None, result_types="ROW<a BIGINT, b BIGINT>"),
}
ROWS = [Order(k, g, v, x) for k in ("ab", None, "") for g in (0, 1) for v in (0, 1, 3, None) for x in (0.5, None)]
SERIES = "SELECT UNNEST(RANGE(0, COALESCE(v, 0))) AS n, o.* FROM orders AS o"
EQUAL = [
    ("SELECT o.k, v, n, s FROM orders AS o, LATERAL TABLE(counted(o.k, v)) AS t (n, s) WHERE n <> 1",
     f"SELECT k, v, n, k || n FROM ({SERIES}) WHERE n <> 1"),
    ("SELECT v, n FROM orders LEFT JOIN LATERAL TABLE(counted(k, v)) AS t (n, s) ON TRUE",
     f"SELECT v, n FROM ({SERIES}) UNION ALL SELECT v, NULL FROM orders WHERE COALESCE(v, 0) = 0"),
    ("SELECT n, COUNT(*), MAX(s) FROM orders CROSS JOIN LATERAL TABLE(counted(k, v)) AS t (n, s) GROUP BY n",
     f"SELECT n, COUNT(*), MAX(k || n) FROM ({SERIES}) GROUP BY n"),
    ("SELECT sums.k, f0 FROM (SELECT k, SUM(v) AS s FROM orders GROUP BY k) AS sums JOIN LATERAL TABLE(counted(k, s)) ON TRUE",
     "SELECT k, UNNEST(RANGE(0, s)) FROM (SELECT k, SUM(v)::BIGINT AS s FROM orders GROUP BY k)"),
    ("SELECT k, c, d FROM orders, LATERAL TABLE(split(k)) AS t (c), LATERAL TABLE(split(UPPER(t.c))) AS u (d)",
     "SELECT k, c, UPPER(c) FROM (SELECT k, UNNEST(STRING_SPLIT(k, '')) AS c FROM orders WHERE k <> '')"),
    ("SELECT v, m.f0, a, b FROM orders, LATERAL TABLE(maybe(v)) AS m, LATERAL TABLE(pairs(v)) AS p",
     "SELECT v, v, v, v + 1 FROM orders WHERE v > 0"),
]  # fmt: skip


@pytest.mark.parametrize("epoch_rows", [5, 100])
@pytest.mark.parametrize(("query", "without"), EQUAL)
def test_table_functions(query: str, without: str, epoch_rows: int) -> None:
    assert folded(environment(ROWS, TABLES, epoch_rows=epoch_rows), query) == answered(without, ROWS)


def test_a_row_has_the_rows_of_one_call_of_a_function_that_is_not_deterministic() -> None:
    tables = environment(ROWS, {})
    numbers = iter(range(1000))
    tables.create_temporary_function("u", fp.udtf(Numbers(), result_types=["INT"], deterministic=False))
    found = folded(
        tables, "SELECT a, b FROM (SELECT t.f0 AS a, t.f0 AS b FROM orders, LATERAL TABLE(u(v)) AS t) AS s WHERE a > 2"
    )
    assert found == Counter((number, number) for number in numbers if 2 < number <= len(ROWS))


class Numbers(fp.TableFunction):
    def open(self, function_context: fp.FunctionContext) -> None:
        self.calls = 0

    def eval(self, v: int | None) -> Any:
        self.calls += 1
        yield self.calls


@pytest.mark.parametrize(
    ("query", "mark", "message"),
    [
        ("SELECT pairs(v) FROM orders", " " * 7, "pairs is a table function; write it in FROM: CROSS JOIN LATERAL"),
        ("SELECT 1 FROM orders, LATERAL TABLE(plus(v)) AS t (a)", " " * 36, "UNNEST takes an ARRAY or a MAP, not BIGINT"),
        ("SELECT 1 FROM orders, LATERAL TABLE(split(k, v)) AS t (a)", " " * 36, "split takes 1 arguments, not 2"),
        ("SELECT 1 FROM orders, LATERAL TABLE(split(k)) AS t (a, b)", " " * 36, "UNNEST has 1 columns; name them: AS t (f0)"),
        ("SELECT 1 FROM orders JOIN LATERAL TABLE(split(k)) AS t (a) ON a = k", " " * 40, "UNNEST takes CROSS JOIN, or LEFT"),
        ("SELECT 1 FROM orders, LATERAL TABLE(orders)", " " * 36, "there is no column 'orders'"),
    ],
)  # fmt: skip
def test_a_mistake_is_shown_where_it_is(query: str, mark: str, message: str) -> None:
    tables = environment([], {**TABLES, "plus": fp.udf(lambda v: v + 1, result_type="BIGINT")})
    with pytest.raises(SqlError) as error:
        tables.execute_sql(query)
    assert message in str(error.value)
    assert str(error.value).endswith(f"\n  {mark}^")


def test_an_error_names_the_arguments() -> None:
    tables = environment([Order("a", 1, 2, 1.0)], {})
    tables.create_temporary_function("bad", fp.udtf(lambda v: (1 / n for n in range(v)), result_types=["DOUBLE"]))
    with pytest.raises(fp.UserFunctionError, match=r"function bad raised ZeroDivisionError: .*\(arguments \(2,\)\)"):
        list(tables.execute_sql("SELECT f0 FROM orders, LATERAL TABLE(bad(v)) AS t").collect())
    with pytest.raises(fp.ConfigError, match="udtf 'split': it has no result types"):
        tables.create_temporary_function("split", fp.udtf(Split(), name="split"))

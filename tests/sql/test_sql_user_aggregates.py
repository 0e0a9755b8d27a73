"""Aggregate functions in Python: DuckDB's answers, wherever epochs and the process end, and also for rows that are removed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sql_functions import LOCAL, ROWS, check_stored_form, environment, folded, run
from sql_results import Order, answered

import forkpoint as fp
from forkpoint.sql.errors import SqlError
from forkpoint.table.api.views import ListView, MapView
from forkpoint.testing import ABORT, EOF, PAUSE


class Mean(fp.SqlAggregateFunction):
    """The weighted mean; the accumulator is changed in place."""

    def open(self, function_context: fp.FunctionContext) -> None:
        self.rows = function_context.get_metric_group().counter("rows")

    def create_accumulator(self) -> fp.Row:
        return fp.Row(0, 0)

    def accumulate(self, accumulator: Any, value: int | None, weight: int = 1) -> None:
        self.rows.inc()
        if value is not None:
            accumulator[0] += value * weight
            accumulator[1] += weight

    def retract(self, accumulator: Any, value: int | None, weight: int = 1) -> None:
        if value is not None:
            accumulator[0] -= value * weight
            accumulator[1] -= weight

    def merge(self, accumulator: Any, accumulators: list[Any]) -> None:
        for each in accumulators:
            accumulator[0] += each[0]
            accumulator[1] += each[1]

    def get_value(self, accumulator: Any) -> float | None:
        return accumulator[0] / accumulator[1] if accumulator[1] else None

    def get_accumulator_type(self) -> str:
        return "ROW<total BIGINT, weight BIGINT>"


class Last(fp.SqlAggregateFunction):
    """The last value; the accumulator is replaced."""

    def create_accumulator(self) -> int:
        return -1

    def accumulate(self, accumulator: int, value: int | None) -> int | None:
        return value

    def get_value(self, accumulator: int) -> int:
        return accumulator


class Spread(fp.SqlAggregateFunction):
    """As PyFlink's pandas functions are: all rows of a group at once."""

    def create_accumulator(self) -> list[Any]:
        return []

    def accumulate(self, accumulator: list[Any], values: Any) -> None:
        accumulator.append(values.max() - values.min())

    def get_value(self, accumulator: list[Any]) -> Any:
        return accumulator[0]


AGGREGATES: dict[str, Any] = {
    "mean": Mean(),
    "last": fp.udaf(Last(), accumulator_type="BIGINT", result_type=fp.DataTypes.BIGINT()),
    "spread": fp.udaf(Spread(), result_type="DOUBLE", func_type="pandas"),
    "plus": fp.udf(lambda v: None if v is None else v + 1, result_type="BIGINT"),
    "most": fp.udaf(lambda v: pc.max(v), input_types=["BIGINT"], result_type="BIGINT", func_type="arrow"),
}


EQUAL = [
    ("SELECT k, mean(v), mean(v, 2), most(v), spread(x), COUNT(*) FROM orders GROUP BY k HAVING mean(v, 1) > 0.5",
     "SELECT k, AVG(v), AVG(v), MAX(v), MAX(x) - MIN(x), COUNT(*) FROM orders GROUP BY k HAVING AVG(v) > 0.5"),
    ("SELECT mean(v) FILTER (WHERE g > 0), most(v) FILTER (WHERE k = 'a'), spread(plus(v)) + 1 FROM orders WHERE plus(v) > 1",
     "SELECT AVG(v) FILTER (WHERE g > 0), MAX(v) FILTER (WHERE k = 'a'), MAX(v) - MIN(v) + 1 FROM orders WHERE v > 0 "
     "HAVING COUNT(*) > 0"),
    ("SELECT n, mean(s, n) FROM (SELECT k, g, COUNT(*) AS n, SUM(v) AS s FROM orders GROUP BY k, g) AS t GROUP BY n",
     "SELECT n, AVG(s) FROM (SELECT k, g, COUNT(*) AS n, SUM(v) AS s FROM orders GROUP BY k, g) AS t GROUP BY n"),
    ("SELECT n, most(s), spread(s) FILTER (WHERE s > 0) FROM (SELECT k, g, COUNT(*) AS n, SUM(v) AS s FROM orders GROUP BY k, g) "
     "AS t GROUP BY n",
     "SELECT n, MAX(s), MAX(s) FILTER (WHERE s > 0) - MIN(s) FILTER (WHERE s > 0) "
     "FROM (SELECT k, g, COUNT(*) AS n, SUM(v) AS s FROM orders GROUP BY k, g) AS t GROUP BY n"),
    ("SELECT k, v, mean(v) OVER (PARTITION BY k ORDER BY v ROWS BETWEEN 1 PRECEDING AND CURRENT ROW), "
     "most(v) OVER (PARTITION BY g) FROM (SELECT DISTINCT k, g, v FROM orders) AS o",
     "SELECT k, v, AVG(v) OVER (PARTITION BY k ORDER BY v NULLS FIRST, g NULLS FIRST ROWS BETWEEN 1 PRECEDING AND CURRENT ROW), "
     "MAX(v) OVER (PARTITION BY g) FROM (SELECT DISTINCT k, g, v FROM orders) AS o"),
    ("SELECT k, mean(DISTINCT v), most(DISTINCT v) FILTER (WHERE g > 0), COUNT(DISTINCT v), mean(DISTINCT v, 3) "
     "FROM orders GROUP BY k",
     "SELECT k, AVG(DISTINCT v), MAX(v) FILTER (WHERE g > 0), COUNT(DISTINCT v), AVG(DISTINCT v) FROM orders GROUP BY k"),
    ("SELECT mean(DISTINCT n) FROM (SELECT k, g, COUNT(*) AS n FROM orders GROUP BY k, g) AS t",
     "SELECT AVG(DISTINCT n) FROM (SELECT k, g, COUNT(*) AS n FROM orders GROUP BY k, g) AS t HAVING COUNT(*) > 0"),
    ("SELECT GROUPING(k), k, mean(v), most(v) FROM orders GROUP BY ROLLUP (k)",
     "SELECT * FROM (SELECT GROUPING(k), k, AVG(v), MAX(v) FROM orders GROUP BY ROLLUP (k) HAVING COUNT(*) > 0)"),
]  # fmt: skip


@settings(max_examples=6, deadline=None)
@given(ROWS, st.integers(1, 7), st.sampled_from([1, 2]), st.randoms())
def test_aggregate_functions_have_duckdbs_answer(rows: list[Order], epoch_rows: int, parallelism: int, random: Any) -> None:
    query, without = random.choice(EQUAL)
    assert folded(environment(rows, AGGREGATES, epoch_rows=epoch_rows, parallelism=parallelism), query) == answered(without, rows)


@pytest.mark.parametrize("at", range(len(EQUAL)))
def test_each_query(at: int) -> None:
    rows = [Order(k, g, v, x) for k in ("a", None) for g in (0, 1) for v in (0, 2, None) for x in (0.5, 1.0, None)]
    tables, (query, without) = environment(rows, AGGREGATES, epoch_rows=7), EQUAL[at]
    assert folded(tables, query) == answered(without, rows)
    check_stored_form(tables, query)


def test_accumulators_go_on_from_saved_state(tmp_path: Path) -> None:
    """Also after a change of the query: the first epoch emits the difference, with the functions' results."""
    script = [Order("a", 1, 2, None), PAUSE, ABORT, Order("a", 1, 4, None), Order("b", 1, 5, None), PAUSE, EOF]
    query = "SELECT k, mean(v) AS m, last(v) AS l, most(v) AS t FROM orders GROUP BY k"
    assert run(query, script, tmp_path, AGGREGATES) == [
        ("a", 2.0, 2, 2, 1), ("a", 2.0, 2, 2, -1), ("a", 3.0, 4, 4, 1), ("b", 5.0, 5, 5, 1),
    ]  # fmt: skip
    script += [Order("a", 1, 3, None), PAUSE, EOF]
    changed = "SELECT k, mean(v) + 1 AS m, last(v) AS l FROM orders GROUP BY k HAVING mean(v) < 5"
    assert sorted(run(changed, script, tmp_path, AGGREGATES)) == [("a", 3.0, 4, -1), ("a", 4.0, 3, 1), ("b", 5.0, 5, -1)]
    again = {**AGGREGATES, "mean": fp.udaf(Mean(), version="2", result_type="DOUBLE")}
    with pytest.raises(fp.RestoreRefused, match=r"mean was version 1 and is version 2: mean@2\(v\) cannot be"):
        run(changed, script, tmp_path, again)


class Words(fp.SqlAggregateFunction):
    """As PyFlink allows it: the accumulator is not of its type."""

    def create_accumulator(self) -> fp.Row:
        return fp.Row(MapView(), {"": 0.5}, ListView())

    def accumulate(self, accumulator: Any, word: str) -> None:
        accumulator[0].put(word, len(accumulator[0]))
        accumulator[2].add(word)

    def retract(self, accumulator: Any, word: str) -> None:
        accumulator[2].remove(word)

    def get_value(self, accumulator: Any) -> str:
        return f"{sorted(accumulator[0].items())} {accumulator[1]} {'+'.join(accumulator[2])}"


def test_accumulators_of_any_value_and_lists_go_on_from_saved_state(tmp_path: Path) -> None:
    words = fp.udaf(Words(), result_type="STRING", accumulator_type="ROW<f0 MAP<STRING, STRING>, f1 BIGINT>")
    query = "SELECT words(k) AS w, LISTAGG(k, '+') AS l FROM (SELECT v, LAST_VALUE(k) AS k FROM orders GROUP BY v) AS t"
    script = [Order("a", 1, 1, None), PAUSE, ABORT, Order("b", 1, 2, None), PAUSE, EOF]
    with pytest.warns(UserWarning, match="udaf 'Words': its accumulator is not of its accumulator_type ROW<f0 MAP"):
        before = run(query, script, tmp_path, {"words": words})
    assert before[-1] == ("[('a', 0), ('b', 1)] {'': 0.5} a+b", "a+b", 1)
    script += [Order("c", 1, 1, None), PAUSE, EOF]
    with pytest.warns(UserWarning, match="its accumulator is not of its"):
        after = run(query, script, tmp_path, {"words": words})
    assert after == [(*before[-1][:2], -1), ("[('a', 0), ('b', 1), ('c', 2)] {'': 0.5} b+c", "b+c", 1)]


class Reading(NamedTuple):
    k: str
    v: int
    ts: fp.Instant


SECONDS = [0, 2, 1, 20, 19, 12, 40, 31, 50]


@pytest.mark.parametrize("epoch_rows", [2, 100])
def test_aggregate_functions_of_windows(epoch_rows: int) -> None:
    """A row that comes between two sessions makes them one."""
    rows = [Reading("a", second, datetime.fromtimestamp(second, UTC)) for second in SECONDS]
    env = fp.StreamExecutionEnvironment.get_execution_environment(LOCAL)
    env.set_max_epoch_rows(epoch_rows)
    tables = fp.StreamTableEnvironment.create(env)
    schema = fp.Schema.new_builder().watermark("ts", "ts - INTERVAL '15' SECOND").build()
    tables.create_temporary_view("readings", env.from_collection(rows, Reading), schema)
    for name, function in AGGREGATES.items():
        tables.create_temporary_function(name, function)
    query = "SELECT k, {0}_START(ts, INTERVAL '{1}' SECOND) AS s, {2} FROM readings GROUP BY k, {0}(ts, INTERVAL '{1}' SECOND)"
    tumbling = [tuple(row)[2:] for row in tables.execute_sql(query.format("TUMBLE", 20, "mean(v), last(v), spread(v)")).collect()]
    assert sorted(tumbling) == [(6.8, 12, 19.0), (25.5, 31, 11.0), (45.0, 50, 10.0)]
    sessions = [tuple(row)[2:] for row in tables.execute_sql(query.format("SESSION", 8, "mean(v), most(v)")).collect()]
    assert sorted(sessions) == [(1.0, 2), (17.0, 20), (31.0, 31), (40.0, 40), (50.0, 50)]


@pytest.mark.parametrize(
    ("query", "mark", "message"),
    [
        ("SELECT last(n) FROM (SELECT COUNT(*) AS n FROM orders GROUP BY k) AS t", 7, "last needs retract(): rows of its input"),
        ("SELECT mean(DISTINCT ARRAY[v]) FROM orders", 7, "mean(DISTINCT …) takes no ARRAY, MAP and ROW yet"),
        ("SELECT mean() FROM orders", 7, "mean takes an argument"),
        ("SELECT k FROM orders WHERE mean(v) > 1", 27, "an aggregate (mean@1) is not allowed in WHERE"),
        ("SELECT most(k) FROM orders", 7, "most takes BIGINT as argument 1, not STRING; CAST it"),
    ],
)  # fmt: skip
def test_a_mistake_is_shown_where_it_is(query: str, mark: int, message: str) -> None:
    with pytest.raises(SqlError) as error:
        environment([], AGGREGATES).execute_sql(query)
    assert message in str(error.value)
    assert str(error.value).endswith(f"\n  {' ' * mark}^")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fp.udaf(Last(), result_type="BIGINT"), "udaf 'Last': it has no accumulator type"),
        (lambda: fp.udaf(len, result_type="BIGINT"), "udaf 'len': a function of rows is a SqlAggregateFunction"),
        (lambda: fp.udaf(Mean(), deterministic=False), "udaf 'Mean': an aggregate function is deterministic"),
    ],
)
def test_a_function_is_checked_when_it_is_registered(make: Any, message: str) -> None:
    with pytest.raises(fp.ConfigError, match=message):
        environment([], {}).create_temporary_function("h", make())


class Wrong(Last):
    def accumulate(self, accumulator: int, value: int | None) -> Any:
        return "x" if value == 1 else 1 // value  # type: ignore[operator]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0, r"function h raised ZeroDivisionError.*\(arguments \(0,\)\)"),
        (1, "function h has the accumulator type BIGINT, but returned"),
    ],
)
def test_an_error_names_the_function(value: int, message: str) -> None:
    tables = environment([Order("a", 1, value, 1.0)], {})
    tables.create_temporary_function("h", fp.udaf(Wrong(), accumulator_type="BIGINT", result_type="BIGINT"))
    with pytest.raises(fp.UserFunctionError, match=message):
        list(tables.execute_sql("SELECT h(v) FROM orders").collect())

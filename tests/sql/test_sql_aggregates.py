"""Aggregates that depend on the order of rows, variances, and grouping sets, wherever epochs end."""

from __future__ import annotations

import json
import statistics
from collections import Counter, defaultdict
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sql_results import Order, answered, folded

import forkpoint as fp
from forkpoint.errors import JobFailed

ROWS = st.lists(
    st.builds(
        Order,
        st.sampled_from(["a", "b", "", "ä", None]),
        st.sampled_from([0, 1, None]),
        st.none() | st.integers(-(10**6), 10**6),
        st.none() | st.sampled_from([0.5, -0.25, 1024.0, 3.0]),
    ),
    max_size=30,
)

GROUPING_SETS = [
    "SELECT k, g, COUNT(*), SUM(v), GROUPING(k), GROUPING(g), GROUPING_ID(k, g) FROM orders "
    "GROUP BY GROUPING SETS ((k, g), (k), ()) HAVING COUNT(*) > 0",
    "SELECT k, g % 2, COUNT(*) + GROUPING(g % 2) FROM orders GROUP BY ROLLUP(k, g % 2) HAVING GROUPING(k) = 0",
    "SELECT x, k, g, MAX(k) FROM orders GROUP BY x, CUBE(k, g)",
    "SELECT k, SUM(g) FROM orders GROUP BY GROUPING SETS ((k), (k))",
    "SELECT k, s, COUNT(*) FROM (SELECT k, g, SUM(v) AS s FROM orders GROUP BY k, g) AS t "
    "GROUP BY GROUPING SETS (k, ROLLUP(s, k)) HAVING COUNT(*) > 0",
]


@pytest.mark.parametrize("query", GROUPING_SETS)
@settings(max_examples=3, deadline=None)
@given(ROWS.filter(bool), st.sampled_from([1, 7, 1000]))
def test_grouping_sets(query: str, rows: list[Order], epoch_rows: int) -> None:
    assert folded(query, rows, epoch_rows=epoch_rows, parallelism=2) == answered(query, rows)


EVENS, POSITIVE = "CASE WHEN g = 0 THEN v END", "FILTER (WHERE x > 0)"
DISTINCT = [
    f"SELECT k, COUNT(DISTINCT v), SUM(DISTINCT v) {POSITIVE}, COUNT(DISTINCT {EVENS}), COUNT(DISTINCT {EVENS}) {POSITIVE} "
    "FROM orders GROUP BY k",
    "SELECT g, COUNT(DISTINCT n), SUM(DISTINCT n) FILTER (WHERE n > 1), MAX(n) FILTER (WHERE k <> 'a'), MIN(n) "
    "FROM (SELECT k, g, COUNT(*) AS n FROM orders GROUP BY k, g, x) AS o GROUP BY g",
]


@pytest.mark.parametrize("query", DISTINCT)
@settings(max_examples=4, deadline=None)
@given(ROWS.filter(bool), st.sampled_from([1, 7, 1000]))
def test_distinct_values_of_all_rows_and_of_some(query: str, rows: list[Order], epoch_rows: int) -> None:
    """What some rows have is looked up only where all rows had it before, also where rows are taken back."""
    rows = [row._replace(v=row.v and row.v % 3) for row in rows]
    assert folded(query, rows, epoch_rows=epoch_rows, parallelism=2) == answered(query, rows)


OF_CHANGES = "SELECT FIRST_VALUE(v), LAST_VALUE(v), LISTAGG(s, '') FILTER (WHERE v < 9), FIRST_VALUE(ARRAY[s]) FROM "
OF_CHANGES += "(SELECT k, LAST_VALUE(v) AS v, LAST_VALUE(CAST(v AS STRING)) AS s FROM orders GROUP BY k)"


@settings(max_examples=10, deadline=None)
@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=12), st.sampled_from([1, 2, 5, 1000]))
def test_values_in_order_of_results_that_change(keys: list[str], epoch_rows: int) -> None:
    """A value that is replaced loses its place, and the new one comes last."""
    latest: dict[str, int] = {}
    for v, k in enumerate(keys):
        latest.pop(k, None)
        latest[k] = v
    values = list(latest.values())
    listed = "".join(str(v) for v in values if v < 9) or None
    rows = [Order(k, None, v, None) for v, k in enumerate(keys)]
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    env.set_max_epoch_rows(epoch_rows)
    tables = fp.StreamTableEnvironment.create(env)
    tables.create_temporary_view("orders", env.from_collection(rows, Order))
    *_, found = tables.execute_sql(OF_CHANGES).collect()
    assert tuple(found) == (values[0], values[-1], listed, [str(values[0])])


QUERY = """
SELECT g, FIRST_VALUE(k), LAST_VALUE(v), FIRST_VALUE(x) FILTER (WHERE v > 0), LISTAGG(k), LISTAGG(k, '; ') FILTER (WHERE v > 0),
       COUNT(k, v), COUNT(DISTINCT k, v) FILTER (WHERE v <> 3), SUM0(v),
       STDDEV_POP(x), VAR_SAMP(x), VAR_POP(v), STDDEV_SAMP(CAST(v AS DECIMAL(14, 1)))
FROM orders GROUP BY g"""


@settings(max_examples=8, deadline=None)
@given(ROWS, st.sampled_from([1, 4, 1000]), st.sampled_from([1, 3]))
def test_values_in_order_and_variances(rows: list[Order], epoch_rows: int, parallelism: int) -> None:
    found = {row[0]: row[1:] for row in folded(QUERY, rows, epoch_rows=epoch_rows, parallelism=parallelism)}
    groups: dict[Any, list[Order]] = defaultdict(list)
    for row in rows:
        groups[row.g].append(row)
    assert found.keys() == groups.keys()
    for g, of_group in groups.items():
        *values, spread = found[g]
        *wanted, wanted_spread = expected(of_group)
        assert values == pytest.approx(wanted)
        assert spread == (None if wanted_spread is None else pytest.approx(Decimal(wanted_spread), abs=Decimal("1E-6")))


def expected(rows: list[Order]) -> tuple[Any, ...]:
    k, v, x = ([row[at] for row in rows if row[at] is not None] for at in (0, 2, 3))
    positive = [row for row in rows if (row.v or 0) > 0]
    texts = [row.k for row in positive if row.k is not None]
    return (
        next(iter(k), None),
        next(reversed(v), None),
        next((row.x for row in positive if row.x is not None), None),
        ",".join(k) if k else None,
        "; ".join(texts) if texts else None,
        sum(row.k is not None and row.v is not None for row in rows),
        len({(row.k, row.v) for row in rows if row.k is not None and row.v not in (None, 3)}),
        sum(v),
        statistics.pstdev(x) if x else None,
        statistics.variance(x) if len(x) > 1 else None,
        (sum(n * n for n in v) - sum(v) ** 2 // len(v)) // len(v) if v else None,  # of integers, as Calcite and Flink divide
        statistics.stdev(v) if len(v) > 1 else None,
    )


COLLECTED = """
SELECT g, COUNT(*), COUNT(DISTINCT v, v > 1), JSON_OBJECTAGG(KEY k VALUE v),
       ARRAY_AGG(v), ARRAY_AGG(v) IGNORE NULLS, ARRAY_AGG(DISTINCT v),
       ARRAY_AGG(v) FILTER (WHERE v > 2), COLLECT(v), COLLECT(DISTINCT v), JSON_ARRAYAGG(v), JSON_ARRAYAGG(ROW(v) NULL ON NULL),
       JSON_OBJECTAGG(k VALUE JSON_ARRAY(v) ABSENT ON NULL), PERCENTILE(v, ARRAY[0.5, 1]), PERCENTILE(v, 0.5, 3 - v)
FROM (SELECT k, LAST_VALUE(g) AS g, LAST_VALUE(v) AS v FROM orders GROUP BY k) AS t GROUP BY g"""


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.builds(Order, st.sampled_from("abcde"), st.sampled_from([0, 1]), st.sampled_from([1, 2, 3, None]), st.none())),
    st.sampled_from([1, 3, 1000]),
)
def test_values_of_results_that_change_are_collected(rows: list[Order], epoch_rows: int) -> None:
    """Two rows of a group never have the same key, because the net changes of an epoch count."""
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    env.set_max_epoch_rows(epoch_rows)
    tables = fp.StreamTableEnvironment.create(env)
    tables.create_temporary_view("orders", env.from_collection(rows, Order))
    found: dict[Any, list[Any]] = {}
    for row in tables.execute_sql(COLLECTED).collect():
        found.pop(row.g, None) if row.get_row_kind() is fp.RowKind.DELETE else found.update({row.g: list(row)[1:]})
    latest: dict[str, list[Any]] = {}
    for k, g, v, _ in rows:
        _, before = latest.get(k, (None, None))
        latest[k] = [g, before if v is None else v]
    assert found.keys() == {g for g, _ in latest.values()}
    for g, (count, pairs, objects, *rest, listed, wrapped, of_arrays, both, half) in found.items():
        members = {k: v for k, (of, v) in sorted(latest.items()) if of == g}
        every, some = list(members.values()), [v for v in members.values() if v is not None]
        assert (count, pairs, json.loads(objects)) == (len(members), len(set(some)), members)
        assert list(json.loads(objects)) == list(members)
        assert json.loads(of_arrays) == {k: [] if v is None else [v] for k, v in members.items()}
        ordered = [None if of is None else sorted(of, key=repr) for of in rest[:4]]
        expected = [every, some, list(dict.fromkeys(every)), [v for v in some if v > 2]]
        assert ordered == [sorted(of, key=repr) or None for of in expected]
        assert rest[4:] == [Counter(some), dict.fromkeys(some, 1)]
        assert sorted(json.loads(listed)) == sorted(some)
        assert Counter(each["EXPR$0"] for each in json.loads(wrapped)) == Counter(every)
        assert both == ([statistics.median(some), max(some)] if some else None)
        often = [v for v in some for _ in range(3 - v)]
        assert half == (statistics.median(often) if often else None)


def test_keys_of_json_objects_are_given_once() -> None:
    """In Flink, too, a second value of a key ends the job."""
    rows = [Order("a", 0, 1, None), Order("b", 0, 1, None), Order("a", 0, 1, None)]
    with pytest.raises(JobFailed, match="a group has the key 'a' twice"):
        folded("SELECT JSON_OBJECTAGG(k VALUE v) FROM orders", rows, epoch_rows=1, parallelism=1)

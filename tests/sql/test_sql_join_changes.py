"""A query with joins or OVER is changed again and again: each version goes on from the rows that it keeps, and has its own
answer.

Kinds of joins, functions, conditions, columns and filters change; the process dies before and after a difference is committed.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sql_results import Order, answered
from test_sql_changes import ROWS, completed, run

import forkpoint as fp
from forkpoint.relational.definitions.comparison import compare
from forkpoint.sql.errors import Text
from forkpoint.sql.parser import parse
from forkpoint.sql.statements import CreateTable, Query
from forkpoint.state_processor import SavepointReader
from forkpoint.table.session import Session
from forkpoint.testing import ABORT, EOF, PAUSE, Eof

KINDS = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"]
# Each part of a query, with the columns that it reads.
COLUMNS = {"a.k": "", "a.g": "ag", "a.v + 1 AS v": "av", "b.v AS w": "bv", "b.k AS j": "", "COALESCE(b.x, -1) AS x": "bx"}
ON = {"": "", "AND a.v < b.v": "avbv", "AND (b.x IS NOT NULL OR a.g = b.g)": "bxagbg"}
WHERE = {"": "", "WHERE a.v IS NOT NULL OR b.v IS NULL": "avbv", "WHERE a.x < b.x OR b.k IS NULL": "axbx"}
FILTERS = {"g > 0 OR g IS NULL": "agbg", "v IS NULL OR v > -500": "avbv", "v IS NULL OR v < 5": "avbv"}


def reads(columns: str) -> set[str]:
    return {columns[at : at + 2] for at in range(0, len(columns), 2)}


Write = Callable[[random.Random, set[str], list[str]], tuple[str, set[str]]]


def pick(rng: random.Random, parts: dict[str, str], saved: set[str]) -> str:
    return rng.choice([part for part, columns in parts.items() if reads(columns) <= saved])


def write_join(rng: random.Random, saved: set[str], filters: list[str]) -> tuple[str, set[str]]:
    """A query over rows with these columns that pass these filters, and the columns that it reads."""
    kind = rng.choice(KINDS)
    possible = [item for item, columns in COLUMNS.items() if reads(columns) <= saved]
    if kind in KINDS[4:]:
        possible = [item for item in possible if item.startswith("a.")]
    items, on = rng.sample(possible, rng.randrange(1, len(possible) + 1)), pick(rng, ON, saved)
    where = "" if kind in KINDS[4:] else pick(rng, WHERE, saved)
    passing = f" WHERE {' AND '.join(f'({each})' for each in filters)}" if filters else ""
    left, right = (f"(SELECT * FROM orders{passing}) AS {name}" for name in "ab")
    equal = rng.choice(["a.k = b.k", "b.k = a.k"])
    query = f"SELECT {', '.join(items)} FROM {left} {kind} {right} ON {equal} {on} {where}"
    return query, set().union(*map(reads, (*(COLUMNS[item] for item in items), ON[on], WHERE[where])))


def names_of(query: str) -> list[str]:
    items = query[len("SELECT ") : query.index(" FROM")]
    return [part.split(" AS ")[-1].removeprefix("a.") for part in re.split(r", (?![^(]*\))", items)]


def answer(query: str, rows: list[Order]) -> list[dict[str, Any]]:
    return [dict(zip(names_of(query), row, strict=True)) for row in answered(query, rows).elements()]


RANKED = {"v": "av", "g": "ag", "x": "ax"}
CALLS = {
    "RANK() OVER (PARTITION BY k ORDER BY {} NULLS FIRST)": "",
    "DENSE_RANK() OVER (PARTITION BY k ORDER BY {} DESC NULLS LAST)": "",
    "COUNT(*) OVER (PARTITION BY k ORDER BY {} NULLS FIRST)": "",
    "SUM(v) OVER (PARTITION BY k)": "av",
}


def write_over(rng: random.Random, saved: set[str], filters: list[str]) -> tuple[str, set[str]]:
    """The same for a query with OVER: other functions, orders and limits."""
    order = pick(rng, RANKED, saved)
    call = pick(rng, CALLS, saved)
    items = ["k", *rng.sample(possible := [c for c in "gvx" if f"a{c}" in saved], rng.randrange(len(possible) + 1))]
    passing = f" WHERE {' AND '.join(f'({each})' for each in filters)}" if filters else ""
    inner = f"SELECT *, {call.format(order)} AS r FROM orders{passing}"
    limit = rng.choice(["", "WHERE r <= 1", "WHERE r < 3", "WHERE r > 1"])
    used = {f"a{each}" for each in items[1:]} | reads(CALLS[call]) | (reads(RANKED[order]) if "{}" in call else set())
    return f"SELECT {', '.join([*items, 'r'])} FROM ({inner}) AS o {limit}", used


JOINED = "SELECT a.k, a.g, a.v, a.x, b.g AS h, b.v AS w, b.x AS y FROM orders AS a FULL JOIN orders AS b ON a.k = b.k"
NUMBERED = "SELECT k, g, v, x, RANK() OVER (PARTITION BY k ORDER BY v NULLS FIRST) AS r FROM orders"


@pytest.mark.parametrize(("query", "write"), [(JOINED, write_join), (NUMBERED, write_over)])
@settings(max_examples=5, deadline=None)
@given(st.integers(0, 10**9))
def test_each_version_has_its_own_answer_from_kept_rows(
    tmp_path_factory: pytest.TempPathFactory, query: str, write: Write, seed: int
) -> None:
    rng, state = random.Random(seed), tmp_path_factory.mktemp("state")
    saved = {side + column for side in "ab" for column in "gvx"}
    filters: list[str] = []
    script: list[Any] = []
    seen: list[Order] = []
    before: list[dict[str, Any]] = []
    for _ in range(5):
        more = rng.choices(ROWS, k=rng.randrange(8))
        cut = rng.randrange(len(more) + 1)
        script = [*script, *rng.choice([[], [ABORT]]), *more[:cut], rng.choice([PAUSE, ABORT]), *more[cut:], PAUSE, EOF]
        names = names_of(query)
        # The second part has no rows, but makes a result that only adds rows one that also removes them.
        nulls = ", ".join("NULL" for _ in names)
        updating = f"{query} UNION ALL SELECT {nulls} FROM (SELECT COUNT(*) AS n FROM orders) AS none WHERE n < 0"
        rows = Counter(tuple(row.get(name) for name in names) for row in before)
        for change in run(updating, script, state, rng.choice([1, 3])):
            rows[tuple(change[name] for name in names)] += change["$weight"]
        seen += more
        before = answer(query, seen)
        assert +rows == Counter(tuple(row.values()) for row in before), query
        assert min(rows.values(), default=0) >= 0, query
        added = [each for each in FILTERS if each not in filters and reads(FILTERS[each]) <= saved]
        filters += added[: rng.choice([0, 0, 1])]
        query, saved = write(rng, saved, filters)


FIRST = [Order("a", 1, 1, None), Order("a", 2, 5, None), Order("b", 1, 7, None), PAUSE]
PAIRS = "SELECT a.v, b.v AS w FROM orders AS a JOIN orders AS b ON a.k = b.k"


def test_a_result_that_only_adds_rows_gains_those_of_a_wider_condition_once(tmp_path: Path) -> None:
    assert len(run(f"{PAIRS} AND a.v > b.v", [*FIRST, EOF], tmp_path)) == 1
    wider = f"{PAIRS} AND a.v >= b.v"
    more = [*FIRST, Order("b", 1, 8, None), PAUSE, EOF]
    found = run(wider, more, tmp_path)
    assert sorted((row["v"], row["w"]) for row in found) == [(1, 1), (5, 5), (7, 7), (8, 7), (8, 8)]
    assert run(wider, more, tmp_path) == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("SELECT a.v, b.x FROM orders AS a JOIN orders AS b ON a.k = b.k", "the saved rows of orders have no x"),
        ("SELECT a.v FROM orders AS a JOIN orders AS b ON a.g = b.v", r"its rows were kept by k = k and would be kept by g = v"),
        (
            "SELECT a.v FROM orders AS a JOIN (SELECT k, v FROM orders GROUP BY k, v) AS b ON a.k = b.k",
            "its rows came from orders, in which AGGREGATE takes the place of SCAN",
        ),
    ],
)
def test_what_the_rows_of_a_join_do_not_have_is_refused(changed: str, message: str, tmp_path: Path) -> None:
    run(PAIRS, [*FIRST, EOF], tmp_path)
    with pytest.raises(fp.RestoreRefused, match=message):
        run(changed, [*FIRST, EOF], tmp_path)


SUMS = "(SELECT k, SUM(v) AS s FROM orders GROUP BY k)"


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT g.s, a.v FROM {SUMS} AS g LEFT JOIN orders AS a ON g.k = a.k",
        f"SELECT g.s, ROW_NUMBER() OVER (ORDER BY g.s, g.k) AS n FROM {SUMS} AS g",
    ],
)
def test_a_condition_on_the_result_of_another_query(query: str, tmp_path: Path) -> None:
    """That query takes the rows back from the one that keeps them."""
    changed, more = f"{query} WHERE g.s > 6", [*FIRST, EOF, Order("a", 1, 4, None), PAUSE, Order("b", 1, -2, None), PAUSE, EOF]
    rows: Counter[Any] = Counter()
    for change in [*run(query, [*FIRST, EOF], tmp_path), *run(changed, more, tmp_path, 2)]:
        *row, weight = change.values()
        rows[tuple(row)] += weight
    assert rows == +rows
    assert +rows == answered(changed, [each for each in more if isinstance(each, Order)])


def test_a_query_over_the_result_of_one_that_goes_on_does_not_begin_without_its_rows(tmp_path: Path) -> None:
    ranks = (
        "SELECT k, v, RANK() OVER (PARTITION BY k ORDER BY v) AS r, COUNT(*) OVER (PARTITION BY k ORDER BY v) AS n FROM orders"
    )
    run(ranks, [*FIRST, EOF], tmp_path / "ranks")
    two = ranks.replace("COUNT(*) OVER (PARTITION BY k ORDER BY v)", "COUNT(*) OVER (PARTITION BY k ORDER BY v DESC)")
    for accepted in ((), ("totals-over-k-2",)):
        with pytest.raises(fp.RestoreRefused, match=r"totals-over-k-2/rows"):
            run(two, [*FIRST, EOF], tmp_path / "ranks", restore=fp.RestoreOptions(accept_empty=accepted))
    run(PAIRS, [*FIRST, EOF], tmp_path / "pairs")  # which only gains rows
    counted = f"SELECT v, COUNT(*) AS n FROM ({PAIRS}) AS p GROUP BY v"
    with pytest.raises(fp.RestoreRefused, match=r"has read rows of 'orders' before.*=empty"):
        run(counted, [*FIRST, EOF], tmp_path / "pairs")
    late = fp.RestoreOptions(accept_empty=("totals-group-by-left_v_8f2f30",))
    found = run(counted, [*FIRST, EOF, Order("b", 1, 9, None), PAUSE, EOF], tmp_path / "pairs", restore=late)
    assert [(row["v"], row["n"]) for row in found if row["$weight"] > 0] == [(9, 2), (7, 1)]


def test_a_column_of_another_type_is_refused() -> None:
    def definition(of: str) -> Any:
        env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
        session, ddl = Session(env), f"CREATE TABLE t (k INT, v {of}) WITH ('connector' = 'datagen')"
        create, query = parse(Text(f"{ddl}; SELECT a.v FROM t AS a LEFT JOIN t AS b ON a.k = b.k"))
        assert isinstance(create, CreateTable)
        assert isinstance(query, Query)
        session.create_table(create)
        edges = session.stream(session.plan(query)).edges
        return edges[0].upstream.spec.states()[0].definition

    assert compare(definition("INT"), definition("INT")) == ("", "")
    refused, _ = compare(definition("INT"), definition("BIGINT"))
    assert refused.startswith("column 'v' of t was INT and would be BIGINT; compute it again")


def test_a_top_n_keeps_the_first_rows_of_each_partition(tmp_path: Path) -> None:
    """Ten of some forty, whatever n is, so it may grow to ten. Epochs are cut at random, and rows come several times."""
    top = "SELECT k, v FROM (SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS n FROM orders) AS o WHERE n <= {}"
    rng = random.Random(5)
    orders = [Order(rng.choice("ab"), 1, rng.randrange(30), None) for _ in range(80)]
    script = [step for order in orders[:60] for step in ([order, PAUSE] if rng.random() < 0.2 else [order])]
    shown: Counter[Any] = Counter()
    for query, more in [(top.format(1), []), (top.format(10), orders[60:70]), (top.format(3), orders[70:])]:
        script += [*more, PAUSE, Eof(savepoint=True)]
        changes, savepoint = completed(query, script, tmp_path)
        for row in changes:
            shown[row["k"], row["v"]] += row["$weight"]
        seen = [step for step in script if isinstance(step, Order)]
        assert +shown == answered(query, seen)
    assert savepoint is not None
    kept: Counter[str] = Counter()
    for entry in SavepointReader.read(savepoint).state("totals-over-k", "rows").rows():
        kept[entry.key] += entry.value
    assert all(10 <= count < 14 for count in kept.values())  # of rows that are there several times, all are kept
    with pytest.raises(fp.RestoreRefused, match=r"only the first 10 rows of each partition were kept, in the order of v DESC"):
        run(top.format(11), script, tmp_path)
    with pytest.raises(fp.RestoreRefused, match=r"only the first 10 rows"):
        run(top.format(2).replace("v DESC", "v"), script, tmp_path)
    only, first = top.format(1).replace("<= 1", "= 1"), top.format(1).replace("n <= 1", "1 >= n AND n > 0")
    more = [*script, Order("a", 1, 5, None), PAUSE, Eof(savepoint=True)]
    assert {row["$weight"] for row in run(only, more, tmp_path)} == {-1}
    with pytest.raises(fp.RestoreRefused, match=r"only the first 1 rows"):
        run(first, more, tmp_path)

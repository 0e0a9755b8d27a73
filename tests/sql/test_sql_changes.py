"""A query is changed again and again: each version goes on from the state, and its changes lead to its own answer.

The process dies in each version, too: before the commit of the epoch with the difference, or later.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sql_results import Order, answered

import forkpoint as fp
from forkpoint.sql.errors import Text
from forkpoint.sql.parser import parse
from forkpoint.sql.statements import Query
from forkpoint.table.session import Session
from forkpoint.testing import ABORT, EOF, PAUSE, TestSource, run_local

CALLS = [
    "COUNT(*)",
    "COUNT(v)",
    "SUM(v)",
    "AVG(x)",
    "MIN(v)",
    "MAX(k)",
    "COUNT(DISTINCT v)",
    "SUM(x)",
    "COUNT(x) FILTER (WHERE v > 0)",
]
HAVING = ["", "HAVING COUNT(*) > 1", "HAVING COUNT(*) < 3 AND COUNT(*) <> 2"]
# The same rows, by other words.
SOURCES = [
    "FROM orders WHERE v IS NULL OR v > -500",
    "FROM (SELECT k, g, x AS x, v FROM orders) AS o WHERE v > -500 OR v IS NULL",
    "FROM (SELECT * FROM orders WHERE v IS NULL OR v > -500) AS o",
]
NESTED = [
    "FROM (SELECT k, g, v, COUNT(*) AS n, SUM(x) AS x FROM orders GROUP BY k, g, v) AS o WHERE n < 3",
    "FROM (SELECT v, g, k, SUM(x) AS x, COUNT(*) AS m FROM orders GROUP BY v, k, g HAVING COUNT(*) < 3) AS o",
]
KEYS = ["GROUP BY k, g", "GROUP BY g, k"]
ROWS = [Order(k, g, v, x) for k in ("a", None) for g in (1, 2) for v in (None, 0, 7, -600) for x in (None, 0.5)]


def write(rng: random.Random, calls: list[str], sources: list[str]) -> str:
    """A query with these aggregates, written anew."""
    columns = [f"{call} AS c{rng.randrange(1000)}_{at}" for at, call in enumerate(rng.sample(calls, len(calls)))]
    items = rng.sample(["k", "g", *columns], len(columns) + 2)
    return f"SELECT {', '.join(items)} {rng.choice(sources)} {rng.choice(KEYS)} {rng.choice(HAVING)}"


Restore = str | fp.RestoreOptions | None


def run(query: str, script: list[Any], state: Path, parallelism: int = 1, restore: Restore = None) -> list[dict[str, Any]]:
    """The changes that one run of the query emits, each with its weight. ``restore``: the savepoint that it starts from."""
    return completed(query, script, state, parallelism, restore)[0]


def completed(
    query: str, script: list[Any], state: Path, parallelism: int = 1, restore: Restore = None
) -> tuple[list[dict[str, Any]], str | None]:
    """The same, and the savepoint that the run ended with."""
    names: list[str] = []

    def job(env: fp.StreamExecutionEnvironment, source: TestSource) -> Any:
        session = Session(env)
        stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "orders", Order).uid("orders")
        session.add_stream("orders", stream)
        (statement,) = parse(Text(query))
        assert isinstance(statement, Query)
        found = session.stream(session.plan(statement), "totals")
        names[:] = [field.name for field in found.get_type().fields]
        return found

    done = run_local(job, script, state_root=str(state), parallelism=parallelism, restore=restore, options={"max_parallelism": 8})
    return [dict(zip(names, row, strict=True)) for row in done.output], done.savepoint


def apply(rows: dict[Any, Any], changes: list[dict[str, Any]], columns: list[str]) -> None:
    for change in changes:
        key = change["k"], change["g"]
        if change["$weight"] < 0:
            del rows[key]  # it must be there
        else:
            rows[key] = tuple(change[name] for name in columns)


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 10**9), st.sampled_from([SOURCES, NESTED]))
def test_each_version_has_its_own_answer(tmp_path_factory: pytest.TempPathFactory, seed: int, sources: list[str]) -> None:
    rng, state = random.Random(seed), tmp_path_factory.mktemp("state")
    calls, script, rows = list(CALLS), [], {}
    seen: list[Order] = []
    for _ in range(4):
        query = write(rng, calls, sources)
        more = rng.choices(ROWS, k=rng.randrange(12))
        cut = rng.randrange(len(more) + 1)
        script = [*script, *rng.choice([[], [ABORT]]), *more[:cut], rng.choice([PAUSE, ABORT]), *more[cut:], PAUSE, EOF]
        changes = run(query, script, state, rng.choice([1, 3]))
        seen += more
        columns = [part.split(" AS ")[-1] for part in query[len("SELECT ") : query.index(" FROM")].split(", ")]
        apply(rows, changes, columns)
        assert Counter(rows.values()) == answered(query, seen), query
        calls = rng.sample(calls, rng.randrange(1, len(calls) + 1))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("SELECT k, MAX(v) FROM orders GROUP BY k", "MAX(v) cannot be computed from the saved COUNT(*), SUM(v)"),
        ("SELECT k, COUNT(DISTINCT v) FROM orders GROUP BY k", "COUNT(DISTINCT v) cannot be computed from the saved"),
        (
            "SELECT k, SUM(v) FROM orders WHERE v > 0 GROUP BY k",
            "its rows came from orders and would come from orders WHERE (v > 0)",
        ),
    ],
)
def test_what_the_state_does_not_have_is_refused(changed: str, message: str, tmp_path: Path) -> None:
    script = [Order("a", 1, 2, 0.5), PAUSE, EOF]
    run("SELECT k, COUNT(*), SUM(v) FROM orders GROUP BY k", script, tmp_path)
    with pytest.raises(fp.RestoreRefused, match=message.replace("(", r"\(").replace(")", r"\)").replace("*", r"\*")):
        run(changed, script, tmp_path)


def test_an_aggregate_that_was_removed_does_not_come_back_with_a_gap(tmp_path: Path) -> None:
    both, one = (f"SELECT k, {calls} FROM orders GROUP BY k" for calls in ("COUNT(*), SUM(v)", "COUNT(*)"))
    script: list[Any] = [Order("a", 1, 300, None), PAUSE, EOF]
    run(both, script, tmp_path)
    script += [Order("a", 1, 100, None), PAUSE, EOF]
    run(one, script, tmp_path)
    with pytest.raises(fp.RestoreRefused, match=r"SUM\(v\) cannot be computed"):
        run(both, [*script, Order("a", 1, 1, None), PAUSE, EOF], tmp_path)

"""Joins of windows, and OVER in windows: DuckDB's answer over the rows in time, once, and no state of ended windows."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sql_results import interrupted
from test_sql_windows import BOUNDS, BY_WINDOW, EPOCH, HOP, TUMBLE, Reading, answered, hop, milliseconds, readings, run, tumble

import forkpoint as fp
from forkpoint.relational.definitions.comparison import compare
from forkpoint.relational.plan import Plan
from forkpoint.sql.errors import Text
from forkpoint.sql.parser import parse
from forkpoint.sql.statements import Query
from forkpoint.state_processor import SavepointReader
from forkpoint.table.explanation import explained
from forkpoint.table.session import Session
from forkpoint.testing import EOF, PAUSE, Eof

ROWS = (
    f"WITH l AS (SELECT {BOUNDS}, k, v FROM {HOP} WHERE v > 1), "
    f"r AS (SELECT {BOUNDS}, window_time, k, v FROM {HOP} WHERE v < 7 OR v IS NULL) "
)
DUCK_ROWS = "WITH l AS (SELECT * FROM windows WHERE v > 1), r AS (SELECT * FROM windows WHERE v < 7 OR v IS NULL) "
SAME = "l.s = r.s AND l.e = r.e"
TOP = "ROW_NUMBER() OVER (PARTITION BY {} ORDER BY v DESC NULLS LAST, k NULLS FIRST) AS n"
HOP_KEYS = "window_start, window_end, k"

# The windows, the query, and DuckDB's over the rows in time.
QUERIES: list[tuple[Any, str, str]] = [
    *(
        (hop, ROWS + query, DUCK_ROWS + query.replace("LEFT SEMI", "SEMI").replace("LEFT ANTI", "ANTI"))
        for query in (
            f"SELECT l.s, l.k, l.v, r.v FROM l JOIN r ON {SAME} AND l.k = r.k",
            f"SELECT l.s, l.k, l.v, r.v FROM l LEFT JOIN r ON {SAME} AND l.k = r.k AND l.v < r.v",
            f"SELECT l.v, r.e, r.k, r.v FROM l RIGHT JOIN r ON l.k = r.k AND {SAME}",
            f"SELECT l.s, l.v, r.s, r.v FROM l FULL JOIN r ON {SAME} AND l.v = r.v",
            f"SELECT l.s, l.v FROM l LEFT SEMI JOIN r ON {SAME} AND l.v > r.v",
            f"SELECT l.s, l.v FROM l LEFT ANTI JOIN r ON {SAME} AND l.k = r.k",
            "SELECT l.s, l.v FROM l WHERE l.k IN (SELECT k FROM r WHERE l.s = r.s AND l.e = r.e)",
            f"SELECT l.s, l.e, COUNT(*), SUM(r.v) FROM l LEFT JOIN r ON {SAME} AND l.k = r.k GROUP BY l.s, l.e",
        )
    ),
    (
        hop,
        f"SELECT s, k, v, n FROM (SELECT {BOUNDS}, k, v, {TOP.format(HOP_KEYS)} FROM {HOP}) AS t WHERE n <= 2",
        f"SELECT s, k, v, n FROM (SELECT *, {TOP.format('s, e, k')} FROM windows) WHERE n <= 2",
    ),
    (
        tumble,
        f"WITH c AS (SELECT {BOUNDS}, k, COUNT(*) AS v FROM {TUMBLE} {BY_WINDOW}, k) "
        f"SELECT s, k, v FROM (SELECT *, {TOP.format('s, e')} FROM c) AS t WHERE n = 1",
        f"WITH c AS (SELECT s, e, k, COUNT(*) AS v FROM windows GROUP BY s, e, k) "
        f"SELECT s, k, v FROM (SELECT *, {TOP.format('s, e')} FROM c) WHERE n = 1",
    ),
    (
        hop,
        f"SELECT s, SUM(v), COUNT(*) FROM (SELECT {BOUNDS}, v, {TOP.format(HOP_KEYS)} FROM {HOP}) AS t WHERE n < 3 GROUP BY s, e",
        f"SELECT s, SUM(v), COUNT(*) FROM (SELECT *, {TOP.format('s, e, k')} FROM windows) WHERE n < 3 GROUP BY s, e",
    ),
    (
        tumble,
        f"SELECT {BOUNDS}, v, SUM(v) OVER w, RANK() OVER (PARTITION BY window_start, window_end ORDER BY v NULLS FIRST) "
        f"FROM {TUMBLE} WINDOW w AS (PARTITION BY window_start, window_end)",
        "SELECT s, e, v, SUM(v) OVER (PARTITION BY s), RANK() OVER (PARTITION BY s ORDER BY v NULLS FIRST) FROM windows",
    ),
]


@settings(max_examples=2, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_rows_of_windows_are_those_in_time(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    rng, state = random.Random(seed), tmp_path_factory.mktemp("state")
    rows = readings(rng, rng.randrange(60))
    script = interrupted(rng, rows)
    results: list[Counter[Any]] = [Counter() for _ in QUERIES]
    for _ in range(script.count(EOF) + 1):
        found, _ = run([query for _, query, _ in QUERIES], script, state, rng.choice([1, 3]))
        for result, changes in zip(results, found, strict=True):
            assert min(changes.values(), default=1) > 0
            result.update(changes)
    for result, (windows_of, query, wanted) in zip(results, QUERIES, strict=True):
        assert result == answered(rows, windows_of, wanted)[0], query


def session_with_readings() -> Session:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    session, schema = Session(env), fp.Schema.new_builder().watermark("ts", "ts - INTERVAL '4' SECOND").build()
    session.add_stream("readings", env.from_collection([], type_info=Reading), schema)
    return session


def plan_of(query: str) -> Plan:
    (statement,) = parse(Text(query))
    assert isinstance(statement, Query)
    return session_with_readings().plan(statement)


def test_event_time_bounds_the_state_of_each_query() -> None:
    for _, query, _ in QUERIES:
        text = explained(plan_of(query))
        assert "keeps" in text
        assert "without limit" not in text
        assert "removes" not in text


def test_nothing_is_kept_of_ended_windows(tmp_path: Path) -> None:
    join, top = (next(query for _, query, _ in QUERIES if part in query) for part in ("LEFT JOIN", "n <= 2"))
    rows = [Reading("ab"[n % 2], n % 9, EPOCH + timedelta(seconds=n)) for n in range(100)]
    run([join, top], [*rows[:50], PAUSE, *rows[50:], Eof(savepoint=True), rows[-1]], tmp_path, 2)
    is_open = [(row, end) for row in rows for _, end in hop(milliseconds(row)) if end - 1 > 95_000]
    counts = {(state.uid, state.name): state.count for state in SavepointReader.find(tmp_path, "test").states}
    over = "q1-over-window_end-window_start-k"
    assert counts["q0-join-readings", "left"] == sum(row.v > 1 for row, _ in is_open)
    assert counts["q0-join-readings", "right"] == sum(row.v < 7 for row, _ in is_open)
    assert counts[over, "rows"] == len(is_open)
    assert counts[over, "timers"] == len({(row.k, end) for row, end in is_open})


NUMBERED = f"SELECT s, v, n FROM (SELECT {BOUNDS}, k, v, {TOP.format(HOP_KEYS)} FROM {HOP}) AS t"


def test_a_changed_query_has_its_own_result_in_open_windows(tmp_path: Path) -> None:
    rows = readings(random.Random(11), 80)
    first, _ = run([f"{NUMBERED} WHERE n <= 1"], [*rows[:40], PAUSE, EOF, *rows[40:]], tmp_path, 1)
    # Without v: rows of both versions are in one state.
    changed = f"{NUMBERED.replace('SELECT s, v, n', 'SELECT k, n, s').replace('v DESC NULLS LAST, ', '')} WHERE n <= 3"
    second, _ = run([changed], [*rows[:40], PAUSE, EOF, *rows[40:42], PAUSE, *rows[42:]], tmp_path, 3)
    watermark = max(map(milliseconds, rows[:40])) - 4000
    wanted = f"SELECT k, n, s, e FROM (SELECT *, {TOP.format('s, e, k')} FROM windows) WHERE n <= 3"
    ends = timedelta(milliseconds=watermark + 1) + EPOCH.replace(tzinfo=None)
    open_ones = Counter({row[:3]: count for row, count in answered(rows, hop, wanted)[0].items() if row[3] > ends})
    assert first[0]
    assert second[0] == open_ones
    assert len(open_ones) > 5


@pytest.mark.parametrize(
    ("query", "field", "message"),
    [
        (QUERIES[0][1], "within", "its rows were kept without limit and would be kept in HOP(5 seconds, 15 seconds); compute it"),
        (NUMBERED, "until", "its rows were kept without limit and would be kept until their windows end; compute it again from"),
    ],
)
def test_state_without_bounds_is_refused(query: str, field: str, message: str) -> None:
    """As it was saved before such queries had bounds."""
    definition = session_with_readings().stream(plan_of(query)).edges[0].upstream.spec.states()[0].definition
    unbounded = {**definition, "node": {name: part for name, part in definition["node"].items() if name != field}}
    assert compare(definition, definition) == ("", "")
    assert unbounded != definition
    assert compare(unbounded, definition)[0].startswith(message)

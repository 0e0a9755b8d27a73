"""State with a time to live: what queries show once groups, rows and partitions have expired, against a model of each."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sql_results import Order

import forkpoint as fp
from forkpoint.sql.errors import Text
from forkpoint.sql.parser import parse
from forkpoint.sql.statements import Query
from forkpoint.state_processor import SavepointReader
from forkpoint.table.session import Session
from forkpoint.table.statements import execute
from forkpoint.testing import ABORT, PAUSE, Advance, Eof, ManualClock, TestSource, run_local

TTL_S = 10
GROUPS = "SELECT k, COUNT(*) AS n, COUNT(DISTINCT v) AS d, MIN(v) AS least FROM orders GROUP BY k"
PLACES = "SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS place FROM orders"
PAIRS = "SELECT o.v AS a, p.v AS b FROM orders AS o JOIN orders AS p ON o.k = p.k AND o.g < p.g"
NESTED = f"SELECT n, COUNT(*) AS groups FROM ({GROUPS}) GROUP BY n"


def changes_of(
    queries: dict[str, str],
    script: list[Any],
    *,
    ttl: str = f"{TTL_S} s",
    state: Path | None = None,
    clock: ManualClock | None = None,
) -> dict[str, Counter[Any]]:
    """What remains of the changes of each query's result."""
    widths: dict[str, int] = {}

    def job(env: fp.StreamExecutionEnvironment, source: TestSource) -> Any:
        session = Session(env)
        session.set("table.exec.state.ttl", ttl)
        stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "orders", Order).uid("orders")
        session.add_stream("orders", stream)
        found = {}
        for name, query in queries.items():
            (statement,) = parse(Text(query))
            assert isinstance(statement, Query)
            plan = session.plan(statement)
            widths[name] = len(plan.schema)
            found[name] = session.stream(plan, name)
        return found

    done = run_local(
        job,
        script,
        clock=clock or ManualClock(0),
        state_root=None if state is None else str(state),
        options={"max_parallelism": 8},
    )
    return {name: remaining(done.outputs[name], width) for name, width in widths.items()}


def remaining(changes: list[Any], width: int) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for change in changes:
        found[tuple(change)[:width]] += 1 if len(change) == width else change[width]
    return Counter({row: count for row, count in found.items() if count})


def random_script(rng: random.Random) -> tuple[list[Any], list[tuple[int, Order]]]:
    """Rows at times of the clock, between which the process dies now and then."""
    script: list[Any] = []
    rows = []
    now = 0
    for at in range(30):
        if rng.random() < 0.3:
            seconds = rng.choice([1, 4, TTL_S - 1, TTL_S, 3 * TTL_S])
            now += seconds
            script.append(Advance(seconds * 1000))
        script += rng.choice([[], [], [PAUSE], [ABORT]])
        row = Order(rng.choice("abc"), at, rng.randrange(4), None)
        script.append(row)
        rows.append((now, row))
    return script, rows


def lives(rows: list[tuple[int, Order]]) -> Iterator[list[Order]]:
    """The rows of each key between two expiries."""
    open_lives: dict[Any, tuple[int, list[Order]]] = {}
    for now, row in rows:
        last, life = open_lives.get(row.k, (now, []))
        if life and last + TTL_S <= now:
            yield life
            life = []
        open_lives[row.k] = now, [*life, row]
    yield from (life for _, life in open_lives.values())


def test_what_has_expired_stays_as_it_was_shown_and_later_rows_start_anew() -> None:
    script, rows = random_script(random.Random(1))
    found = changes_of({"groups": GROUPS, "places": PLACES, "pairs": PAIRS, "nested": NESTED}, script)
    groups, places = Counter[Any](), Counter[Any]()
    for life in lives(rows):
        values = [row.v for row in life]
        groups[life[0].k, len(life), len(set(values)), min(values)] += 1
        places.update((life[0].k, value, at + 1) for at, value in enumerate(sorted(values)))
    pairs = Counter(
        (one.v, other.v)
        for first, one in rows
        for second, other in rows
        if one.k == other.k and one.g < other.g and second < first + TTL_S
    )
    assert (found["groups"], found["places"], found["pairs"]) == (groups, places, pairs)


def test_a_changed_time_to_live_keeps_state_and_expired_state_is_removed(tmp_path: Path) -> None:
    def run(query: str, ttl: str) -> Counter[Any]:
        return changes_of({"totals": query, "pairs": PAIRS}, script, ttl=ttl, state=tmp_path, clock=clock)["totals"]

    def sizes() -> dict[str, int]:
        return {each.name: each.count for each in SavepointReader.find(tmp_path, "test").states if each.uid.startswith("totals-")}

    once, again = (f"SELECT k, {calls} FROM orders GROUP BY k" for calls in ("COUNT(*), COUNT(DISTINCT v)", "COUNT(DISTINCT v)"))
    clock = ManualClock(0)
    script: list[Any] = [Order("a", 1, 1, None), Order("b", 2, 2, None), PAUSE, Eof(savepoint=True)]
    assert run(once, "0 s") == {("a", 1, 1): 1, ("b", 1, 1): 1}
    script += [Advance(8000), Order("a", 3, 7, None), PAUSE, Eof(savepoint=True)]
    changed = run(again, "10 s")  # what it had without a limit begins to age
    assert changed["a", 2] == 1
    assert sizes() == {"groups": 2, "values_v": 3}
    script += [Advance(4000), Order("b", 4, 7, None), PAUSE, Eof(savepoint=True)]
    assert run(again, "10 s") == {("b", 1): 1}  # a group that begins anew
    script += [Advance(7000), Order("c", 5, 7, None), PAUSE, ABORT, PAUSE, Eof(savepoint=True)]
    assert run(again, "10 s") == {("c", 1): 1}
    assert sizes() == {"groups": 2, "values_v": 2}


def test_settings() -> None:
    tables = fp.StreamTableEnvironment.create(fp.StreamExecutionEnvironment.get_execution_environment())
    config = tables.get_config()
    config.set_idle_state_retention(timedelta(hours=36))
    assert config.get_idle_state_retention() == timedelta(hours=36)
    tables.execute_sql("CREATE TABLE t (k INT, v INT) WITH ('connector' = 'datagen')")
    plan = tables.explain_sql("SELECT k, SUM(v) FROM t GROUP BY k")
    assert "keeps a row for each group, for 36 hours after the last change" in plan
    tables.execute_sql("RESET 'table.exec.state.ttl'")
    assert config.get_idle_state_retention() == timedelta(0)


def test_hints_say_how_long_each_state_is_kept_and_name_operators(tmp_path: Path) -> None:
    queries = {
        "pairs": PAIRS.replace("SELECT", f"SELECT /*+ STATE_TTL('p' = '{TTL_S} s'), UID('pairs') */"),
        "groups": "SELECT /*+ UID('named') STATE_TTL('orders' = '0 s') */ k, COUNT(*) AS n FROM orders GROUP BY k",
        "all": "SELECT n, COUNT(*) AS m FROM "
        "(SELECT /*+ STATE_TTL('orders' = '10 s') */ k, COUNT(*) AS n FROM orders GROUP BY k) GROUP BY n",
    }
    rows = [Order("a", 1, 1, None), Order("a", 2, 2, None), Order("b", 2, 3, None)]
    script = [*rows, Advance(15_000), Order("a", 0, 4, None), Order("a", 3, 5, None), PAUSE, Eof(savepoint=True)]
    found = changes_of(queries, script, ttl="0 s", state=tmp_path)
    assert found["pairs"] == {(1, 2): 1, (4, 5): 1, (1, 5): 1, (2, 5): 1}
    assert found["groups"] == {("a", 4): 1, ("b", 1): 1}
    assert found["all"] == {(2, 2): 1, (1, 1): 1}  # the group of before is not taken back
    assert {"pairs-pairs", "groups-named"} <= {each.uid for each in SavepointReader.find(tmp_path, "test").states}


def test_options_of_a_hint(tmp_path: Path) -> None:
    tables = fp.StreamTableEnvironment.create(
        fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    )
    tables.execute_sql("CREATE TABLE t (k INT) WITH ('connector' = 'datagen', 'number-of-rows' = '5')")
    query = "SELECT 'few', k FROM t /*+ OPTIONS('number-of-rows' = '2') */ AS u UNION ALL SELECT 'all', k FROM t"
    assert Counter(row[0] for row in tables.execute_sql(query).collect()) == {"few": 2, "all": 5}
    tables.execute_sql(
        f"CREATE TABLE files (k INT) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/a', 'format' = 'json')"
    )
    tables.execute_sql(f"INSERT INTO files /*+ OPTIONS('path' = '{tmp_path}/b') */ VALUES (7)").wait()
    assert not list(tmp_path.glob("a/*"))
    assert [path.read_text() for path in tmp_path.glob("b/**/*") if path.is_file()] == ['{"k":7}\n']


def test_what_is_taken_back_after_it_has_expired_changes_nothing() -> None:
    groups = "SELECT /*+ STATE_TTL('orders' = '0 s') */ k, COUNT(*) AS n, SUM(v) AS s FROM orders GROUP BY k"
    queries = {
        "totals": f"SELECT n, COUNT(*) AS m, SUM(s) AS s, COUNT(DISTINCT k) AS d, MAX(k) AS k FROM ({groups}) GROUP BY n",
        "pairs": f"SELECT a.n, b.n AS other FROM ({groups}) AS a JOIN (VALUES (1), (2), (3)) AS b (n) ON a.n = b.n",
    }
    a, b = Order("a", 1, 3, None), Order("b", 2, 4, None)
    script = [a, b, PAUSE, Advance(15_000), a, PAUSE, ABORT, b, a]
    found = changes_of(queries, script)
    assert found["totals"] == {(1, 2, 7, 2, "b"): 1, (2, 1, 8, 1, "b"): 1, (3, 1, 9, 1, "a"): 1}
    assert found["pairs"] == {(1, 1): 2}


ENDLESS = """
CREATE TABLE events (k STRING, v INT, ts AS LOCALTIMESTAMP, WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen');
CREATE TABLE known (k STRING, v INT) WITH ('connector' = 'datagen', 'number-of-rows' = '3');
CREATE TABLE out (k STRING, n BIGINT) WITH ('connector' = 'blackhole');
"""
COUNTED = "SELECT k, COUNT(*) FROM events GROUP BY k"
JOINED = "SELECT {} a.k, a.v FROM events AS a JOIN known AS b ON a.k = b.k"


@pytest.mark.parametrize(
    ("statements", "operators"),
    [
        (f"INSERT INTO out {COUNTED}", "out-group-by-k"),
        (
            f"INSERT INTO out SELECT a.k, n FROM ({COUNTED}) AS a (k, n) JOIN events AS b ON a.k = b.k",
            "out-group-by-k, out-join-events",
        ),
        ("INSERT INTO out SELECT '', COUNT(DISTINCT k) FROM events", "out-aggregate"),
        ("INSERT INTO out SELECT k, v FROM events ORDER BY v LIMIT 1", "out-over"),
        ("INSERT INTO out " + JOINED.format(""), "out-join-events-known"),
        ("INSERT INTO out " + JOINED.format("/*+ STATE_TTL('a' = '1 d') */"), ""),
        ("INSERT INTO out " + JOINED.format("/*+ STATE_TTL('a' = '0 s') */"), ""),
        (f"SET 'table.exec.state.ttl' = '1 d'; INSERT INTO out {COUNTED}", ""),
        (f"SET 'table.exec.state.ttl' = '0 s'; INSERT INTO out {COUNTED}", ""),
        (f"INSERT INTO out {COUNTED.replace('events', 'known')}", ""),
        ("INSERT INTO out SELECT '', COUNT(*) + MAX(v) FROM events", ""),
        ("INSERT INTO out SELECT k, COUNT(*) FROM events GROUP BY k, TUMBLE(ts, INTERVAL '1' DAY)", ""),
        (f"EXPLAIN INSERT INTO out {COUNTED}", ""),
    ],
)
def test_state_without_limit_of_endless_input_is_told_once(
    statements: str, operators: str, caplog: pytest.LogCaptureFixture
) -> None:
    session, source = Session(fp.StreamExecutionEnvironment.get_execution_environment()), Text(ENDLESS + statements)
    for statement in parse(source):
        execute(session, statement, source)
    told = [record.getMessage() for record in caplog.records]
    before, after = (
        "INSERT INTO out keeps state that grows as long as its input goes on, in ",
        ": bound it by windows or event time, ",
    )
    assert told == ([f"{before}{operators}{after}or SET 'table.exec.state.ttl' (to '0 s' if that is meant)"] if operators else [])

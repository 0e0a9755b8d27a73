"""Process functions in queries: rows of a table get a program's state and timers, and what they emit is a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from test_sql_user_functions import LOCAL, folded

import forkpoint as fp
from forkpoint.sql.errors import SqlError, Text
from forkpoint.sql.parser import parse
from forkpoint.sql.statements import Query
from forkpoint.table.session import Session
from forkpoint.testing import ABORT, EOF, PAUSE, TestSource, run_local


class Reading(NamedTuple):
    k: str | None
    v: int
    ts: fp.Instant


def reading(k: str | None, v: int) -> Reading:
    return Reading(k, v, datetime.fromtimestamp(v, UTC))


class Above(fp.KeyedProcessFunction):
    """Counts the rows of a key above a limit, and says when a key has been quiet for 5 seconds."""

    counts = fp.ValueStateDescriptor("counts", int)
    last = fp.ValueStateDescriptor("last", int)

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit

    def process_element(self, value: fp.Row, ctx: Any) -> Iterator[Any]:
        if value.v > self.limit:
            self.counts.update((self.counts.value() or 0) + 1)
            yield self.counts.value(), "above"
        self.last.update(ctx.timestamp())
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 5000)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        if self.last.value() + 5000 == timestamp:
            yield fp.Row(self.counts.value(), "quiet")


class Twice(fp.ProcessFunction):
    def process_element(self, value: fp.Row, ctx: Any) -> Any:
        return [value.w, value.w * 2]


FUNCTIONS: dict[str, Any] = {
    "above": fp.ptf(Above, result_type="ROW<n BIGINT, what STRING>"),
    "counted": fp.ptf(Above(), result_type="ROW<n BIGINT, what STRING>"),
    "twice": fp.ptf(Twice(), result_type="BIGINT"),
}
SCHEMA = fp.Schema.new_builder().watermark("ts", "ts - INTERVAL '1' SECOND").build()
ROWS = [
    reading("a", 1),
    reading(None, 2),
    reading("a", 3),
    reading("b", 4),
    reading("a", 10),
    reading(None, 12),
    reading("b", 20),
]


def tables_of(rows: list[Any], epoch_rows: int = 100, parallelism: int = 1) -> fp.StreamTableEnvironment:
    env = fp.StreamExecutionEnvironment.get_execution_environment(LOCAL)
    env.set_parallelism(parallelism)
    env.set_max_epoch_rows(epoch_rows)
    tables = fp.StreamTableEnvironment.create(env)
    tables.create_temporary_view("readings", env.from_collection(rows, Reading), SCHEMA)
    for name, function in FUNCTIONS.items():
        tables.create_temporary_function(name, function)
    return tables


def at(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


EXPECTED: dict[str, Counter[Any]] = {
    "SELECT * FROM above(TABLE readings PARTITION BY k, on_time => DESCRIPTOR(ts), uid => 'above')": Counter([
        ("a", 1, "above", at(1)), (None, 1, "above", at(2)), ("a", 2, "above", at(3)), ("b", 1, "above", at(4)),
        (None, 1, "quiet", at(7)), ("b", 1, "quiet", at(9)), ("a", 3, "above", at(10)),
        (None, 2, "above", at(12)), ("a", 3, "quiet", at(15)), (None, 2, "quiet", at(17)), ("b", 2, "above", at(20)),
        ("b", 2, "quiet", at(25)),
    ]),
    "SELECT k, n FROM above(input => TABLE readings PARTITION BY (k), `limit` => 3) WHERE what = 'above' AND n < 3": Counter([
        ("b", 1), ("b", 2), ("a", 1), (None, 1),
    ]),
    # Results have event time, so that windows end.
    "SELECT window_start, COUNT(*), MAX(n) FROM TABLE(TUMBLE(TABLE (SELECT * FROM counted(TABLE readings PARTITION BY k, "
    "on_time => DESCRIPTOR(ts)) WHERE what = 'above'), DESCRIPTOR(rowtime), INTERVAL '10' SECOND)) "
    "GROUP BY window_start, window_end":
    Counter([(at(0).replace(tzinfo=None), 4, 2), (at(10).replace(tzinfo=None), 2, 3), (at(20).replace(tzinfo=None), 1, 2)]),
    # One process for both sides.
    "WITH c AS (SELECT * FROM counted(TABLE readings PARTITION BY k)) "
    "SELECT one.k, other.what FROM c AS one JOIN c AS other ON one.k = other.k AND one.n = other.n "
    "WHERE one.k = 'b' AND one.n = 1":
    Counter({("b", "above"): 2, ("b", "quiet"): 2}),
    "SELECT k, v, SUM(n) FROM counted(TABLE (SELECT k, v, ts FROM readings WHERE k = 'a') PARTITION BY (k, v)) "
    "GROUP BY k, v": Counter([
        ("a", 1, 2), ("a", 3, 2), ("a", 10, 2),
    ]),
    "SELECT w, COUNT(*) FROM counted(TABLE (SELECT NULLIF(v, 2) AS w, v, ts FROM readings WHERE v < 4) PARTITION BY w) "
    "WHERE what = 'above' GROUP BY w": Counter([(1, 1), (None, 1), (3, 1)]),
    "SELECT f0 FROM TABLE(twice(TABLE (SELECT v + 1 AS w FROM readings WHERE v < 3))) AS t": Counter([(2,), (4,), (3,), (6,)]),
    "SELECT t.f0, r.v FROM twice((SELECT v AS w FROM readings)) AS t JOIN readings AS r ON t.f0 = r.v WHERE r.v > 10": Counter([
        (12, 12), (20, 20), (20, 20),
    ]),
}  # fmt: skip


@pytest.mark.parametrize("query", EXPECTED)
@pytest.mark.parametrize(("epoch_rows", "parallelism"), [(2, 2), (100, 1)])
def test_process_functions(query: str, epoch_rows: int, parallelism: int) -> None:
    assert folded(tables_of(ROWS, epoch_rows, parallelism), query) == EXPECTED[query]


def run(query: str, script: list[Any], state: Path) -> list[Any]:
    def job(env: fp.StreamExecutionEnvironment, source: TestSource) -> Any:
        session = Session(env)
        stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "readings", Reading).uid("readings")
        session.add_stream("readings", stream, SCHEMA)
        for name, function in FUNCTIONS.items():
            session.create_function(name, function, system=False)
        (statement,) = parse(Text(query))
        assert isinstance(statement, Query)
        return session.stream(session.plan(statement), "totals")

    return [tuple(row) for row in run_local(job, script, state_root=str(state), parallelism=1).output]


def test_state_and_timers_belong_to_the_uid(tmp_path: Path) -> None:
    """The rest of the query may change, and the process may die."""
    script: list[Any] = [reading("a", 1), PAUSE, ABORT, reading("a", 2), reading("b", 3), PAUSE, EOF]
    query = "SELECT k, n, what FROM above(TABLE readings PARTITION BY k, uid => 'mine') WHERE what = 'above'"
    assert run(query, script, tmp_path) == [("a", 1, "above"), ("a", 2, "above"), ("b", 1, "above")]
    script += [reading("a", 12), PAUSE, reading("a", 13), PAUSE, EOF]
    changed = "SELECT what, k, n + 1 FROM above(`limit` => 5, input => TABLE readings PARTITION BY k, uid => 'mine') WHERE n > 1"
    with pytest.raises(SqlError, match="the first argument of above is a table"):
        run(changed, script, tmp_path)
    changed = "SELECT what, k, n + 1 FROM above(TABLE readings PARTITION BY k, `limit` => 5, uid => 'mine') WHERE n <> 3"
    assert run(changed, script, tmp_path) == [("quiet", "b", 2), ("above", "a", 5)]
    with pytest.raises(fp.RestoreRefused, match="'mine'"):
        run("SELECT k FROM above(TABLE readings PARTITION BY k, uid => 'other')", script, tmp_path)


@pytest.mark.parametrize(
    ("query", "mark", "message"),
    [
        ("SELECT 1 FROM above(readings)", 14, "the first argument of above is a table: above(TABLE t PARTITION BY k"),
        ("SELECT 1 FROM above(TABLE readings)", 14, "above is a KeyedProcessFunction; add PARTITION BY: above(TABLE t PARTITION"),
        ("SELECT 1 FROM twice(TABLE readings PARTITION BY k)", 14, "twice is a ProcessFunction; leave out PARTITION BY"),
        ("SELECT 1 FROM above(TABLE readings PARTITION BY kk)", 48, "there is no column 'kk'; did you mean 'k'?"),
        ("SELECT 1 FROM above(TABLE readings PARTITION BY k, 5)", 51, "further arguments of above have names: above(TABLE t"),
        ("SELECT 1 FROM above(TABLE readings PARTITION BY k, size => 5)", 14, "above: got an unexpected keyword argument 'size'"),
        ("SELECT 1 FROM counted(TABLE readings PARTITION BY k, a => 5)", 14, "register its class, not an instance, to pass"),
        ("SELECT 1 FROM above(TABLE readings PARTITION BY k, `limit` => k)", 62, "argument 'limit' is a constant"),
        ("SELECT 1 FROM above(TABLE readings PARTITION BY k, uid => 5)", 14, "uid is a text: uid => 'x'"),
        ("SELECT 1 FROM above(TABLE readings PARTITION BY k, on_time => ts)", 14, "on_time is given as DESCRIPTOR(column)"),
        ("SELECT 1 FROM above(TABLE readings PARTITION BY k, on_time => DESCRIPTOR(v))", 73, "column 'v' is not event time: the"),
        ("SELECT 1 FROM above(TABLE readings PARTITION BY k, on_time => DESCRIPTOR(w))", 73, "there is no column 'w'"),
        ("SELECT 1 FROM twice(TABLE (SELECT SUM(v) AS w FROM readings))", 14, "twice takes rows that are only added, but its"),
        ("SELECT above(v) FROM readings", 7, "above is a process function; write it in FROM: above(TABLE t PARTITION BY k)"),
        ("SELECT 1 FROM above(TABLE reading PARTITION BY k)", 26, "there is no table 'reading'; did you mean 'readings'?"),
        ("SELECT 1 FROM counted(TABLE (SELECT k AS n, v, ts FROM readings) PARTITION BY n)", 14, "counted has two columns 'n'"),
    ],
)  # fmt: skip
def test_a_mistake_is_shown_where_it_is(query: str, mark: int, message: str) -> None:
    with pytest.raises(SqlError) as error:
        tables_of([]).execute_sql(query)
    assert message in str(error.value)
    assert str(error.value).endswith(f"\n  {' ' * mark}^")


def test_other_mistakes() -> None:
    tables = tables_of(ROWS)
    both = (
        "SELECT k FROM counted(TABLE readings PARTITION BY k) UNION ALL SELECT k FROM counted(TABLE readings PARTITION BY (k, v))"
    )
    with pytest.raises(
        fp.ConfigError, match="two calls of process functions have the uid 'counted'; give one another: uid => '…'"
    ):
        list(tables.execute_sql(both).collect())
    tables.create_temporary_function("wide", fp.ptf(Twice(), result_type="ROW<a BIGINT, b BIGINT>"))
    with pytest.raises(fp.UserFunctionError, match="Twice emitted 1, but its result type has 2 columns"):
        list(tables.execute_sql("SELECT * FROM wide(TABLE (SELECT v AS w FROM readings))").collect())
    with pytest.raises(fp.ConfigError, match="ptf 'Twice': it has no result type; give result_type, as in 'ROW"):
        tables.create_temporary_function("t", fp.ptf(Twice()))
    with pytest.raises(fp.ConfigError, match=r"ptf: <function .* is neither a function nor a KeyedProcessFunction"):
        fp.ptf(lambda row: row, result_type="INT")

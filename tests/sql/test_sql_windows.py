"""Queries over windows of event time: DuckDB's answer over the rows in time, wherever epochs and the process end."""

from __future__ import annotations

import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sql_results import interrupted

import forkpoint as fp
from forkpoint.relational.changes import WEIGHT
from forkpoint.sql.errors import Text
from forkpoint.sql.parser import parse
from forkpoint.sql.statements import Query
from forkpoint.state_processor import SavepointReader
from forkpoint.table.api.environment import execute
from forkpoint.table.explanation import explained
from forkpoint.table.session import Session
from forkpoint.testing import EOF, PAUSE, Advance, Eof, LocalRun, TestSource, run_local
from programs import ENVIRONMENT, Python

DELAY_MS = 4000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Reading(NamedTuple):
    k: str | None
    v: int | None
    ts: fp.Instant


class InWindow(NamedTuple):
    row: Reading
    start: int
    end: int
    in_time: bool


def tumble(ms: int) -> Iterator[tuple[int, int]]:
    start = ms // 10_000 * 10_000
    yield start, start + 10_000


def shifted(ms: int) -> Iterator[tuple[int, int]]:
    start = (ms + 3000) // 10_000 * 10_000 - 3000
    yield start, start + 10_000


def hop(ms: int) -> Iterator[tuple[int, int]]:
    for before in range(3):
        start = (ms // 5000 - before) * 5000
        yield start, start + 15_000


def shifted_hop(ms: int) -> Iterator[tuple[int, int]]:
    last = (ms - 2000) // 4000 * 4000 + 2000
    yield from ((last - before, last - before + 12_000) for before in (0, 4000, 8000))


def cumulate(ms: int) -> Iterator[tuple[int, int]]:
    start = (ms - 1000) // 12_000 * 12_000 + 1000
    for size in (4000, 8000, 12_000):
        if ms < start + size:
            yield start, start + size


def milliseconds(row: Reading) -> int:
    return (row.ts - EPOCH) // timedelta(milliseconds=1)


def in_windows(rows: list[Reading], windows_of: Callable[[int], Iterator[tuple[int, int]]]) -> tuple[list[InWindow], int]:
    found: list[InWindow] = []
    late, watermark = 0, -(2**62)
    for row in rows:
        ms = milliseconds(row)
        windows = [InWindow(row, start, end, end - 1 > watermark) for start, end in windows_of(ms)]
        found += windows
        late += not any(window.in_time for window in windows)
        watermark = max(watermark, ms - DELAY_MS)
    return found, late


def in_sessions(rows: list[Reading], key: Callable[[Reading], Any]) -> tuple[list[InWindow], int]:
    """Sessions with a gap of 3 seconds, each with its bounds and rows."""
    late, watermark = 0, -(2**62)
    every: list[tuple[Any, int, int, list[Reading]]] = []
    for row in rows:
        ms = milliseconds(row)
        start, end, members = ms, ms + 3000, [row]
        met = [s for s in every if s[0] == key(row) and s[2] - 1 > watermark and s[1] <= end and start <= s[2]]
        if met or end - 1 > watermark:
            every = [s for s in every if s not in met]
            start, end = min([start, *(s[1] for s in met)]), max([end, *(s[2] for s in met)])
            every.append((key(row), start, end, [*members, *(each for s in met for each in s[3])]))
        else:
            late += 1
        watermark = max(watermark, ms - DELAY_MS)
    return [InWindow(row, start, end, True) for _, start, end, members in every for row in members], late


TUMBLE = "TABLE(TUMBLE(TABLE readings, DESCRIPTOR(ts), INTERVAL '10' SECONDS))"
SHIFTED = (
    "TABLE(TUMBLE(SIZE => INTERVAL '10' SECOND, DATA => TABLE readings, "
    "TIMECOL => DESCRIPTOR(ts), OFFSET => INTERVAL '-3' SECOND))"
)
HOP = "TABLE(HOP(TABLE readings, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '15' SECOND))"
SHIFTED_HOP = "TABLE(HOP(TABLE u, DESCRIPTOR(ts), INTERVAL '4' SECOND, INTERVAL '12' SECOND, INTERVAL '2' SECOND))"
CUMULATE = (
    "TABLE(CUMULATE(TABLE readings, DESCRIPTOR(ts), INTERVAL '4' SECOND, INTERVAL '0:12' MINUTE TO SECOND, INTERVAL '1' SECOND))"
)
SESSION = "TABLE(SESSION(TABLE readings PARTITION BY k, DESCRIPTOR(ts), INTERVAL '3' SECONDS))"
BOUNDS, BY_WINDOW = "window_start AS s, window_end AS e", "GROUP BY window_start, window_end"
COLLECTED = "ARRAY_JOIN(ARRAY_SORT(ARRAY_AGG(DISTINCT CAST(v AS STRING))), ','), CARDINALITY(COLLECT(v)), JSON_ARRAYAGG(k)"
DUCKDB_COLLECTED = (
    "COALESCE(string_agg(DISTINCT v::VARCHAR, ',' ORDER BY v::VARCHAR), ''), COUNT(DISTINCT v), "
    """'[' || COALESCE(string_agg('"' || k || '"', ','), '') || ']'"""
)
HOURLESS = "INTERVAL '5' SECOND, INTERVAL '15' SECOND"

# The windows, the query, and DuckDB's: over ``windows``, which has each row once for each window that it is in time for, with
# its start s and end e, or over ``everything``, which has all rows in all windows.
QUERIES = [
    (
        tumble,
        f"SELECT k, {BOUNDS}, COUNT(*), SUM(v), MIN(v), MAX(k) FROM {TUMBLE} {BY_WINDOW}, k",
        "SELECT k, s, e, COUNT(*), SUM(v), MIN(v), MAX(k) FROM windows GROUP BY s, e, k",
    ),
    (
        shifted,
        f"SELECT {BOUNDS}, COUNT(DISTINCT v), COUNT(k) FILTER (WHERE v > 1) "
        f"FROM {SHIFTED} WHERE v < 5 {BY_WINDOW} HAVING SUM(v) > 1",
        "SELECT s, e, COUNT(DISTINCT v), COUNT(k) FILTER (WHERE v > 1) FROM windows WHERE v < 5 GROUP BY s, e HAVING SUM(v) > 1",
    ),
    (
        hop,
        f"SELECT {BOUNDS}, k, COUNT(DISTINCT v), COUNT(*), {COLLECTED} FROM {HOP} {BY_WINDOW}, k",
        f"SELECT s, e, k, COUNT(DISTINCT v), COUNT(*), {DUCKDB_COLLECTED} FROM windows GROUP BY s, e, k",
    ),
    (
        hop,
        f"SELECT HOP_START(ts, {HOURLESS}), k, HOP_END(ts, {HOURLESS}), COUNT(*) FROM readings GROUP BY k, HOP(ts, {HOURLESS})",
        "SELECT s, k, e, COUNT(*) FROM windows GROUP BY s, e, k",
    ),
    (cumulate, f"SELECT {BOUNDS}, SUM(v) FROM {CUMULATE} {BY_WINDOW}", "SELECT s, e, SUM(v) FROM windows GROUP BY s, e"),
    (
        partial(in_sessions, key=lambda row: row.k),
        f"SELECT {BOUNDS}, k, COUNT(*), SUM(v), MIN(v), PERCENTILE(v, 0.25), {COLLECTED} FROM {SESSION} {BY_WINDOW}, k",
        f"SELECT s, e, k, COUNT(*), SUM(v), MIN(v), quantile_cont(v, 0.25), {DUCKDB_COLLECTED} FROM windows GROUP BY s, e, k",
    ),
    (
        partial(in_sessions, key=lambda row: None),
        "SELECT SESSION_START(ts, INTERVAL '3' SECOND), MAX(k), COUNT(v) FROM readings GROUP BY SESSION(ts, INTERVAL '3' SECOND)",
        "SELECT s, MAX(k), COUNT(v) FROM windows GROUP BY s, e",
    ),
    # Over the result of windows: the same windows again, and wider ones by window_time.
    (
        hop,
        f"SELECT s, e, MAX(n), COUNT(*) FROM (SELECT {BOUNDS}, k, COUNT(*) AS n FROM {HOP} {BY_WINDOW}, k) AS t GROUP BY s, e",
        "SELECT s, e, MAX(n), COUNT(*) FROM (SELECT s, e, k, COUNT(*) AS n FROM windows GROUP BY s, e, k) GROUP BY s, e",
    ),
    (
        tumble,
        f"WITH t AS (SELECT window_time AS rt, k, SUM(v) AS n FROM {TUMBLE} {BY_WINDOW}, window_time, k) "
        f"SELECT {BOUNDS}, SUM(n), COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(rt), INTERVAL '30' SECOND)) {BY_WINDOW}",
        "SELECT time_bucket(INTERVAL '30' SECOND, s, TIMESTAMP '1970-01-01') AS b, b + INTERVAL '30' SECOND, SUM(n), COUNT(*) "
        "FROM (SELECT s, SUM(v) AS n FROM windows GROUP BY s, e, k) GROUP BY b",
    ),
    (
        hop,
        f"WITH n AS (SELECT {BOUNDS}, k, COUNT(*) AS n FROM {HOP} {BY_WINDOW}, k), "
        "m AS (SELECT s, e, MAX(n) AS m FROM n GROUP BY s, e) "
        "SELECT n.s, n.k, m.m FROM n JOIN m ON n.s = m.s AND n.e = m.e AND n.n >= m.m",
        "WITH n AS (SELECT s, e, k, COUNT(*) AS n FROM windows GROUP BY s, e, k), "
        "m AS (SELECT s, e, MAX(n) AS m FROM n GROUP BY s, e) "
        "SELECT n.s, n.k, m.m FROM n JOIN m ON n.s = m.s AND n.e = m.e AND n.n >= m.m",
    ),
    (
        tumble,
        "WITH u AS (SELECT ts AS t, k, v FROM readings WHERE v > 1 UNION ALL "
        "SELECT ts, k, v FROM readings WHERE (v > 1) IS NOT TRUE) "
        f"SELECT {BOUNDS}, SUM(v) FROM TABLE(TUMBLE(TABLE u, DESCRIPTOR(t), INTERVAL '10' SECOND)) "
        f"WHERE window_end > TIMESTAMP '1970-01-01 00:00:00' AND k = 'a' {BY_WINDOW}",
        "SELECT s, e, SUM(v) FROM windows WHERE e > TIMESTAMP '1970-01-01 00:00:00' AND k = 'a' GROUP BY s, e",
    ),
    (
        shifted_hop,
        "WITH u AS (SELECT ts, k AS `count`, v FROM readings WHERE v > 1 UNION ALL SELECT ts, k, v FROM readings WHERE v <= 1) "
        f"SELECT {BOUNDS}, `count`, COUNT(*), SUM(CAST(v AS DECIMAL(9, 1))), MIN(`count` || '!'), MAX(v) FILTER (WHERE v < 7) "
        f"FROM {SHIFTED_HOP} {BY_WINDOW}, `count`",
        "SELECT s, e, k, COUNT(*), SUM(v::DECIMAL(9, 1)), MIN(k || '!'), MAX(v) FILTER (WHERE v < 7) FROM windows "
        "WHERE v IS NOT NULL GROUP BY s, e, k",
    ),
    # No row is late for windows that only add columns, nor for groups that change.
    (hop, f"SELECT window_start, k FROM {HOP} WHERE v > 0", "SELECT s, k FROM everything WHERE v > 0"),
    (
        hop,
        f"SELECT window_start, COUNT(*) FROM {HOP} GROUP BY window_start UNION ALL SELECT s, n FROM "
        f"(SELECT {BOUNDS}, SUM(v) AS n FROM {HOP} {BY_WINDOW}) AS t",
        "SELECT s, COUNT(*) FROM everything GROUP BY s UNION ALL SELECT s, SUM(v) FROM windows GROUP BY s, e",
    ),
]


def run(queries: list[str], script: list[Any], state: Path, parallelism: int) -> tuple[list[Counter[Any]], LocalRun]:
    """What one run of a job with these queries adds to their results."""
    weighted: dict[str, bool] = {}

    def job(env: fp.StreamExecutionEnvironment, source: TestSource) -> Any:
        session = Session(env)
        stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "readings", Reading).uid("readings")
        session.add_stream("readings", stream, fp.Schema.new_builder().watermark("ts", "ts - INTERVAL '4' SECOND").build())
        found = {}
        for at, query in enumerate(queries):
            (statement,) = parse(Text(query))
            assert isinstance(statement, Query)
            found[f"q{at}"] = session.stream(session.plan(statement), f"q{at}")
        weighted.update({name: WEIGHT in stream.get_type().column_names for name, stream in found.items()})
        return found

    done = run_local(job, script, state_root=str(state), parallelism=parallelism, options={"max_parallelism": 8})
    changes: dict[str, Counter[Any]] = {name: Counter() for name in done.outputs}
    for name, rows in done.outputs.items():
        for values in map(tuple, rows):
            changes[name][values[:-1] if weighted[name] else values] += values[-1] if weighted[name] else 1
    return [changes[f"q{at}"] for at in range(len(queries))], done


def answered(rows: list[Reading], windows_of: Any, query: str) -> tuple[Counter[Any], int]:
    """DuckDB's answer, and the number of late rows: those that are in no window that the watermark before them has not passed."""
    windows, late = windows_of(rows) if isinstance(windows_of, partial) else in_windows(rows, windows_of)
    schema = pa.schema([("k", pa.string()), ("v", pa.int64()), ("s", pa.timestamp("us")), ("e", pa.timestamp("us"))])
    start = EPOCH.replace(tzinfo=None)
    tables = {
        name: pa.Table.from_pylist(
            [
                {"k": row.k, "v": row.v, **{n: start + timedelta(milliseconds=at) for n, at in (("s", begin), ("e", end))}}
                for row, begin, end, in_time in windows
                if in_time or name == "everything"
            ],
            schema=schema,
        )
        for name in ("windows", "everything")
    }
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return Counter(map(tuple, connection.sql(query).fetchall())), late


def readings(rng: random.Random, count: int) -> list[Reading]:
    """From a minute before 1970 on, mostly within the delay."""
    at = EPOCH - timedelta(seconds=60)
    rows = []
    for _ in range(count):
        at += timedelta(microseconds=rng.choice([0, 500, 700_000, 2_000_000, 9_000_000]))
        back = rng.choice([0, 0, 1_000_000, 3_999_500, 4_000_000, 15_000_000])
        rows.append(Reading(rng.choice(["a", "b", None]), rng.choice([None, 1, 2, 3, 7]), at - timedelta(microseconds=back)))
    return rows


@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_windows_have_the_rows_that_are_in_time(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    rng, state = random.Random(seed), tmp_path_factory.mktemp("state")
    rows = readings(rng, rng.randrange(60))
    script = interrupted(rng, rows)
    results: list[Counter[Any]] = [Counter() for _ in QUERIES]
    for _ in range(script.count(EOF) + 1):
        found, _ = run([query for _, query, _ in QUERIES], script, state, rng.choice([1, 3]))
        for result, changes in zip(results, found, strict=True):
            result.update(changes)
    for result, (windows_of, query, wanted) in zip(results, QUERIES, strict=True):
        assert +result == answered(rows, windows_of, wanted)[0], query


def test_late_rows_are_counted_once(tmp_path: Path) -> None:
    rows = readings(random.Random(7), 300)
    queries = [QUERIES[at] for at in (0, 2, 3, 4, 5)]
    script = [rows[0], PAUSE, *rows[1:100], PAUSE, *rows[100:]]
    results, done = run([query for _, query, _ in queries], script, tmp_path, 2)
    uids = [f"q{at}-windows{keys}" for at, keys in enumerate(("-by-k", "-by-k", "-by-k", "", "-by-k"))]
    late = [done.late_records_dropped[uid] for uid in uids]
    assert list(zip(results, late, strict=True)) == [answered(rows, windows_of, wanted) for windows_of, _, wanted in queries]
    assert all(late)


def test_explain_says_what_bounds_the_state() -> None:
    session = Session(fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"}))
    create = next(part for part in FILE.split(";") if "CREATE TABLE clicks" in part)
    query = f"SELECT page, COUNT(*) FROM {HOP.replace('readings', 'clicks')} {BY_WINDOW}, page"
    for statement in parse(Text(f"{create}; {query}")):
        if isinstance(statement, Query):
            shown = explained(session.plan(statement))
        else:
            execute(session, statement, Text(FILE))
    first, aggregate, window, *_, scan = (line.strip() for line in shown.splitlines())
    assert first.endswith("[adds rows]")
    assert aggregate.endswith("by window_start, window_end, page; keeps a row for each group, until its window ends  [adds rows]")
    assert window == "Window HOP(5 seconds, 15 seconds) of ts  [adds rows]"
    assert "event time TO_TIMESTAMP_LTZ(ms, 3)" in scan


VERSIONS = [
    f"SELECT {BOUNDS}, k, COUNT(*), SUM(v) FROM {HOP} {BY_WINDOW}, k",
    f"SELECT k AS name, AVG(v) AS a, window_time AS t FROM {HOP} {BY_WINDOW}, window_time, k HAVING COUNT(*) > 1",
    f"SELECT COUNT(*), window_end, k FROM {HOP} {BY_WINDOW}, k",
]


def test_open_windows_have_the_result_of_a_changed_query(tmp_path: Path) -> None:
    """What was written stays; no row is counted twice, and none is lost."""
    rows = [Reading("ab"[n % 2], n, EPOCH + timedelta(seconds=n)) for n in range(60)]
    script = [*rows[:20], PAUSE, EOF, *rows[20:40], PAUSE, EOF, *rows[40:]]
    first, second, third = (run([query], script, tmp_path, at)[0][0] for at, query in enumerate(VERSIONS, 1))
    everything, _ = answered(rows, hop, "SELECT s, e, k, COUNT(*), SUM(v) FROM windows GROUP BY s, e, k")
    ends = [EPOCH.replace(tzinfo=None) + timedelta(seconds=seconds) for seconds in (0, 15, 35, 100)]
    of_runs = [[row for row in everything if before < row[1] <= end] for before, end in pairwise(ends)]
    assert first == Counter(of_runs[0])
    assert second == Counter(
        (k, total // count, (end - timedelta(milliseconds=1)).replace(tzinfo=UTC)) for _, end, k, count, total in of_runs[1]
    )
    assert third == Counter((count, end, k) for _, end, k, count, _ in of_runs[2])


def test_open_sessions_go_on_in_a_changed_query(tmp_path: Path) -> None:
    rows = [Reading("ab"[n % 2], n, EPOCH + timedelta(seconds=n + n // 7 * 3)) for n in range(40)]
    script = [*rows[:20], PAUSE, EOF, *rows[20:]]
    (first,), _ = run([f"SELECT {BOUNDS}, k, COUNT(*), SUM(v), MAX(v) FROM {SESSION} {BY_WINDOW}, k"], script, tmp_path, 1)
    (second,), _ = run([f"SELECT MAX(v) AS m, k, AVG(v) AS a FROM {SESSION} {BY_WINDOW}, k"], script, tmp_path, 3)
    everything, _ = answered(
        rows,
        partial(in_sessions, key=lambda row: row.k),
        "SELECT s, e, k, COUNT(*), SUM(v), MAX(v) FROM windows GROUP BY s, e, k",
    )
    assert first <= everything
    assert second == Counter((most, k, total // count) for _, _, k, count, total, most in everything - first)
    assert first


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            VERSIONS[0].replace("'15' SECOND", "'20' SECOND"),
            "from readings in HOP(5 seconds, 15 seconds) of ts and would come from readings in HOP(5 seconds, 20 seconds) of ts",
        ),
        (VERSIONS[0].replace("SUM(v)", "MIN(v)"), "MIN(v) cannot be computed from the saved"),
    ],
)
def test_other_windows_are_refused(changed: str, message: str, tmp_path: Path) -> None:
    script = [Reading("a", 1, EPOCH), PAUSE, EOF, Reading("a", 2, EPOCH)]
    run(VERSIONS[:1], script, tmp_path, 1)
    with pytest.raises(fp.RestoreRefused, match=re.escape(message)):
        run([changed], script, tmp_path, 1)


def test_windows_keep_nothing_once_they_have_ended(tmp_path: Path) -> None:
    query = f"SELECT {BOUNDS}, k, COUNT(DISTINCT v) FROM {HOP} {BY_WINDOW}, k"
    rows = [Reading(f"key {n % 5}", n % 7, EPOCH + timedelta(seconds=n)) for n in range(100)]
    run([query], [*rows[:50], PAUSE, *rows[50:], Eof(savepoint=True), rows[-1]], tmp_path, 2)
    open_ones = {(row.k, start, row.v) for row in rows for start, end in hop(milliseconds(row)) if end - 1 > 95_000}
    groups = len({(k, start) for k, start, _ in open_ones})
    counts = {state.name: state.count for state in SavepointReader.find(tmp_path, "test").states}
    assert counts == {"groups": groups, "timers": groups, "values_v": len(open_ones)}


FILE = """
SET 'execution.engine' = 'local';
CREATE TABLE clicks (page STRING, ms BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '2' SECOND)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json', 'source.monitor-interval' = '1 s');
CREATE TABLE pages (page STRING, s TIMESTAMP(3), n BIGINT)
WITH ('connector' = 'filesystem', 'path' = 'pages', 'format' = 'json');
CREATE TABLE totals (s TIMESTAMP(3), n BIGINT) WITH ('connector' = 'filesystem', 'path' = 'totals', 'format' = 'json');
INSERT INTO pages SELECT page, TUMBLE_START(ts, INTERVAL '10' SECOND), COUNT(*)
FROM clicks GROUP BY page, TUMBLE(ts, INTERVAL '10' SECOND);
INSERT INTO totals SELECT window_start, COUNT(*) FROM
TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end;
"""


def test_a_job_that_is_killed_in_an_open_window_counts_each_row_once(tmp_path: Path) -> None:
    (tmp_path / "clicks.sql").write_text(FILE)
    (tmp_path / "in").mkdir()

    def write(name: str, seconds: range) -> None:
        lines = [json.dumps({"page": f"/{n % 3}", "ms": n * 1000}) for n in seconds]
        (tmp_path / f".{name}").write_text("\n".join(lines) + "\n")
        (tmp_path / f".{name}").rename(tmp_path / "in" / name)

    def written(table: str) -> list[dict[str, Any]]:
        files = sorted((tmp_path / table).glob("part-*"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def run_until(windows: int) -> None:
        with open(tmp_path / "log", "ab") as log:
            arguments = ["-m", "forkpoint.cli", "sql", "-f", "clicks.sql"]
            job = Python(arguments, cwd=tmp_path, env=ENVIRONMENT, stdout=log, stderr=log)
        try:
            while len(written("totals")) < windows or len(written("pages")) < 3 * windows:
                assert job.poll() is None, (tmp_path / "log").read_text()
                time.sleep(0.05)
        finally:
            job.kill()
            job.wait()

    write("1.json", range(25))
    run_until(2)
    write("2.json", range(25, 52))
    run_until(4)
    assert sorted((row["s"], row["n"]) for row in written("totals")) == [(f"1970-01-01 00:00:{s}0", 10) for s in range(4)]
    pages = Counter(f"/{n % 3}" for n in range(40))
    assert sum(row["n"] for row in written("pages")) == 40
    assert {page: sum(row["n"] for row in written("pages") if row["page"] == page) for page in pages} == pages


def test_a_silent_partition_no_longer_holds_back_the_watermark(tmp_path: Path) -> None:
    """The stream's own watermarks, and those that SQL declares with a timeout for silence."""
    query = f"SELECT {BOUNDS}, COUNT(*) FROM {TUMBLE} {BY_WINDOW}"
    busy = [Reading("a", n, EPOCH + timedelta(seconds=n)) for n in range(0, 50, 5)]
    longer = [*busy[:5], Advance(timedelta(seconds=30)), *busy[5:8], Advance(timedelta(seconds=1)), *busy[8:], Eof()]
    silent = [busy[0], PAUSE, PAUSE, PAUSE, busy[0]]

    def job(env: fp.StreamExecutionEnvironment, source: TestSource) -> Any:
        stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "readings", Reading).uid("readings")
        own = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, _: row.ts)
        found = {}
        for name, watermark, rows in (
            ("declared", "ts", stream),
            ("own", "SOURCE_WATERMARK()", stream.assign_timestamps_and_watermarks(own).uid("own")),
        ):
            session = Session(env)
            session.set("table.exec.source.idle-timeout", "10 s")
            session.add_stream("readings", rows, fp.Schema.new_builder().watermark("ts", watermark).build())
            (statement,) = parse(Text(query))
            assert isinstance(statement, Query)
            found[name] = session.stream(session.plan(statement), name)
        return found

    done = run_local(job, TestSource(longer, silent), state_root=str(tmp_path))
    assert done.outputs["own"] == []
    assert [row[2] for row in done.outputs["declared"]] == [3, 2, 2, 2]

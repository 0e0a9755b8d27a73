"""Interval joins: DuckDB's pairs of the rows in time, wherever epochs and the process end, and a state that event time bounds."""

from __future__ import annotations

import random
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
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
from forkpoint.table.explanation import explained
from forkpoint.table.session import Session
from forkpoint.testing import EOF, PAUSE, Eof, LocalRun, TestSource, run_local

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Event(NamedTuple):
    n: int
    k: str | None
    kind: int
    ts: fp.Instant


WITH = "WITH a AS (SELECT * FROM events WHERE kind < 3), b AS (SELECT * FROM events WHERE kind > 1) "
BETWEEN = "a.ts BETWEEN b.ts - INTERVAL '3' SECOND AND b.ts + INTERVAL '1' SECOND"
QUERIES = [
    *(f"SELECT a.n, b.n FROM a {kind} JOIN b ON a.k = b.k AND {BETWEEN}" for kind in ("", "LEFT", "RIGHT", "FULL")),
    *(f"SELECT a.n, a.k FROM a LEFT {kind} JOIN b ON a.k = b.k AND {BETWEEN} AND a.n <> b.n" for kind in ("SEMI", "ANTI")),
    "SELECT a.n, b.n FROM a, b WHERE b.ts - INTERVAL '0.5' SECOND < a.ts AND a.ts <= b.ts AND a.k = b.k AND a.kind <= b.kind",
    "SELECT a.n, b.n FROM a FULL JOIN b ON a.ts > b.ts + INTERVAL '1' SECOND AND b.ts > a.ts - INTERVAL '2' SECOND",
    "SELECT a.n, b.n FROM a LEFT JOIN b ON a.ts = b.ts AND a.k = b.k AND b.kind = 3",
    "SELECT a.n, b.n, c.n FROM a, b, b AS c WHERE a.k = b.k AND b.k = c.k AND b.ts >= a.ts AND "
    "b.ts - INTERVAL '2' SECOND < a.ts AND c.ts BETWEEN b.ts AND b.ts + INTERVAL '3' SECOND",
    # Event time goes on: the result is in windows, whose rows would be late if the watermark of the join were that of its inputs.
    f", pairs AS (SELECT a.ts, b.n AS m FROM a LEFT JOIN b ON a.k = b.k AND {BETWEEN}) "
    "SELECT window_start, COUNT(*), SUM(m) FROM TABLE(TUMBLE(TABLE pairs, DESCRIPTOR(ts), INTERVAL '5' SECOND)) "
    "GROUP BY window_start, window_end",
]


def run(queries: list[str], script: list[Any], state: Path, parallelism: int) -> tuple[list[Counter[Any]], LocalRun]:
    """What one run of a job with these queries adds to their results. The watermark is 4 seconds behind."""

    weighted: set[str] = set()

    def job(env: fp.StreamExecutionEnvironment, source: TestSource) -> Any:
        session = Session(env)
        stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "events", Event).uid("events")
        session.add_stream("events", stream, fp.Schema.new_builder().watermark("ts", "ts - INTERVAL '4' SECOND").build())
        found = {}
        for at, query in enumerate(queries):
            (statement,) = parse(Text(WITH + query))
            assert isinstance(statement, Query)
            plan = session.plan(statement)
            assert ("without limit" in explained(plan)) == (".ts" not in query), query
            found[f"q{at}"] = session.stream(plan, f"q{at}")
        weighted.update(name for name, stream in found.items() if WEIGHT in stream.get_type().column_names)
        return found

    done = run_local(job, script, state_root=str(state), parallelism=parallelism, options={"max_parallelism": 8})
    assert weighted == {f"q{at}" for at, query in enumerate(queries) if ".ts" not in query}
    return [Counter(map(tuple, done.outputs[f"q{at}"])) for at in range(len(queries))], done


def answered(query: str, events: list[Event]) -> Counter[Any]:
    """DuckDB's answer."""
    schema = pa.schema([("n", pa.int64()), ("k", pa.string()), ("kind", pa.int64()), ("ts", pa.timestamp("us"))])
    rows = [event._asdict() | {"ts": event.ts.replace(tzinfo=None)} for event in events]
    query = query.replace("LEFT SEMI", "SEMI").replace("LEFT ANTI", "ANTI")
    buckets = r"b,\1 FROM (SELECT *, time_bucket(INTERVAL '5' SECOND, ts) AS b FROM pairs) GROUP BY b"
    query = re.sub(r"window_start,(.*) FROM TABLE.*", buckets, query)
    with duckdb.connect() as connection:
        connection.register("events", pa.Table.from_pylist(rows, schema=schema))
        return Counter(map(tuple, connection.sql(WITH + query).fetchall()))


def in_time(rng: random.Random, count: int) -> list[Event]:
    """From a minute before 1970 on, out of order within the delay, with equal times and keys that are NULL."""
    at, rows = EPOCH - timedelta(seconds=60), []
    for n in range(count):
        at += timedelta(microseconds=rng.choice([0, 0, 500, 700_000, 1_000_000, 3_000_000]))
        back = rng.choice([0, 0, 500_000, 1_000_000, 3_999_000])
        key = rng.choice(["a", "b", "a", "b", None])
        rows.append(Event(n, key, rng.choice([1, 2, 3]), at - timedelta(microseconds=back)))
    return rows


@settings(max_examples=2, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_rows_have_the_pairs_that_are_in_time(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    rng, state = random.Random(seed), tmp_path_factory.mktemp("state")
    rows = in_time(rng, rng.randrange(70))
    script = interrupted(rng, rows)
    results: list[Counter[Any]] = [Counter() for _ in QUERIES]
    for _ in range(script.count(EOF) + 1):
        found, done = run(QUERIES, script, state, rng.choice([1, 3]))
        assert not any(done.late_records_dropped.values())
        for result, rows_of in zip(results, found, strict=True):
            result.update(rows_of)
    for result, query in zip(results, QUERIES, strict=True):
        assert result == answered(query, rows), query


def event(n: int, kind: int, seconds: float) -> Event:
    return Event(n, "a", kind, EPOCH + timedelta(seconds=seconds))


def test_late_rows_pair_with_those_that_are_still_there(tmp_path: Path) -> None:
    """a waits for 3 s, b for 1 s of event time."""
    script = [event(1, 1, 10), event(2, 3, 10), event(3, 1, 18), PAUSE]  # the watermark is at 14 s: both at 10 s have left
    script += [event(4, 3, 12), event(5, 3, 17), event(6, 1, 13.5), event(7, 1, 8), event(8, 3, 15)]
    pairs, left, right = (f"SELECT a.n, b.n FROM a {kind} JOIN b ON a.k = b.k AND {BETWEEN}" for kind in ("", "LEFT", "RIGHT"))
    results, done = run([pairs, left, right], script, tmp_path, 1)
    assert sorted(results[0]) == [(1, 2), (3, 5), (6, 8)]
    assert results[1] - results[0] == Counter([(7, None)])
    assert results[2] - results[0] == Counter([(None, 4)])
    # 7 is in no row of the first and the third result, 4 in none of the first and the second.
    assert list(done.late_records_dropped.values()).count(1) == 2, done.late_records_dropped
    assert done.late_records_dropped["q0-join-events"] == 2


def test_rows_leave_the_state_with_event_time(tmp_path: Path) -> None:
    events = [event(n, n % 3 + 1, n) for n in range(100)]
    query = f"SELECT a.n, b.n FROM a LEFT JOIN b ON a.k = b.k AND {BETWEEN}"
    run([query], [*events[:50], PAUSE, *events[50:], Eof(savepoint=True), events[-1]], tmp_path, 2)
    counts = {state.name: state.count for state in SavepointReader.find(tmp_path, "test").states}
    # The watermark is at 95 s.
    left, right = ([e.n for e in events if e.n + wait > 95 and e.kind in kinds] for wait, kinds in ((3, (1, 2)), (1, (2, 3))))
    assert (counts["left"], counts["right"]) == (len(left), len(right))
    assert counts["timers"] <= len(left) + len(right)


FULL = f"SELECT a.n, b.n FROM a FULL JOIN b ON a.k = b.k AND {BETWEEN}"
FIRST = [event(1, 1, 10), event(2, 1, 10.5), event(3, 3, 11), PAUSE, EOF]


@pytest.mark.parametrize(
    ("changed", "added"),
    [
        (FULL.replace("FULL", ""), [(2, 4)]),
        (FULL.replace("FULL", "LEFT").replace("'3'", "'1.5'"), [(1, None), (2, None)]),
        (FULL.replace("FULL JOIN b", "RIGHT JOIN (SELECT * FROM b WHERE n <> 3) AS b"), [(2, 4)]),
        (FULL.replace("FULL", "LEFT SEMI").replace(", b.n", ""), [(2,)]),
        (FULL.replace("FULL", "LEFT ANTI").replace(", b.n", ""), [(1,)]),
    ],
)
def test_a_changed_join_goes_on_from_rows_without_repeating_results(changed: str, added: list[Any], tmp_path: Path) -> None:
    first = [event(1, 1, 10), event(2, 1, 12), PAUSE, EOF]
    assert run([FULL], first, tmp_path, 1)[0] == [Counter()]
    results, _ = run([changed], [*first, event(4, 3, 14), PAUSE, event(5, 1, 30)], tmp_path, 2)
    assert {row for row in results[0] if 5 not in row} == set(added)


@pytest.mark.parametrize(
    ("before", "changed", "message"),
    [
        (FULL, FULL.replace("'3'", "'5'"), "left.ts - right.ts in [-5 seconds, 1 second] needs may have left the state"),
        (FULL.replace("FULL", "LEFT"), FULL, "left joins do not know which rows had pairs, as full joins need to"),
        (FULL.replace(f"AND {BETWEEN}", ""), FULL, "its rows were kept without limit and would be kept left.ts - right.ts in"),
        (f"{FULL} AND a.n < b.n", FULL, "rows may have left the state that only (left.n < right.n) kept from having pairs"),
    ],
)
def test_what_the_kept_rows_cannot_serve_is_refused(before: str, changed: str, message: str, tmp_path: Path) -> None:
    run([before], FIRST, tmp_path, 1)
    with pytest.raises(fp.RestoreRefused, match=re.escape(message)):
        run([changed], FIRST, tmp_path, 1)


def test_times_are_also_bounded_by_timestampadd_and_in_exists(tmp_path: Path) -> None:
    """The bounds are those of the query: ``run`` checks that event time bounds the state."""
    earlier = "b.ts <= a.ts AND TIMESTAMPADD(SECOND, 2, b.ts) >= a.ts"
    queries = [f"SELECT a.n, b.n FROM a JOIN b ON {earlier}", f"SELECT n FROM a WHERE EXISTS (SELECT * FROM b WHERE {earlier})"]
    results, _ = run(queries, [event(1, 1, 10), event(2, 3, 7.9), event(3, 3, 8), event(4, 3, 10.1)], tmp_path, 1)
    assert results == [Counter([(1, 3)]), Counter([(1,)])]

"""Temporal joins: DuckDB's ASOF join of the rows in time, wherever epochs and the process end; versions leave the state."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import forkpoint as fp
from forkpoint.relational.changes import WEIGHT, row_type
from forkpoint.relational.types import Field, SqlType
from forkpoint.sql.errors import Text
from forkpoint.sql.parser import parse
from forkpoint.sql.statements import CreateView, Query
from forkpoint.state_processor import SavepointReader
from forkpoint.table.catalog import StreamTable
from forkpoint.table.schema import reading_of
from forkpoint.table.session import Session
from forkpoint.testing import ABORT, EOF, PAUSE, Eof, LocalRun, TestSource, run_local

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Event(NamedTuple):
    n: int
    k: str | None
    ts: fp.Instant


FIELDS = (Field("n", SqlType("BIGINT")), Field("k", SqlType("STRING", nullable=False)), Field("ts", SqlType("TIMESTAMP_LTZ")))
LATEST = "SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS p FROM news"
VIEW = f"CREATE VIEW latest AS SELECT k, n, ts FROM ({LATEST}) WHERE p = 1"
AS_OF = "FOR SYSTEM_TIME AS OF o.ts"
QUERIES = [
    f"SELECT o.n, r.n FROM o JOIN latest {AS_OF} AS r ON o.k = r.k",
    f"SELECT o.n, r.n FROM o LEFT JOIN latest {AS_OF} AS r ON r.k = o.k",
    f"SELECT o.n, r.n FROM o LEFT JOIN upserts {AS_OF} AS r ON r.k = o.k",
    f"SELECT o.n, r.n, r.ts > o.ts FROM o LEFT JOIN upserts {AS_OF} AS r ON r.k = o.k AND r.n > 10 + o.n WHERE o.n <> 3",
    f"SELECT o.n, r.n FROM o JOIN upserts {AS_OF} AS r ON r.k = o.k WHERE r.n > 5 AND o.n > 2",
    f"SELECT window_start, COUNT(*), COUNT(m) FROM TABLE(TUMBLE((SELECT o.ts, r.n AS m FROM o LEFT JOIN latest {AS_OF} AS r "
    "ON o.k = r.k), DESCRIPTOR(ts), INTERVAL '5' SECOND)) GROUP BY window_start, window_end",
]


def run(queries: list[str], scripts: list[list[Any]], state: Path, parallelism: int) -> tuple[list[Counter[Any]], LocalRun]:
    """What one run of a job with these queries adds to their results. The inputs are orders, news of rows, and upserts."""

    def job(env: fp.StreamExecutionEnvironment, *sources: TestSource) -> Any:
        session, schema = Session(env), fp.Schema.new_builder().watermark("ts", "ts - INTERVAL '4' SECOND").build()
        for name, source in zip(("o", "news", "upserts"), sources, strict=True):
            of = row_type(FIELDS, updating=True) if name == "upserts" else Event
            stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), name, of).uid(name)
            if name == "upserts":
                session.catalog.streams[name] = StreamTable(FIELDS, stream.edges, reading_of(schema, FIELDS), name, ("k",))
            else:
                session.add_stream(name, stream, schema)
        (view,) = parse(Text(VIEW))
        assert isinstance(view, CreateView)
        session.create_view(view)
        found = {}
        for at, query in enumerate(queries):
            (statement,) = parse(Text(query))
            assert isinstance(statement, Query)
            found[f"q{at}"] = session.stream(session.plan(statement), f"q{at}")
        assert not any(WEIGHT in stream.get_type().column_names for stream in found.values())
        return found

    done = run_local(job, *scripts, state_root=str(state), parallelism=parallelism, options={"max_parallelism": 8})
    return [Counter(map(tuple, done.outputs[f"q{at}"])) for at in range(len(queries))], done


def answered(query: str, orders: list[Event], news: list[Event], upserts: list[tuple[Any, ...]]) -> Counter[Any]:
    """DuckDB's answer. Of versions of one time the last one counts. A removal is a version without n."""
    schema = pa.schema(
        [("n", pa.int64()), ("k", pa.string()), ("ts", pa.timestamp("us")), ("nth", pa.int64()), ("gone", pa.bool_())]
    )

    def table(rows: list[Any]) -> pa.Table:
        found = [(*row[:2], row[2].replace(tzinfo=None), at, row[3:] == (-1,)) for at, row in enumerate(rows)]
        return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in found], schema=schema)

    one = "SELECT * FROM {} QUALIFY ROW_NUMBER() OVER (PARTITION BY k, ts ORDER BY nth DESC) = 1"
    with duckdb.connect() as connection:
        for name, rows in (("o", orders), ("news", news), ("changes", upserts)):
            connection.register(name, table(rows))
        connection.execute(f"CREATE VIEW latest AS {one.format('news')}; CREATE VIEW upserts AS {one.format('changes')}")
        versions = "upserts" if "upserts" in query else "latest"
        pairs = f"SELECT o.n AS a, o.ts AS t, r.* FROM o ASOF LEFT JOIN {versions} AS r ON o.k = r.k AND o.ts >= r.ts"
        connection.execute(f"CREATE VIEW p AS SELECT a, t, CASE WHEN NOT gone THEN n END AS n, ts FROM ({pairs})")
        translated = {
            QUERIES[0]: "SELECT a, n FROM p WHERE n IS NOT NULL",
            QUERIES[1]: "SELECT a, n FROM p",
            QUERIES[2]: "SELECT a, n FROM p",
            QUERIES[3]: "SELECT a, CASE WHEN n > 10 + a THEN n END, CASE WHEN n > 10 + a THEN ts > t END FROM p WHERE a <> 3",
            QUERIES[4]: "SELECT a, n FROM p WHERE n > 5 AND a > 2",
            QUERIES[5]: "SELECT time_bucket(INTERVAL '5' SECOND, t) AS b, COUNT(*), COUNT(n) FROM p GROUP BY b",
        }
        return Counter(map(tuple, connection.sql(translated[query]).fetchall()))


def events(rng: random.Random, count: int, keys: list[str | None]) -> list[Event]:
    """Out of order within the delay, with equal times."""
    at, rows = EPOCH - timedelta(seconds=20), []
    for n in range(count):
        at += timedelta(microseconds=rng.choice([0, 500, 700_000, 1_000_000, 3_000_000]))
        back = rng.choice([0, 0, 500_000, 1_000_000, 3_999_000])
        rows.append(Event(n, rng.choice(keys), at - timedelta(microseconds=back)))
    return rows


def cut(rng: random.Random, rows: list[Any]) -> list[Any]:
    script: list[Any] = []
    for row in rows:
        script += rng.choice([*[[]] * 8, [PAUSE]])
        script.append(row)
    return script


@settings(max_examples=2, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_rows_have_the_version_of_their_time(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    rng, state = random.Random(seed), tmp_path_factory.mktemp("state")
    orders, news = events(rng, rng.randrange(60), ["a", "b", None]), events(rng, rng.randrange(50), ["a", "b", "c"])
    upserts = [(*each, rng.choice([1, 1, -1])) for each in events(rng, rng.randrange(50), ["a", "b"])]
    scripts = [cut(rng, rows) for rows in (orders, news, [fp.Row(*each) for each in upserts])]
    scripts[0] = [
        part for each in scripts[0] for part in (rng.choice([*[[]] * 20, [ABORT], [PAUSE, EOF]]), [each]) for part in part
    ]
    results: list[Counter[Any]] = [Counter() for _ in QUERIES]
    for _ in range(scripts[0].count(EOF) + 1):
        found, done = run(QUERIES, scripts, state, rng.choice([1, 3]))
        assert not any(done.late_records_dropped.values())
        for result, rows_of in zip(results, found, strict=True):
            result.update(rows_of)
    for result, query in zip(results, QUERIES, strict=True):
        assert result == answered(query, orders, news, upserts), query


def event(n: int, seconds: float) -> Event:
    return Event(n, "a", EPOCH + timedelta(seconds=seconds))


LEFT = f"SELECT o.n, r.n FROM o LEFT JOIN latest {AS_OF} AS r ON o.k = r.k"


def test_late_rows_have_the_version_that_is_left(tmp_path: Path) -> None:
    """The watermark of both inputs is at 16 s after the first pause; the version of 14 s is the latest before it."""
    orders = [event(1, 12), event(2, 20), PAUSE, event(3, 15), event(4, 13), event(5, 18), PAUSE, event(6, 40)]
    news = [event(10, 10), event(11, 14), event(12, 20), PAUSE, event(13, 13), event(14, 15.5), PAUSE, event(15, 40)]
    results, done = run([LEFT], [orders, news, [fp.Row(0, "z", EPOCH, 1)]], tmp_path, 1)
    # 13 is older than 11, which event time has passed; 14 is late, too, but newer. It counts from 16 s on, which 3 has passed.
    assert sorted(results[0]) == [(1, 10), (2, 12), (3, 11), (4, None), (5, 14), (6, 15)]
    assert done.late_records_dropped["q0-join-o-news"] == 1


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        (f"{LEFT} AND r.n < 98", {(96, 96): 1, (97, 96): 1, (98, 96): 1, (99, None): 3}),
        (LEFT.replace("o.n, r.n", "r.ts = o.ts").replace("LEFT ", ""), {(True,): 4, (False,): 2}),  # without n
    ],
)
def test_versions_leave_the_state_with_event_time(changed: str, wanted: dict[Any, int], tmp_path: Path) -> None:
    orders, news = ([event(n, n) for n in range(0, 100, step)] for step in (1, 3))
    scripts = [[*rows[:20], PAUSE, *rows[20:], Eof(savepoint=True), rows[-1], PAUSE, rows[-1]] for rows in (orders, news)]
    run([LEFT], [*scripts, [fp.Row(0, "z", EPOCH, 1)]], tmp_path, 2)
    counts = {state.name: state.count for state in SavepointReader.find(tmp_path, "test").states}
    # The watermark is at 95 s: orders from 96 s on, versions of 93, 96 and 99 s, and the moments of both.
    assert counts == {"left": 4, "right": 3, "timers": 4}
    results, _ = run([changed], [*scripts, [fp.Row(0, "z", EPOCH, 1)]], tmp_path, 1)
    assert results[0] == Counter(wanted)


def test_rows_kept_without_limit_are_refused(tmp_path: Path) -> None:
    scripts = [[event(1, 1), PAUSE, EOF], [event(2, 1), PAUSE, EOF], [fp.Row(0, "z", EPOCH, 1), PAUSE, EOF]]
    run(["SELECT o.n, r.n FROM o JOIN news AS r ON o.k = r.k"], scripts, tmp_path, 1)
    with pytest.raises(fp.RestoreRefused, match=r"its rows were kept without limit and would be kept as of left.ts by right.ts"):
        run([LEFT], scripts, tmp_path, 1)

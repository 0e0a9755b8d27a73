"""Processing time, and functions whose values differ each time: each row has one value, however often the process dies."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sql_results import Order

import forkpoint as fp
from forkpoint.sql.errors import Text
from forkpoint.sql.parser import parse
from forkpoint.sql.statements import Query
from forkpoint.table.session import Session
from forkpoint.testing import ABORT, PAUSE, Advance, Eof, ManualClock, TestSource, run_local

START = datetime(2024, 2, 29, 23, 59, tzinfo=UTC)
VIEW = "(SELECT *, PROCTIME() AS p FROM orders)"


def run(queries: dict[str, str], script: list[Any], clock: ManualClock, state: Path | None = None, parallelism: int = 2) -> Any:
    """The rows that are added to each query's result, less those that are removed."""
    widths: dict[str, int] = {}

    def job(env: fp.StreamExecutionEnvironment, source: TestSource) -> Any:
        session = Session(env)
        session.add_stream("orders", env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "orders", Order).uid("orders"))
        found = {}
        for name, query in queries.items():
            (statement,) = parse(Text(query))
            assert isinstance(statement, Query)
            plan = session.plan(statement)
            widths[name], found[name] = len(plan.schema), session.stream(plan, name)
        return found

    root = None if state is None else str(state)
    done = run_local(job, script, clock=clock, state_root=root, parallelism=parallelism, options={"max_parallelism": 8})
    found = {}
    for name, width in widths.items():
        rows: Counter[Any] = Counter()
        for row in map(tuple, done.outputs[name]):
            rows[row[:width]] += row[width] if len(row) > width else 1
        found[name] = +rows
    return found


def script_of(rng: random.Random, count: int) -> tuple[list[Any], list[tuple[datetime, Order]]]:
    script: list[Any] = []
    rows, now = [], START
    for at in range(count):
        if rng.random() < 0.4:
            ms = rng.choice([1, 999, 4000, 10_000, 45_000])
            now += timedelta(milliseconds=ms)
            script.append(Advance(ms))
        script += rng.choice([[], [], [PAUSE], [ABORT]])
        rows.append((now, Order(rng.choice("ab"), at, rng.randrange(5), None)))
        script.append(rows[-1][1])
    return script, rows


def floor(at: datetime, seconds: int) -> datetime:
    return datetime.fromtimestamp(at.timestamp() // seconds * seconds, UTC)


def sessions(rows: list[tuple[datetime, Order]], gap: int) -> Counter[Any]:
    """The sessions of each key. A row at the end of one begins another: the clock has passed the first one's last moment."""
    found: dict[Any, list[list[Any]]] = {}
    for at, row in rows:
        of_key, start = found.setdefault(row.k, []), at.replace(tzinfo=None)
        if not of_key or of_key[-1][1] <= start:
            of_key.append([start, start, []])
        of_key[-1][1] = start + timedelta(seconds=gap)
        of_key[-1][2].append(row.g)
    return Counter(
        (start, end, k, len(of), json.dumps(of, separators=(",", ":"))) for k, each in found.items() for start, end, of in each
    )


def test_windows_and_clocks_follow_the_time_at_which_rows_are_processed(tmp_path: Path) -> None:
    queries = {
        "tumble": "SELECT window_start, window_end, k, COUNT(*), COUNT(DISTINCT v) FROM "
        f"TABLE(TUMBLE(TABLE {VIEW}, DESCRIPTOR(p), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, k",
        "hop": "SELECT HOP_START(p, INTERVAL '10' SECOND, INTERVAL '30' SECOND), COUNT(*) FROM "
        f"{VIEW} GROUP BY HOP(p, INTERVAL '10' SECOND, INTERVAL '30' SECOND)",
        "session": "SELECT window_start, window_end, k, COUNT(*), JSON_ARRAYAGG(g) FROM "
        f"TABLE(SESSION(TABLE {VIEW} PARTITION BY k, DESCRIPTOR(p), INTERVAL '5' SECOND)) GROUP BY window_start, window_end, k",
        "clock": f"SELECT g, NOW(), LOCALTIMESTAMP, CURRENT_DATE, LOCALTIME, UNIX_TIMESTAMP(), p FROM {VIEW}",
        "latest": f"SELECT k, g FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY p DESC) AS n FROM {VIEW}) WHERE n = 1",
    }
    script, rows = script_of(random.Random(7), 14)
    clock = ManualClock(int(START.timestamp() * 1000))
    found = run(queries, [*script, PAUSE, Eof(savepoint=True)], clock, tmp_path, 1)
    more, later = script_of(random.Random(8), 6)
    now = rows[-1][0]
    later = [(at - START + now, row._replace(g=row.g + 100)) for at, row in later if row.g is not None]
    after = iter(later)
    more = [next(after)[1] if isinstance(each, Order) else each for each in more]
    for name, result in run(queries, [*script, PAUSE, Eof(savepoint=True), *more], clock, tmp_path, 2).items():
        found[name] += result
    everything = [*rows, *later]
    tumble: dict[Any, list[Any]] = {}
    hop: Counter[Any] = Counter()
    for at, row in everything:
        tumble.setdefault((floor(at, 10).replace(tzinfo=None), row.k), []).append(row.v)
        hop.update((floor(at, 10) - timedelta(seconds=10 * back)).replace(tzinfo=None) for back in range(3))
    assert found["tumble"] == Counter(
        (start, start + timedelta(seconds=10), k, len(values), len(set(values))) for (start, k), values in tumble.items()
    )
    assert found["hop"] == Counter(hop.items())
    assert found["session"] == sessions(everything, 5)
    assert found["clock"] == Counter(
        (row.g, at, (bare := at.replace(tzinfo=None)), at.date(), bare.time().replace(microsecond=0), int(at.timestamp()), at)
        for at, row in everything
    )
    last = {row.k: row.g for _, row in everything}
    assert {row: count for row, count in found["latest"].items() if row[1] in last.values()} == dict.fromkeys(last.items(), 1)


def test_random_values_are_those_of_a_row() -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    env.set_parallelism(3)
    env.set_max_epoch_rows(100)
    tables = fp.StreamTableEnvironment.create(env)
    tables.execute_sql("CREATE TABLE t (k INT) WITH ('connector' = 'datagen', 'number-of-rows' = '400')")
    values = "UUID() AS a, UUID() AS b, RAND() AS c, RAND(5) AS d, RAND_INTEGER(7) AS e"
    query = f"SELECT {values} FROM t CROSS JOIN UNNEST(ARRAY[1, 2]) AS u (x)"
    rows = [tuple(row) for row in tables.execute_sql(query).collect()]
    assert len({value for row in rows for value in row[:2]}) == 1600
    for at in (2, 3):
        assert len({row[at] for row in rows}) == 800
        assert all(0 <= row[at] < 1 for row in rows)
        assert 0.45 < sum(row[at] for row in rows) / 800 < 0.55
    assert {row[4] for row in rows} == set(range(7))
    groups = "SELECT r, COUNT(*) AS n FROM (SELECT RAND_INTEGER(20) AS r FROM t) GROUP BY r HAVING COUNT(*) > 0"
    found: Counter[int] = Counter()
    for row in tables.execute_sql(groups).collect():
        found[row.r] += row.n if row.get_row_kind() is fp.RowKind.INSERT else -row.n
    assert sum(found.values()) == 400


def test_a_table_computes_columns_of_the_clock_where_it_is_read() -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    env.set_parallelism(2)
    env.set_max_epoch_rows(20)
    tables = fp.StreamTableEnvironment.create(env)
    tables.execute_sql(
        "CREATE TABLE t (k INT, ts AS LOCALTIMESTAMP, a AS UUID(), b AS UUID(), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) "
        "WITH ('connector' = 'datagen', 'number-of-rows' = '60', 'fields.k.min' = '1', 'fields.k.max' = '3')"
    )
    windows = "TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR))"
    found = tables.execute_sql(f"SELECT COUNT(*) AS n, COUNT(DISTINCT a) AS a FROM {windows} GROUP BY window_start, window_end")
    assert [sum(part) for part in zip(*map(tuple, found.collect()), strict=True)] == [60, 60]
    joined = "SELECT x.a FROM t AS x JOIN t AS y ON x.a = y.a AND x.a <> x.b"
    assert len({row.a for row in tables.execute_sql(joined).collect()}) == 60  # both sides read the same column
    on_windows = tables.from_path("t").window(fp.Tumble.over(fp.lit(1).hours).on(fp.col("ts")).alias("w")).group_by(fp.col("w"))
    assert sum(row[0] for row in on_windows.select(fp.col("k").count).execute().collect()) == 60

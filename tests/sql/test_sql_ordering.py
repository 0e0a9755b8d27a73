"""ORDER BY without LIMIT: by event time as the watermark passes, and of results whose input ends."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import forkpoint as fp
from forkpoint.sql.errors import Text
from forkpoint.sql.parser import parse
from forkpoint.sql.statements import Query
from forkpoint.table.schema import Schema
from forkpoint.table.session import Session
from forkpoint.testing import ABORT, PAUSE, Eof, TestSource, run_local


class Click(NamedTuple):
    k: str
    ms: int
    v: int | None


def run(query: str, script: list[Any], state: Path, parallelism: int) -> list[Any]:
    def job(env: fp.StreamExecutionEnvironment, source: TestSource) -> Any:
        session = Session(env)
        schema = (
            Schema.new_builder()
            .column_by_expression("ts", "TO_TIMESTAMP_LTZ(ms, 3)")
            .watermark("ts", "ts - INTERVAL '2' SECOND")
            .build()
        )
        stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "clicks", Click).uid("clicks")
        session.add_stream("clicks", stream, schema)
        (statement,) = parse(Text(query))
        assert isinstance(statement, Query)
        return session.stream(session.plan(statement), "sorted")

    done = run_local(job, script, parallelism=parallelism, state_root=str(state), options={"max_parallelism": 8})
    return [tuple(row) for row in done.output]


def test_rows_come_in_the_order_of_event_time(tmp_path: Path) -> None:
    rng = random.Random(3)
    rows = [Click(rng.choice("ab"), at * 100 + rng.randrange(0, 2000, 500), rng.choice([None, 1, 2])) for at in range(24)]
    script: list[Any] = []
    for row in rows:
        script += [*rng.choice([[], [], [PAUSE], [ABORT]]), row]
    query = "SELECT k, ms, v FROM clicks ORDER BY ts, v DESC, k"
    first = run(query, [*script[:20], PAUSE, Eof(savepoint=True)], tmp_path, 2)
    assert 0 < len(first) < len([row for row in script[:20] if isinstance(row, Click)])
    found = first + run(query, [*script[:20], PAUSE, Eof(savepoint=True), *script[20:]], tmp_path, 3)
    wanted = sorted(rows, key=lambda row: (row.ms, row.v is None, -(row.v or 0), row.k))
    assert found == [tuple(row) for row in wanted]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("SELECT k, v FROM t ORDER BY v DESC, k", [("b", 3), ("a", 1), ("c", 1), ("a", None)]),
        ("SELECT k FROM t ORDER BY v NULLS LAST, k DESC", [("c",), ("a",), ("b",), ("a",)]),
        ("SELECT k, COUNT(*) AS n FROM t GROUP BY k ORDER BY COUNT(v) DESC, 1", [("a", 2), ("b", 1), ("c", 1)]),
        ("SELECT k FROM t UNION ALL SELECT 'z' ORDER BY k DESC", [("z",), ("c",), ("b",), ("a",), ("a",)]),
    ],
)
def test_the_result_of_input_that_ends_is_sorted(query: str, wanted: list[Any]) -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    env.set_parallelism(2)
    tables = fp.StreamTableEnvironment.create(env)
    tables.create_temporary_view("t", tables.from_elements([("a", 1), ("b", 3), ("c", 1), ("a", None)], ["k", "v"]))
    assert [tuple(row) for row in tables.execute_sql(query).collect()] == wanted
    assert tables.sql_query(query).to_pandas().iloc[0, 0] == wanted[0][0]
    assert "; keeps rows until the input has ended" in tables.explain_sql(query)


def test_input_that_never_ends_has_no_order() -> None:
    tables = fp.StreamTableEnvironment.create(fp.StreamExecutionEnvironment.get_execution_environment())
    tables.execute_sql("CREATE TABLE t (k INT) WITH ('connector' = 'datagen')")
    with pytest.raises(fp.ConfigError, match="ORDER BY needs LIMIT, or input that ends"):
        tables.execute_sql("SELECT k FROM t ORDER BY k")
    with pytest.raises(fp.ConfigError, match="ORDER BY without LIMIT is for a query of its own"):
        tables.sql_query("SELECT k FROM t ORDER BY k").select(fp.col("k")).execute()

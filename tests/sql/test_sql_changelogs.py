"""Tables whose sources have changes: queries equal DuckDB's answer over the rows that remain, whatever comes twice."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import forkpoint as fp
from forkpoint.relational.changes import row_type
from forkpoint.relational.types import Field, SqlType
from forkpoint.sql.errors import Text
from forkpoint.sql.parser import parse
from forkpoint.sql.statements import Query
from forkpoint.table.catalog import StreamTable
from forkpoint.table.session import Session
from forkpoint.testing import ABORT, EOF, PAUSE, TestSource, run_local

SCHEMA = (Field("id", SqlType("BIGINT", nullable=False)), Field("k", SqlType("STRING")), Field("v", SqlType("BIGINT")))
QUERIES = [
    "SELECT id, v + 1 AS w FROM t WHERE v > 0",
    "SELECT k, COUNT(*), COUNT(v), SUM(v), MIN(v), MAX(v), COUNT(DISTINCT v) FROM t GROUP BY k",
    "SELECT a.id, b.v FROM t AS a LEFT JOIN t AS b ON a.v = b.id",
    "SELECT k, id, r FROM (SELECT k, id, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v NULLS FIRST, id) AS r FROM t) WHERE r < 3",
    "SELECT k FROM t WHERE v > 0 UNION ALL SELECT k FROM t WHERE v NOT IN (SELECT id FROM t)",
    "SELECT SUM(n), COUNT(*) FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k) HAVING COUNT(*) > 0",
]
Change = tuple[Any, ...]


def run(query: str, makes: str, script: list[Any], state: Path, parallelism: int) -> list[tuple[Any, ...]]:
    """The changes of the query's result in one run, each with its weight."""

    def job(env: fp.StreamExecutionEnvironment, source: TestSource) -> Any:
        session = Session(env)
        of = row_type(SCHEMA, updating=True)
        stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "t", of).uid("t")
        session.catalog.streams["t"] = StreamTable(SCHEMA, stream.edges, None, makes, ("id",))
        (statement,) = parse(Text(query))
        assert isinstance(statement, Query)
        return session.stream(session.plan(statement), "result")

    rows = [fp.Row(*each) if isinstance(each, tuple) else each for each in script]
    done = run_local(job, rows, state_root=str(state), parallelism=parallelism, options={"max_parallelism": 8})
    return [tuple(row) for row in done.output]


def next_changes(rng: random.Random, rows: dict[int, Change], makes: str) -> list[Change]:
    """One more change of the rows of a table, as its source has it."""
    key = rng.randrange(6)
    old = rows.pop(key, None)
    if rng.random() < 0.7:
        rows[key] = (key, rng.choice(["a", "b", None]), rng.choice([None, 0, 1, 2, 3]))
    if makes == "upserts":
        upsert = (*rows[key], 1) if key in rows else (key, None, None, -1)
        return [upsert] * rng.choice([1, 1, 2])
    return [*([(*old, -1)] if old else []), *([(*rows[key], 1)] if key in rows else [])]


@pytest.mark.parametrize("query", QUERIES)
@settings(max_examples=3, deadline=None)
@given(st.integers(0, 10**9), st.sampled_from(["upserts", "all"]))
def test_the_result_is_that_of_the_rows_that_remain(
    tmp_path_factory: pytest.TempPathFactory, query: str, seed: int, makes: str
) -> None:
    rng, state = random.Random(seed), tmp_path_factory.mktemp("state")
    rows: dict[int, Change] = {}
    script: list[Any] = []
    found: Counter[Any] = Counter()
    for _ in range(2):
        for _ in range(rng.randrange(4)):
            script += [each for _ in range(rng.randrange(8)) for each in next_changes(rng, rows, makes)]
            script.append(rng.choice([PAUSE, PAUSE, ABORT]))
        script += [PAUSE, EOF]
        for *values, weight in run(query, makes, script, state, rng.choice([1, 3])):
            found[tuple(values)] += weight
            assert found[tuple(values)] >= 0, (values, makes)
        columns = zip(*rows.values(), strict=True) if rows else ([], [], [])
        t = pa.table({f.name: pa.array(c, f.type.arrow_type) for f, c in zip(SCHEMA, columns, strict=True)})  # noqa: F841
        assert +found == Counter(map(tuple, duckdb.sql(query).fetchall())), makes

"""Two streams for joins, the jobs that join them, and DuckDB to compute the same over tables."""

import tempfile
from pathlib import Path
from typing import NamedTuple

import duckdb
import pandas as pd
import pyarrow as pa
from hypothesis import strategies as st

import forkpoint as fp
from forkpoint.testing import Eof, TestSource, run_local
from forkpoint.types import type_of

BOUND = 5


class Left(NamedTuple):
    key: str
    ts: int
    id: int


class Right(NamedTuple):
    key: str
    ts: int
    id: int
    price: float = 0.0


def strategy(bound=BOUND):
    return fp.WatermarkStrategy.for_bounded_out_of_orderness(bound).with_timestamp_assigner(lambda e, _: e.ts)


@st.composite
def elements(draw, kind, size=20, keys="ab"):
    """Elements of a kind, numbered, out of order by at most BOUND."""
    now, found = draw(st.integers(-30, 30)), []
    for i in range(draw(st.integers(0, size))):
        now += draw(st.integers(0, 6))
        found.append(kind(draw(st.sampled_from(keys)), now - draw(st.integers(0, BOUND)), i))
    return found


lefts, rights = elements(Left), elements(Right)


def two_sources(join, bound=BOUND):
    """A job over two sources; ``join(left, right)`` makes the stream."""

    def build(env, left, right):
        first = env.from_source(left, strategy(bound), "left").uid("left")
        second = env.from_source(right, strategy(bound), "right").uid("right")
        return join(first, second).uid("join")

    return build


def run(join, left, right, bound=BOUND, **how):
    return run_local(two_sources(join, bound), TestSource(left, type=Left), TestSource(right, type=Right), **how)


def run_in_two(join, left, right, at, first, second, rows=7, bound=BOUND):
    """Stopped with a savepoint behind ``at`` elements of the left, and restored at another parallelism: both runs."""
    script = [*left[:at], Eof(savepoint=True), *left[at:]]
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        before = run(join, script, right, bound, parallelism=first, state_root=one, epochs=rows)
        assert before.savepoint is not None
        after = run(join, script, right, bound, parallelism=second, state_root=two, restore=before.savepoint, epochs=rows)
    return [before, after]


def rows(*runs):
    """What came out, with timestamps, in a canonical order."""
    return sorted(((*r.value, r.timestamp) for run in runs for r in run.records["output"]), key=repr)


def one_source(join):
    """A job over one source of both kinds, so that the order of both sides is the same in every run."""
    both = type_of(Left | Right)

    def build(env, source):
        every = env.from_source(source, strategy(), "in").uid("in")
        first = every.filter(lambda e: isinstance(e, Left)).map(lambda e: e, output_type=Left)
        second = every.filter(lambda e: isinstance(e, Right)).map(lambda e: e, output_type=Right)
        return join(first, second)

    return build, lambda script: TestSource(script, type=both)


def run_one(join, script, **how):
    build, source = one_source(join)
    return run_local(build, source(script), **how)


def saved_rows(savepoint):
    """How many entries the keyed state and timers of a savepoint have."""
    files = Path(savepoint.removeprefix("file://")).rglob("*.parquet")
    return sum(len(pd.read_parquet(file)) for file in files)


def query(sql, left, right):
    """``sql`` over the tables l and r."""
    connection = duckdb.connect()
    try:
        for name, kind, values in (("l", Left, left), ("r", Right, right)):
            arrays = type_of(kind).to_columns(values)
            connection.register(name, pa.Table.from_arrays(arrays, schema=type_of(kind).arrow_schema))
        return sorted(connection.execute(sql).fetchall(), key=repr)
    finally:
        connection.close()

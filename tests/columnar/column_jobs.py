"""Windows and running aggregates as jobs, over columns or element by element, and what they leave in savepoints."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
from hypothesis import strategies as st

import forkpoint as fp
from forkpoint.runtime.columnar.running import ColumnRunning
from forkpoint.runtime.columnar.sessions import ColumnSessions
from forkpoint.runtime.columnar.windows import ByElements, ColumnTimeWindows
from forkpoint.testing import TestSource, run_local


class Sale(NamedTuple):
    shop: int
    till: str
    ts: int
    amount: int
    weight: float
    note: str


LATE = fp.OutputTag("late", Sale)
KEYS = {
    "int": lambda e: e.shop,
    "text": lambda e: e.till,
    "pair": lambda e: (e.shop, e.till),
}
AGGREGATES = {
    "n": fp.Count(),
    "noted": fp.Count("note"),
    "total": fp.Sum("amount"),
    "weight": fp.Sum("weight"),
    "least": fp.Min("weight"),
    "most": fp.Max("amount"),
    "mean": fp.Avg("amount"),
    "mean_weight": fp.Avg("weight"),
    "spread": fp.StdDev("weight"),
    "first": fp.First("note"),
    "last": fp.Last("amount"),
    "lightest": fp.MinBy("weight", "note"),
    "dearest": fp.MaxBy("amount"),
}
ONLY_BY_ELEMENTS = {
    "all": fp.Collect("amount"),
    "notes": fp.CountDistinct("note"),
    "top": fp.TopN("amount", 2),
}


def assigner_of(kind):
    match kind:
        case ("tumbling", size, offset):
            return fp.TumblingEventTimeWindows.of(size, offset)
        case ("sliding", size, slide):
            return fp.SlidingEventTimeWindows.of(size, slide)
        case ("session", gap):
            return fp.EventTimeSessionWindows.with_gap(gap)


class Setup(NamedTuple):
    """``windows``: None for running aggregates. ``end``: names of aggregates, or a built-in aggregate and its field."""

    windows: tuple | None
    end: tuple
    key: str
    lateness: int
    bound: int


def build(setup):
    def job(env, source):
        strategy = fp.WatermarkStrategy.for_bounded_out_of_orderness(setup.bound).with_timestamp_assigner(
            lambda e, _: e.ts
        )
        keyed = env.from_source(source, strategy, "in").uid("in").key_by(KEYS[setup.key])
        target = keyed
        bounds = {}
        if setup.windows is not None:
            target = (
                keyed.window(assigner_of(setup.windows)).allowed_lateness(setup.lateness).side_output_late_data(LATE)
            )
            bounds = {"window_start": fp.WindowStart(), "window_end": fp.WindowEnd()}
        match setup.end:
            case ("agg", *names):
                found = target.agg(**bounds, **{name: {**AGGREGATES, **ONLY_BY_ELEMENTS}[name] for name in names})
            case ("count",):
                found = target.count()
            case (method, field):
                found = getattr(target, method)(field)
        found = found.uid("aggregate")
        return {"out": found, "late": found.get_side_output(LATE)} if setup.windows is not None else {"out": found}

    return job


def run(setup, script, *, columnar, **how):
    return run_local(build(setup), TestSource(script, type=Sale, columnar=columnar), **how)


def results(run, setup):
    """Results of each key in their order, with timestamps; of windows that end together the order is open."""
    found = {}
    for record in run.records["out"]:
        found.setdefault(key_of(record.value, setup), []).append((repr(record.value), record.timestamp))
    late = sorted((repr(r.value), r.timestamp) for r in run.records.get("late", ()))
    return found, late


def key_of(value, setup):
    if setup.end == ("count",):
        return value[0]
    if setup.end[0] != "agg":
        return KEYS[setup.key](value)
    return value[:2] if setup.key == "pair" else value[0]


def saved(savepoint):
    """All rows of a savepoint's state, by kind of state."""
    found = {}
    for file in sorted(Path(savepoint.removeprefix("file://"), "operators").rglob("*.parquet")):
        for row in pq.read_table(file).to_pylist():
            found.setdefault(file.parent.name, []).append(repr(sorted(row.items())))
    return {name: sorted(rows) for name, rows in found.items()}


@contextmanager
def counting_columns():
    """How many epochs with elements were computed over columns, and how many were given to the other path."""
    counts = {"columns": 0, "elements": 0, "both": 0}
    kinds = (ColumnTimeWindows, ColumnSessions, ColumnRunning)
    saved_methods = [kind._run_columns for kind in kinds]

    def spy(method):
        def counted(self, batch, epoch, *skipped):
            try:
                outputs = method(self, batch, epoch, *skipped)
            except ByElements as left:
                counts["elements" if left.rows is None else "both"] += 1
                raise
            counts["columns" if outputs is not None else "elements"] += batch.size > 0 and not skipped
            return outputs

        return counted

    for kind, method in zip(kinds, saved_methods, strict=True):
        kind._run_columns = spy(method)
    try:
        yield counts
    finally:
        for kind, method in zip(kinds, saved_methods, strict=True):
            kind._run_columns = method


windows = st.one_of(
    st.tuples(st.just("tumbling"), st.integers(1, 12), st.integers(0, 0)),
    st.integers(2, 12).flatmap(lambda n: st.tuples(st.just("tumbling"), st.just(n), st.integers(-n + 1, n - 1))),
    st.tuples(st.just("sliding"), st.integers(1, 12), st.integers(1, 12)),
    st.tuples(st.just("session"), st.integers(1, 10)),
)
ends = st.one_of(
    st.lists(st.sampled_from(sorted(AGGREGATES)), min_size=1, max_size=6, unique=True).map(
        lambda names: ("agg", *names)
    ),
    st.just(("count",)),
    st.tuples(st.sampled_from(["sum", "min", "max", "min_by", "max_by"]), st.sampled_from(["amount", "weight"])),
)
amounts = st.one_of(st.integers(-5, 300), st.integers(-(2**40), 2**40))
weights = st.one_of(
    st.floats(-100, 100), st.sampled_from([0.1, 0.2, 0.3, 1e16, 1.0, 5e-324]), st.sampled_from([-0.0, float("nan"), float("inf")])
)  # fmt: skip
plain_weights = st.floats(-100, 100).map(lambda x: x + 0.0)


@st.composite
def setups(draw, running=True):
    shape = draw(st.one_of(windows, st.none())) if running else draw(windows)
    end = draw(ends if shape is not None else ends.filter(lambda end: end != ("count",)))
    return Setup(
        shape,
        end,
        draw(st.sampled_from(sorted(KEYS))),
        draw(st.sampled_from([0, 0, 0, 3, 20])),
        draw(st.integers(0, 8)),
    )


@st.composite
def sales(draw, size=30):
    """Elements with disorder, some of them late."""
    now, found = draw(st.integers(-20, 20)), []
    weight = draw(st.sampled_from([plain_weights, weights]))
    steps, behind = draw(st.sampled_from([(7, 18), (7, 3), (2, 1), (15, 0)]))
    for i in range(draw(st.integers(1, size))):
        now += draw(st.integers(0, steps))
        ts = now - draw(st.one_of(st.just(0), st.integers(0, behind)))
        shop, till = draw(st.integers(-1, 1)), draw(st.sampled_from(["x", "yy", ""]))
        found.append(Sale(shop, till, ts, draw(amounts), draw(weight), f"n{i}"))
    return found

"""Windows and running aggregates as jobs, over columns or element by element, and what they leave in savepoints."""

from __future__ import annotations

import math
import random
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple, Optional

import pyarrow.parquet as pq
from hypothesis import strategies as st

import forkpoint as fp
from forkpoint.runtime.columnar import objects
from forkpoint.runtime.columnar.running_aggregates import RunningKernel
from forkpoint.runtime.windows.columns import ColumnarUnsupported, ColumnKernel
from forkpoint.testing import TestSource, run_local


class Place(NamedTuple):
    street: Optional[str]  # noqa: UP045
    number: int


@dataclass
class Extra:
    """Of which nothing tells whether it is None itself."""

    gift: Optional[bool] = None  # noqa: UP045
    price: Optional[Decimal] = None  # noqa: UP045


class Sale(NamedTuple):
    shop: int
    till: str
    ts: int
    amount: int
    weight: float
    note: str
    opened: date = date(2024, 2, 29)
    discount: Optional[int] = None  # noqa: UP045
    rating: Optional[float] = None  # noqa: UP045
    label: Optional[str] = None  # noqa: UP045
    day: Optional[date] = None  # noqa: UP045
    at: Optional[fp.Instant] = None  # noqa: UP045
    took: Optional[timedelta] = None  # noqa: UP045
    paid: Optional[bool] = None  # noqa: UP045
    place: Optional[Place] = None  # noqa: UP045
    extra: Optional[Extra] = None  # noqa: UP045
    sizes: Optional[list[int]] = None  # noqa: UP045
    price: Optional[Decimal] = None  # noqa: UP045


LATE = fp.OutputTag("late", Sale)
KEYS = {
    "int": lambda e: e.shop,
    "text": lambda e: e.till,
    "pair": lambda e: (e.shop, e.till),
}
NO_KEY = "none"
PLAIN = {
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
    "all": fp.Collect("amount"),
    "whole": fp.Collect(),
    "notes": fp.CountDistinct("note"),
    "weights": fp.CountDistinct("weight"),
    "top": fp.TopN("amount", 2),
    "heaviest": fp.TopN("weight", 3),
    "first_note": fp.Min("note"),
    "last_note": fp.MaxBy("note", "amount"),
    "oldest": fp.MinBy("opened"),
}
OF_SOME = {
    "discounted": fp.Count("discount"),
    "discounts": fp.Sum("discount"),
    "ratings": fp.Sum("rating"),
    "mean_discount": fp.Avg("discount"),
    "mean_rating": fp.Avg("rating"),
    "spread_discount": fp.StdDev("discount"),
    "spread_rating": fp.StdDev("rating"),
    "least_discount": fp.Min("discount"),
    "most_rating": fp.Max("rating"),
    "least_label": fp.Min("label"),
    "most_label": fp.Max("label"),
    "most_day": fp.Max("day"),
    "least_at": fp.Min("at"),
    "most_took": fp.Max("took"),
    "least_paid": fp.Min("paid"),
    "first_label": fp.First("label"),
    "last_label": fp.Last("label"),
    "first_place": fp.First("place"),
    "last_place": fp.Last("place"),
    "first_extra": fp.First("extra"),
    "last_sizes": fp.Last("sizes"),
    "by_rating": fp.MinBy("rating", "place"),
    "by_label": fp.MaxBy("label", "extra"),
    "by_day": fp.MinBy("day"),
    "by_at": fp.MaxBy("at", "label"),
    "all_labels": fp.Collect("label"),
    "all_places": fp.Collect("place"),
    "all_extras": fp.Collect("extra"),
    "labels": fp.CountDistinct("label"),
    "discount_kinds": fp.CountDistinct("discount"),
    "rating_kinds": fp.CountDistinct("rating"),
    "days": fp.CountDistinct("day"),
    "ats": fp.CountDistinct("at"),
    "paids": fp.CountDistinct("paid"),
    "top_labels": fp.TopN("label", 3),
    "top_discounts": fp.TopN("discount", 1),
    "top_ats": fp.TopN("at", 5),
    "top_tooks": fp.TopN("took", 2),
}
AGGREGATES = {**PLAIN, **OF_SOME}
ONLY_BY_ELEMENTS = {
    "prices": fp.CountDistinct("price"),
    "least_price": fp.Min("price"),
    "top_prices": fp.TopN("price", 2),
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
    """``windows``: None for running aggregates. ``key``: of KEYS, or NO_KEY.

    ``end``: names of aggregates, or a built-in aggregate and its field.
    """

    windows: tuple | None
    end: tuple
    key: str
    lateness: int
    bound: int


def build(setup):
    def job(env, source):
        strategy = fp.WatermarkStrategy.for_bounded_out_of_orderness(setup.bound).with_timestamp_assigner(lambda e, _: e.ts)
        stream = env.from_source(source, strategy, "in").uid("in")
        target = stream if setup.key == NO_KEY else stream.key_by(KEYS[setup.key])
        bounds = {}
        if setup.windows is not None:
            window = target.window_all if setup.key == NO_KEY else target.window
            target = window(assigner_of(setup.windows)).allowed_lateness(setup.lateness).side_output_late_data(LATE)
            bounds = {"window_start": fp.WindowStart(), "window_end": fp.WindowEnd()}
        match setup.end:
            case ("agg", *names):
                found = target.agg(**bounds, **{name: {**ONLY_BY_ELEMENTS, **AGGREGATES}[name] for name in names})
            case ("count",):
                found = target.count()
            case (method, field):
                found = getattr(target, method)(field)
        found = found.uid("aggregate")
        return {"out": found, "late": found.get_side_output(LATE)} if setup.windows is not None else {"out": found}

    return job


OBJECTS = "objects"  # Python objects that the operators turn into columns


def run(setup, script, *, columnar, **how):
    """``columnar``: True where elements come as columns, OBJECTS, or False for element by element."""
    with nullcontext() if columnar else by_elements():
        return run_local(build(setup), TestSource(script, type=Sale, columnar=columnar is True), **how)


@contextmanager
def by_elements():
    """No objects are turned into columns."""
    fits, objects._fits = objects._fits, lambda values, type: False
    try:
        yield
    finally:
        objects._fits = fits


def results(run, setup):
    """Results of each key in their order, with timestamps; of windows that end together the order is open."""
    found = {}
    for record in run.records["out"]:
        found.setdefault(key_of(record.value, setup), []).append((repr(record.value), record.timestamp))
    late = sorted((repr(r.value), r.timestamp) for r in run.records.get("late", ()))
    return found, late


def key_of(value, setup):
    if setup.key == NO_KEY:
        return None
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
    kinds = (ColumnKernel, RunningKernel)
    saved_methods = [kind.compute for kind in kinds]

    def spy(method):
        def counted(self, batch, epoch=None, *skipped):
            try:
                outputs = method(self, batch) if epoch is None else method(self, batch, epoch, *skipped)
            except ColumnarUnsupported as left:
                counts["elements" if left.rows is None else "both"] += 1
                raise
            counts["columns" if outputs is not None else "elements"] += batch.size > 0 and not skipped
            return outputs

        return counted

    for kind, method in zip(kinds, saved_methods, strict=True):
        kind.compute = spy(method)
    try:
        yield counts
    finally:
        for kind, method in zip(kinds, saved_methods, strict=True):
            kind.compute = method


windows = st.one_of(
    st.tuples(st.just("tumbling"), st.integers(1, 12), st.integers(0, 0)),
    st.integers(2, 12).flatmap(lambda n: st.tuples(st.just("tumbling"), st.just(n), st.integers(-n + 1, n - 1))),
    st.tuples(st.just("sliding"), st.integers(1, 12), st.integers(1, 12)),
    st.tuples(st.just("session"), st.integers(1, 10)),
)
ends = st.one_of(
    st.lists(st.sampled_from(sorted(AGGREGATES)), min_size=1, max_size=6, unique=True).map(lambda names: ("agg", *names)),
    st.just(("count",)),
    st.tuples(st.sampled_from(["sum", "min", "max", "min_by", "max_by"]), st.sampled_from(["amount", "weight"])),
    st.tuples(st.sampled_from(["min", "max", "min_by", "max_by"]), st.sampled_from(["note", "opened"])),
)
amounts = st.one_of(st.integers(-5, 300), st.integers(-(2**40), 2**40))


def optionals(count, seed=3):
    """What the fields that may be None are, from ``discount`` on."""
    made, found = random.Random(seed), [(None,) * 11]
    for _ in range(count):
        start = datetime(2024, 1, 1, tzinfo=UTC)
        values = [
            made.choice([made.randint(-3, 3), made.randint(-(2**50), 2**50)]),
            made.choice([0.1, 0.2, -0.3, 1e16, made.uniform(-9, 9)]),
            made.choice(["", "a", "b", "ab", "é", "z\x00", "語", "\U0001f600", "\uffff"]),
            date(1969, 12, 30) + timedelta(made.randint(0, 5)),
            start + timedelta(microseconds=made.randint(-9, 9)),
            timedelta(microseconds=made.randint(-9, 9)),
            made.random() < 0.5,
            Place(made.choice([None, "x", "y" * 40]), made.randint(0, 2)),
            Extra(made.choice([None, True]), made.choice([None, Decimal("1.50")])),
            made.choice([[], [1], [2, 300]]),
            Decimal(made.choice(["1", "1.0", "2.5"])),
        ]
        found.append(tuple(value if made.random() < 0.6 else None for value in values))
    return found


SOME = optionals(60)


def comparable(events):
    """Whether Python and numpy choose the same among their weights."""
    return not any(math.isnan(e.weight) or (e.weight == 0 and math.copysign(1, e.weight) < 0) for e in events)


weights = st.one_of(
    st.floats(-100, 100),
    st.sampled_from([0.1, 0.2, 0.3, 1e16, 1.0, 5e-324]),
    st.sampled_from([-0.0, float("nan"), float("inf")]),
)
plain_weights = st.floats(-100, 100).map(lambda x: x + 0.0)


@st.composite
def setups(draw, running=True):
    shape = draw(st.one_of(windows, st.none())) if running else draw(windows)
    end = draw(ends if shape is not None else ends.filter(lambda end: end != ("count",)))
    return Setup(
        shape,
        end,
        draw(st.sampled_from(sorted(KEYS) + [NO_KEY] * (shape is not None))),
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
        some = draw(st.sampled_from(SOME))
        note, opened = draw(st.sampled_from([f"n{i}", "n1", "", "ü"])), date(1970, 1, 1) + timedelta(i * 7 % 5 - 2)
        found.append(Sale(shop, till, ts, draw(amounts), draw(weight), note, opened, *some))
    return found

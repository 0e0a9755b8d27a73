"""What the aggregates are, what they refuse, and that they are computed over columns where they should be."""

import math
import random
import statistics
from datetime import date
from itertools import product
from typing import NamedTuple, Optional

import numpy as np
import pyarrow as pa
import pytest
from column_jobs import (
    AGGREGATES,
    ONLY_BY_ELEMENTS,
    SOME,
    Sale,
    Setup,
    comparable,
    counting_columns,
    results,
    run,
    sales,
    saved,
)
from hypothesis import given
from hypothesis import strategies as st

import forkpoint as fp
from example_counts import examples
from forkpoint.errors import RestoreRefused, TypeNotSupported
from forkpoint.functions.aggregates import Aggregates, RowShape
from forkpoint.graph.options import RestoreOptions
from forkpoint.runtime.columnar.leaves import Codec, empty_leaves
from forkpoint.runtime.columnar.plans import aggregates_plan
from forkpoint.runtime.columnar.segments import Segments
from forkpoint.runtime.windows.session_columns import SessionColumns
from forkpoint.testing import Eof, TestSource, run_local
from forkpoint.types import Types, type_of

numbers = st.integers(-100, 100)


@examples(25)
@given(st.lists(st.tuples(st.one_of(st.none(), numbers), numbers), min_size=1, max_size=12), st.integers(0, 12))
def test_each_aggregate_against_plain_python(pairs, cut):
    """Also split in two at any place and merged."""
    values = [x for x, _ in pairs if x is not None]
    best = [(x, y) for x, y in pairs if x is not None]
    expected = {
        fp.Count(): len(pairs),
        fp.Count(0): len(values),
        fp.Sum(0): sum(values) if values else None,
        fp.Min(0): min(values, default=None),
        fp.Max(0): max(values, default=None),
        fp.First(0): values[0] if values else None,
        fp.Last(0): values[-1] if values else None,
        fp.Avg(0): statistics.fmean(values) if values else None,
        fp.StdDev(0): statistics.pstdev(values) if values else None,
        fp.MinBy(0, 1): min(best, key=lambda p: p[0])[1] if best else None,
        fp.MaxBy(0): max(best, key=lambda p: p[0]) if best else None,
        fp.Collect(0): values,
        fp.Collect(): pairs,
        fp.CountDistinct(0): len(set(values)),
        fp.TopN(0, 3): sorted(values, reverse=True)[:3],
    }
    for aggregate, result in expected.items():
        parts = [aggregate.create_accumulator(), aggregate.create_accumulator()]
        for i, pair in enumerate(pairs):
            parts[i >= cut] = aggregate.add(pair, parts[i >= cut])
        found = aggregate.get_result(aggregate.merge(*parts))
        if isinstance(result, float):
            assert math.isclose(found, result, abs_tol=1e-9), aggregate
        else:
            assert found == result, aggregate


def random_sales(count, seed=5, disorder=(0, 0, 0, 4)):
    made = random.Random(seed)
    now, found = 0, []
    for i in range(count):
        now += made.randint(0, 4)
        ts = now - made.choice(disorder)
        shop, till, amount, weight = made.randint(0, 4), made.choice("xy"), made.randint(0, 99), made.random()
        found.append(Sale(shop, till, ts, amount, weight, f"n{i % 7}", date(2024, 1, 1 + i % 9), *made.choice(SOME)))
    return found


WINDOWED = [
    *product([("tumbling", 10, 0), ("sliding", 12, 4), ("session", 6)], ["int", "text", "pair", "none"]),
    *product([None], ["int", "text", "pair"]),
]
KEYS_OF = {"tumbling": ["int", "none"], "sliding": ["pair"], "session": ["text"]}  # each kind of each, but not with all others
ENDS = [("sum", "amount"), ("min", "weight"), ("max_by", "opened")]  # the key is nothing to them


def first_keys(windows):
    """Of the keys, those that `make test` looks at together with these windows."""
    return ["int"] if windows is None else KEYS_OF[windows[0]]


@pytest.mark.parametrize(
    ("end", "windows", "key"),
    [
        *(
            pytest.param(("agg", *AGGREGATES), windows, key, marks=[] if key in first_keys(windows) else [pytest.mark.slow])
            for windows, key in WINDOWED
        ),
        *(
            pytest.param(end, windows, key, marks=[] if key == "int" and first_keys(windows) else [pytest.mark.slow])
            for end in ENDS
            for windows, key in WINDOWED
        ),
    ],
)
def test_columns_are_computed_as_columns(windows, end, key):
    setup = Setup(windows, end, key, 0, 5)
    events = random_sales(90)
    with counting_columns() as counts:
        found = run(setup, events, columnar=True, parallelism=2, epochs=30)
    assert counts["elements"] == 0
    assert counts["both"] == 0 or windows == ("session", 6)
    assert counts["columns"] + counts["both"] in (3, 6)  # three epochs, on one or two subtasks
    assert results(found, setup) == results(run(setup, events, columnar=False), setup)


@pytest.mark.parametrize(
    ("windows", "columnar"),
    [
        (("tumbling", 10, 0), True),
        (("sliding", 12, 4), False),
        (("session", 6), True),
        (None, False),
        pytest.param(("tumbling", 10, 0), False, marks=pytest.mark.slow),
        pytest.param(("sliding", 12, 4), True, marks=pytest.mark.slow),
        pytest.param(("session", 6), False, marks=pytest.mark.slow),
        pytest.param(None, True, marks=pytest.mark.slow),
    ],
)
def test_all_that_is_saved_is_what_elements_save(windows, columnar, tmp_path):
    """And either way goes on from the other's savepoint."""
    setup = Setup(windows, ("agg", *AGGREGATES), "pair", 0, 5)
    events = random_sales(90, seed=8)
    script = [*events[:50], Eof(savepoint=True), *events[50:]]
    first = {mode: run(setup, script, columnar=mode, state_root=tmp_path / str(mode)) for mode in (True, False)}
    assert saved(first[True].savepoint) == saved(first[False].savepoint)
    with counting_columns() as counts:
        rest = run(setup, script, columnar=columnar, state_root=tmp_path / "rest", restore=first[not columnar].savepoint)
    assert (counts["columns"] + counts["both"] > 0) == columnar
    begun, late = results(first[not columnar], setup)
    ended, later = results(rest, setup)
    joined = {key: begun.get(key, []) + ended.get(key, []) for key in begun.keys() | ended.keys()}
    assert (joined, sorted(late + later)) == results(run(setup, events, columnar=False), setup)


@examples(7)
@given(sales(), st.integers(0, 29))
def test_accumulators_have_the_same_bytes(events, at):
    """Of all rows that come in one go, and behind each one that does; from nothing, and from what is saved of others."""
    events = [e._replace(weight=0.5) if not comparable([e]) else e for e in events]
    elements, rows = type_of(Sale), sorted(range(at, len(events)), key=lambda i: events[i].shop)
    if not rows:
        return
    table = pa.RecordBatch.from_arrays(elements.to_columns(events), schema=elements.arrow_schema)
    shops = [events[i].shop for i in rows]
    keys, known = sorted(set(shops)), list(dict.fromkeys(e.shop for e in events[:at]))
    segments = Segments(
        table,
        np.array(rows),
        np.array([*map(shops.index, keys), len(rows)]),
        np.array([known.index(key) if key in known else -1 for key in keys]),
    )
    for aggregate in AGGREGATES.values():  # each by itself: what has dates in it is not encoded in bulk
        aggregates = Aggregates([aggregate])
        codec = Codec(aggregates.accumulator_type(elements))
        plan = aggregates_plan(aggregates, RowShape(elements, (), False, {}), codec.type, elements)
        accumulators, stored = {}, {}
        for i, event in enumerate(events):
            before = accumulators.get(event.shop) or aggregates.create_accumulator()
            accumulators[event.shop] = aggregates.add(event, before)
            if i < at:
                stored[event.shop] = codec.type.encode(accumulators[event.shop])
        leaves = codec.decode([stored[key] for key in known]) if known else empty_leaves(codec.type)
        expected = [codec.type.encode(accumulators[key]) for key in keys]
        assert codec.encode(plan.update(segments, leaves)) == expected
        assert codec.encode(plan.running(segments, leaves).leaves) == expected


def test_epochs_that_columns_cannot_compute_are_computed_by_element():
    setup = Setup(("tumbling", 10, 0), ("agg", "least"), "int", 0, 5)
    events = [e._replace(weight=math.nan) if i == 30 else e for i, e in enumerate(random_sales(60))]
    with counting_columns() as counts:
        found = run(setup, events, columnar=True, parallelism=1, epochs=20)
    assert counts == {"columns": 2, "elements": 1, "both": 0}
    assert results(found, setup) == results(run(setup, events, columnar=False), setup)


def test_sums_beyond_64_bits_do_not_go_round():
    setup = Setup(("tumbling", 10, 0), ("agg", "total"), "int", 0, 5)
    events = [Sale(1, "x", 1, 2**62, 0.0, "")] * 3
    for columnar in (True, False):
        with pytest.raises(TypeNotSupported, match=r"\d+ is not a value of LONG"):
            run(setup, events, columnar=columnar, parallelism=1, epochs=2)


def test_sessions_are_found_key_by_key_where_many_more_are_in_flight(monkeypatch):
    monkeypatch.setattr("forkpoint.runtime.windows.session_columns._FEW", -(10**9))
    scans = []
    scanned = SessionColumns._scanned
    monkeypatch.setattr(SessionColumns, "_scanned", lambda self, *a: scans.append(1) or scanned(self, *a))
    setup = Setup(("session", 9), ("agg", "n", "total", "first"), "text", 0, 3)
    events = random_sales(150)
    found = run(setup, events, columnar=True, epochs=10)
    assert results(found, setup) == results(run(setup, events, columnar=False), setup)
    assert scans


class Reading(NamedTuple):
    room: int
    ts: int
    value: Optional[float]  # noqa: UP045


READINGS = [Reading(i % 3, i * 2, None if i % 5 == 0 else i / 4) for i in range(60)]


def readings_job(**aggregates):
    def job(env, source):
        strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e.ts)
        keyed = env.from_source(source, strategy, "in").uid("in").key_by(lambda e: e.room)
        return keyed.window(fp.TumblingEventTimeWindows.of(20)).agg(**aggregates).uid("windows")

    return job


@pytest.mark.parametrize("columnar", [True, False])
def test_none_is_left_out(columnar):
    job = readings_job(n=fp.Count(), values=fp.Count("value"), total=fp.Sum("value"), mean=fp.Avg("value"))
    found = run_local(job, TestSource(READINGS, type=Reading, columnar=columnar), epochs=7).output
    assert len(found) == 18
    for row, window in ((r, [e for e in READINGS if e.room == r.room]) for r in found):
        assert (row.n, row.values) in {(3, 3), (3, 2), (4, 3), (4, 4), (4, 2), (3, 1)}
        assert math.isclose(row.mean, row.total / row.values)
        assert len(window) == 20


def test_rows_are_named_after_the_key_and_typed():
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([Sale(1, "x", 1, 2, 0.5, "n")], Sale)
    rows = stream.key_by(lambda e: (e.shop, e.till)).window(fp.TumblingEventTimeWindows.of(5))
    found = rows.agg(start=fp.WindowStart(), n=fp.Count(), total=fp.Sum("weight"), top=fp.TopN("note", 2)).get_type()
    assert [f.name for f in found.fields] == ["shop", "till", "start", "n", "total", "top"]
    assert [f.type.kind for f in found.fields] == ["long", "string", "long", "long", "optional", "list"]
    assert stream.key_by(lambda e: e.shop % 2, Types.INT()).agg(n=fp.Count()).get_type().names == ("key", "n")
    everything = stream.window_all(fp.TumblingEventTimeWindows.of(5)).agg(n=fp.Count())
    assert everything.get_type().names == ("n",)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda w: w.agg(), "at least one"),
        (lambda w: w.agg(x=fp.Sum("amounts")), "no such field; they have shop, till"),
        (lambda w: w.agg(x=fp.Avg("note")), "expected a number or duration"),
        (lambda w: w.agg(shop=fp.Count()), "already called 'shop'"),
        (lambda w: w.agg(x="amount"), r"agg\(x=fp.Sum\('price'\)\)"),
        (lambda w: w.agg(x=fp.TopN("amount", 0)), "at least 1"),
        (lambda w: w._stream.agg(start=fp.WindowStart()), "only time windows"),
        (lambda w: w._stream.count_window(3).agg(start=fp.WindowStart()), "only time windows"),
    ],
)
def test_what_makes_no_row_is_refused(make, message):
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    keyed = env.from_collection([Sale(1, "x", 1, 2, 0.5, "n")], Sale).key_by(lambda e: e.shop)
    with pytest.raises(fp.GraphError, match=message):
        make(keyed.window(fp.TumblingEventTimeWindows.of(5)))


def test_one_aggregate_alone_is_an_aggregate_function():
    def job(env, source):
        strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e.ts)
        keyed = env.from_source(source, strategy, "in").key_by(lambda e: e.room)
        return keyed.window(fp.TumblingEventTimeWindows.of(60)).aggregate(fp.Collect("ts"))

    found = run_local(job, TestSource(READINGS, type=Reading)).output
    assert sorted(found)[0] == [e.ts for e in READINGS if e.room == 0 and e.ts < 60]


def test_an_aggregate_may_be_added_renamed_and_dropped(tmp_path):
    """What it counts begins with the restore; one of the same field and kind goes on under another name."""
    script = [*READINGS[:33], Eof(savepoint=True), *READINGS[33:]]
    first = readings_job(n=fp.Count(), total=fp.Sum("value"))
    stopped = run_local(first, TestSource(script, type=Reading), state_root=tmp_path / "1", parallelism=2)
    second = readings_job(elements=fp.Count(), most=fp.Max("ts"))
    source = TestSource(script, type=Reading, columnar=True)
    with pytest.raises(RestoreRefused, match="would lose sum_value"):
        run_local(second, source, state_root=tmp_path / "2", restore=stopped.savepoint, parallelism=1)
    restore = RestoreOptions(stopped.savepoint, allow_non_restored=True)
    after = run_local(second, source, state_root=tmp_path / "2", restore=restore, parallelism=1)
    rows = sorted(after.output)
    whole = sorted(run_local(second, TestSource(READINGS, type=Reading)).output)
    # The windows that were open at the savepoint count on; what they have of the new aggregate begins there.
    assert [r.elements for r in rows] == [w.elements for w in whole if w.most >= READINGS[33].ts - 3]
    assert all(r.most in {None, *(w.most for w in whole)} for r in rows)


def test_accumulators_are_named_columns_of_savepoints(tmp_path):
    setup = Setup(("tumbling", 1000, 0), ("agg", "n", "total", "mean"), "text", 0, 0)
    events = [Sale(1, "x", 1, 5, 0.5, ""), Sale(1, "x", 2, 6, 0.5, "")]
    stopped = run(setup, [*events, Eof(savepoint=True), *events], columnar=True, state_root=tmp_path)
    (row,) = saved(stopped.savepoint)["window-contents"]
    for part in ("('count', 2)", "('sum_amount', 11)", "('key', 'x')", "('namespace_end', 1000)"):
        assert part in row


def test_windows_of_aggregates_that_need_elements(tmp_path):
    setup = Setup(("session", 6), ("agg", "n", *ONLY_BY_ELEMENTS), "int", 0, 5)
    events = random_sales(60)
    whole = results(run(setup, events, columnar=True, parallelism=1), setup)
    assert results(run(setup, events, columnar=True, parallelism=3, epochs=7), setup) == whole
    assert sum(len(rows) for rows in whole[0].values()) > 5

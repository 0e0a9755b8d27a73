"""Keys of floats, dates, times, and such as may be None, over columns: results and saved bytes are those of the elements."""

import math
import tempfile
from contextlib import nullcontext
from datetime import UTC, date, datetime, time, timedelta

import pytest
from column_jobs import assigner_of, by_elements, counting_columns, saved
from hypothesis import given
from hypothesis import strategies as st

import forkpoint as fp
from example_counts import examples
from forkpoint.testing import Eof, TestSource, run_local
from forkpoint.types import Types
from forkpoint.types.kinds.containers import optional

FLOATS = [0.0, -0.0, 1.5, -2.0, 2.0**-149, math.inf, -math.inf, math.nan]
INSTANTS = [
    datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
    datetime(2024, 2, 29, tzinfo=UTC),
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, tzinfo=UTC),
]
KEY_VALUES = {
    "double": (Types.DOUBLE(), [*FLOATS, 0.1, 1e308, 5e-324]),
    "float": (Types.FLOAT(), [*FLOATS, 0.25, 2.0**100]),
    "date": (Types.SQL_DATE(), [moment.date() for moment in INSTANTS]),
    "time": (Types.SQL_TIME(), [time(0), time(23, 59, 59, 999_999), time(7)]),
    "timestamp": (Types.SQL_TIMESTAMP(), [moment.replace(tzinfo=None) for moment in INSTANTS]),
    "instant": (Types.INSTANT(), INSTANTS),
    "duration": (Types.DURATION(), [timedelta(0), timedelta(microseconds=-1), timedelta(days=400)]),
    "boolean": (Types.BOOLEAN(), [True, False]),
    "optional long": (optional(Types.LONG()), [1, -7, 2**62]),
    "optional text": (optional(Types.STRING()), ["", "a", "\u00e4"]),
}
WINDOWS = [("tumbling", 10, 0), ("sliding", 12, 5), ("session", 4), None]


def job(windows, lateness, *, pair):
    def build(env, source):
        strategy = fp.WatermarkStrategy.for_bounded_out_of_orderness(3).with_timestamp_assigner(lambda e, _: e[1])
        stream = env.from_source(source, strategy, "in").uid("in")
        target = stream.key_by(lambda e: (e[0], e[2])) if pair else stream.key_by(lambda e: e[0])
        if windows is not None:
            target = target.window(assigner_of(windows)).allowed_lateness(lateness)
        return target.agg(n=fp.Count(), total=fp.Sum(1), last=fp.Last(1)).uid("aggregate")

    return build


def run(kind, events, setup, *, columnar, **how):
    type = Types.TUPLE([KEY_VALUES[kind][0], Types.LONG(), Types.INT()])
    with nullcontext() if columnar else by_elements():
        return run_local(job(**setup), TestSource(events, type=type, columnar=columnar), **how)


def results(*runs):
    """Results of each key in their order, with timestamps. Keys as text: NaN equals nothing."""
    found = {}
    for run in runs:
        for record in run.records["output"]:
            found.setdefault(repr(record.value[:-3]), []).append((repr(record.value), record.timestamp))
    return found


@st.composite
def cases(draw):
    kind = draw(st.sampled_from(sorted(KEY_VALUES)))
    setup = {
        "windows": draw(st.sampled_from(WINDOWS)),
        "lateness": draw(st.sampled_from([0, 0, 4])),
        "pair": draw(st.booleans()),
    }
    values = KEY_VALUES[kind][1]
    if setup["pair"] and kind.startswith("optional") and draw(st.booleans()):
        values = [*values, None]  # alone, it is no key
    key = st.sampled_from(values)
    now, events = 0, []
    for _ in range(draw(st.integers(1, 80))):
        now += draw(st.integers(0, 3))
        events.append((draw(key), now - draw(st.integers(0, 5)), draw(st.integers(0, 1))))
    return kind, events, setup


@examples(8)
@given(cases(), st.sampled_from([1, 4, 12]), st.integers(1, 3))
def test_results_in_any_number_of_epochs(case, epochs, parallelism):
    kind, events, setup = case
    expected = run(kind, events, setup, columnar=False, parallelism=1)
    rows = max(1, len(events) // epochs)
    found = run(kind, events, setup, columnar=True, parallelism=parallelism, epochs=rows)
    assert results(found) == results(expected)


@examples(6)
@given(cases(), st.integers(1, 79), st.integers(3, 40), st.booleans(), st.integers(1, 3))
def test_saved_bytes_are_the_same_and_either_restores_the_others(case, at, rows, columnar, parallelism):
    kind, events, setup = case
    script = [*events[:at], Eof(savepoint=True), *events[at:]]
    with tempfile.TemporaryDirectory() as root:
        stopped = {
            mode: run(kind, script, setup, columnar=mode, parallelism=2, state_root=f"{root}/{mode}", epochs=rows)
            for mode in (False, True)
        }
        if stopped[True].savepoint is None:  # the input ended ahead of it
            return
        assert saved(stopped[True].savepoint) == saved(stopped[False].savepoint)
        rest = run(
            kind,
            script,
            setup,
            columnar=columnar,
            parallelism=parallelism,
            state_root=f"{root}/rest",
            epochs=rows,
            restore=stopped[not columnar].savepoint,
        )
    assert results(stopped[not columnar], rest) == results(run(kind, events, setup, columnar=False, parallelism=1))


@pytest.mark.parametrize(
    ("kind", "windows", "pair"),
    [  # each kind of key alone and in a pair, and each kind of window, but not all with all
        pytest.param(kind, windows, pair, marks=[] if (i + j) % 4 == 2 * pair else [pytest.mark.slow])
        for i, kind in enumerate(KEY_VALUES)
        for j, windows in enumerate(WINDOWS)
        for pair in (False, True)
    ],
)
def test_they_are_computed_as_columns(kind, windows, pair):
    values = KEY_VALUES[kind][1]
    events = [(values[i % len(values)], i, i % 2) for i in range(30)]
    setup = {"windows": windows, "lateness": 0, "pair": pair}
    with counting_columns() as counts:
        found = run(kind, events, setup, columnar=True, parallelism=1, epochs=10)
    assert counts == {"columns": 3, "elements": 0, "both": 0}
    assert results(found) == results(run(kind, events, setup, columnar=False, parallelism=1))


def test_days_are_days():
    """An example by hand: what the bytes of the columns stand for."""
    events = [(date(2024, 2, 29), 1, 0), (date(2024, 3, 1), 2, 0), (date(2024, 2, 29), 3, 0)]
    setup = {"windows": ("tumbling", 10, 0), "lateness": 0, "pair": False}
    found = run("date", events, setup, columnar=True).output
    assert sorted(map(tuple, found)) == [(date(2024, 2, 29), 2, 4, 3), (date(2024, 3, 1), 1, 2, 2)]

"""Elements that come as Python objects, behind a map say: computed over columns where they fit into them."""

import tempfile
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum
from typing import NamedTuple, Optional

import numpy as np
import pytest
from column_jobs import (
    OBJECTS,
    Place,
    Sale,
    Setup,
    assigner_of,
    by_elements,
    comparable,
    counting_columns,
    results,
    run,
    sales,
    saved,
    setups,
)
from hypothesis import given
from hypothesis import strategies as st

import forkpoint as fp
from example_counts import examples
from forkpoint.runtime.columnar.objects import as_columns
from forkpoint.runtime.exchange.batch import Batch
from forkpoint.testing import Eof, TestSource, run_local
from forkpoint.types import Types, type_of

WINDOWS = [("tumbling", 10, 0), ("sliding", 12, 4), ("session", 6), None]


@examples(7)
@given(setups(), sales(), st.sampled_from([1, 4, 12]), st.integers(1, 3))
def test_results_in_any_number_of_epochs(setup, events, epochs, parallelism):
    expected = results(run(setup, events, columnar=False, parallelism=1), setup)
    rows = max(1, len(events) // epochs)
    with counting_columns() as counts:
        found = results(run(setup, events, columnar=OBJECTS, parallelism=parallelism, epochs=rows), setup)
    assert found == expected
    if comparable(events) and not setup.lateness and setup.windows and setup.windows[0] != "session":
        assert counts["columns"] > counts["both"] == counts["elements"]


@examples(5)
@given(setups(), sales(), st.integers(1, 29), st.integers(1, 30), st.booleans(), st.integers(1, 3))
def test_saved_bytes_are_the_same_and_either_restores_the_others(setup, events, at, rows, turned, parallelism):
    script = [*events[:at], Eof(savepoint=True), *events[at:]]
    modes = {True: OBJECTS, False: False}  # by whether objects are turned into columns
    with tempfile.TemporaryDirectory() as root:
        stopped = {
            mode: run(setup, script, columnar=how, parallelism=2, state_root=f"{root}/{mode}", epochs=rows)
            for mode, how in modes.items()
        }
        if stopped[True].savepoint is None:  # the input ended ahead of it
            return
        assert saved(stopped[True].savepoint) == saved(stopped[False].savepoint)
        rest = run(
            setup,
            script,
            columnar=modes[turned],
            parallelism=parallelism,
            state_root=f"{root}/rest",
            epochs=rows,
            restore=stopped[not turned].savepoint,
        )
    first, late = results(stopped[not turned], setup)
    second, later = results(rest, setup)
    joined = {key: first.get(key, []) + second.get(key, []) for key in first.keys() | second.keys()}
    assert (joined, sorted(late + later)) == results(run(setup, events, columnar=False), setup)


class Measure(NamedTuple):
    room: str
    ts: int
    value: float


def job(windows):
    def build(env, source):
        strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e.ts)
        doubled = env.from_source(source, strategy, "in").uid("in").map(double, Measure)
        target = doubled.key_by(lambda e: e.room)
        if windows is not None:
            target = target.window(windows)
        return target.agg(n=fp.Count(), total=fp.Sum("value"), first=fp.First("value")).uid("aggregate")

    return build


def double(measure):
    return measure._replace(value=measure.value * 2)


@pytest.mark.parametrize("kind", [("tumbling", 10, 0), ("session", 3), None])
def test_behind_a_map_of_python_it_is_columns_again(kind):
    windows = None if kind is None else assigner_of(kind)
    events = [Measure("ab"[i % 2], i, i / 4) for i in range(60)]
    with counting_columns() as counts:
        found = run_local(job(windows), TestSource(events, type=Measure, columnar=True), parallelism=1, epochs=20)
    assert counts == {"columns": 3, "elements": 0, "both": 0}
    with by_elements(), counting_columns() as counts:
        expected = run_local(job(windows), TestSource(events, type=Measure), parallelism=1, epochs=20)
    assert counts["columns"] == 0
    assert Counter(map(repr, found.output)) == Counter(map(repr, expected.output))


def test_an_int_in_the_place_of_a_float_is_one_like_it_where_it_enters(tmp_path):
    events = [Measure("a", i, 3 if i == 30 else i / 4) for i in range(60)]
    windows = fp.TumblingEventTimeWindows.of(50)
    script = [*events[:40], Eof(savepoint=True), *events[40:]]
    with counting_columns() as counts:
        found = run_local(job(windows), TestSource(script, type=Measure), parallelism=1, epochs=20, state_root=tmp_path / "1")
    assert counts == {"columns": 2, "elements": 0, "both": 0}
    with by_elements():
        source = TestSource(script, type=Measure)
        expected = run_local(job(windows), source, parallelism=1, epochs=20, state_root=tmp_path / "2")
    assert saved(found.savepoint) == saved(expected.savepoint)


class Color(IntEnum):
    RED = 1


class Other(Place):
    pass


@dataclass
class Trip:
    start: datetime
    end: Optional[fp.Instant]  # noqa: UP045
    places: list[Place]


NOON_UTC = datetime(2024, 6, 1, 12, tzinfo=UTC)
NOON = NOON_UTC.replace(tzinfo=None)
NEAR = NOON.replace(tzinfo=timezone(timedelta(hours=2)))


@pytest.mark.parametrize(
    ("type", "values"),
    [
        (Place, [Place("x", 1), Place(None, 2)]),
        (Trip, [Trip(NOON, NOON_UTC, [Place("x", 1)]), Trip(NOON, None, [])]),
        (tuple[int, str], [(1, "x"), (2**63 - 1, "")]),
        (int, [1, 2]),
        (Optional[date], [None, date(2024, 2, 29)]),  # noqa: UP045
        (Decimal, [Decimal("1.50"), Decimal("1.5")]),
        (Types.BIG_INT(), [2**100, -1]),
        (float, [-0.0, 1.5]),
    ],
)
def test_what_fits_comes_back_as_it_was(type, values):
    batch = batch_of(values, type)
    found = as_columns(batch)
    assert found is not batch
    assert found.table.num_rows == len(values)
    assert repr(found.type.from_columns(found.table.columns)) == repr(values)
    assert found.values is batch.values


@pytest.mark.parametrize(
    ("type", "values"),
    [
        (Place, [Place("x", 1), Place("x", True)]),
        (Place, [Place("x", 1), Other("x", 1)]),
        (Place, [("x", 1)]),
        (Place, [Place("x", None)]),
        (Place, [Place("x", 2**63)]),
        (Place, [Place("\ud800", 1)]),
        (Place, [Place("x", Color.RED)]),
        (Trip, [Trip(NOON.replace(fold=1), None, [])]),
        (Trip, [Trip(NOON_UTC, None, [])]),
        (Trip, [Trip(NOON, NEAR, [])]),
        (Trip, [Trip(NOON, None, [Place("x", 1.0)])]),
        (Trip, [Trip(NOON, None, (Place("x", 1),))]),
        (float, [1.5, 1]),
        (Types.FLOAT(), [0.1]),
        (Types.SHORT(), [2**15]),
        (Types.ANY(), [1]),
        (dict[str, int], [{"b": 1, "a": 2}]),
        (set[int], [{1}]),
        (tuple[int, str], [(1, "x", 2)]),
        (date, [NOON]),
    ],
)
def test_what_would_come_back_as_something_else_is_left_alone(type, values):
    batch = batch_of(values, type)
    assert as_columns(batch) is batch
    assert batch.table is None


def batch_of(values, type):
    return Batch(len(values), 1, 0, np.arange(len(values)), values=values, type=type_of(type))


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("key", ["int", pytest.param("text", marks=pytest.mark.slow), "pair"])
def test_objects_are_computed_as_columns(windows, key):
    setup = Setup(windows, ("agg", "n", "total", "weight", "first"), key, 0, 0)
    events = [Sale(i % 3, "xy"[i % 2], i, i, i / 8, f"n{i}") for i in range(90)]
    with counting_columns() as counts:
        found = run(setup, events, columnar=OBJECTS, parallelism=1, epochs=30)
    assert counts == {"columns": 3, "elements": 0, "both": 0}
    assert results(found, setup) == results(run(setup, events, columnar=False), setup)

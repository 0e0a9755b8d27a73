"""Elements that come too late and go nowhere are counted: as many as the side output of late data would have."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import forkpoint as fp
from example_counts import examples
from forkpoint.testing import OperatorHarness, TestSource, run_local


class Event(NamedTuple):
    key: str
    ts: int
    n: int


LATE = fp.OutputTag("late", Event)
STAMPS = fp.WatermarkStrategy.for_bounded_out_of_orderness(timedelta(milliseconds=3)).with_timestamp_assigner(lambda e, _: e.ts)
TUMBLING, SLIDING = fp.TumblingEventTimeWindows.of(10), fp.SlidingEventTimeWindows.of(10, 4)
SESSIONS = fp.EventTimeSessionWindows.with_gap(4)


def by_key(stream: Any) -> Any:
    return stream.key_by(lambda e: e.key, str)


def windows(assigner: Any, *, columns: bool, lateness: int = 0) -> Callable[[Any, Any], Any]:
    def build(stream: Any, tag: Any) -> Any:
        keyed = stream.key_by("key") if columns else by_key(stream)
        windowed = keyed.window(assigner).allowed_lateness(lateness)
        windowed = windowed.side_output_late_data(tag) if tag else windowed
        return windowed.sum("n") if columns else windowed.reduce(lambda a, b: a)

    return build


def window_all(stream: Any, tag: Any) -> Any:
    windowed = stream.window_all(TUMBLING)
    return (windowed.side_output_late_data(tag) if tag else windowed).reduce(lambda a, b: a)


def sorted_by_time(stream: Any, tag: Any) -> Any:
    return by_key(stream).sort_by_event_time(tag) if tag else by_key(stream).sort_by_event_time()


def all_sorted(stream: Any, tag: Any) -> Any:
    return stream.sort_by_event_time(tag) if tag else stream.sort_by_event_time()


def interval_join(stream: Any, tag: Any) -> Any:
    joined = by_key(stream).interval_join(by_key(stream.filter(lambda e: False))).between(-3, 3)
    joined = joined.side_output_left_late_data(tag) if tag else joined
    return joined.process(lambda a, b, ctx: [a], Event)


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "tumbling": windows(TUMBLING, columns=False),
    "tumbling, in columns": windows(TUMBLING, columns=True),
    "tumbling, in columns, with lateness": windows(TUMBLING, columns=True, lateness=5),
    "sliding": windows(SLIDING, columns=False, lateness=3),
    "sliding, in columns": windows(SLIDING, columns=True),
    "sessions": windows(SESSIONS, columns=False),
    "sessions, in columns": windows(SESSIONS, columns=True),
    "window_all": window_all,
    "sorted": sorted_by_time,
    "all sorted": all_sorted,
    "interval join": interval_join,
}


def run(name: str, events: list[Event], **how: Any) -> Any:
    """The operator, and beside it the same with a side output of late elements."""

    def build(env: Any, source: Any) -> Any:
        stream = env.from_source(source, STAMPS, "in").uid("in")
        tagged = OPERATORS[name](stream, LATE).uid("tagged")
        return [OPERATORS[name](stream, None).uid("operator"), tagged, tagged.get_side_output(LATE)]

    return run_local(build, TestSource(events, type=Event, columnar="columns" in name), **how)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=[pytest.mark.slow] if name in ("all sorted", "sessions", "sliding", "sliding, in columns") else []
        )
        for name in sorted(OPERATORS)  # test_two_are_late runs them all
    ],
)
@examples(3)
@given(
    st.lists(st.builds(Event, st.sampled_from("abc"), st.integers(0, 60), st.integers(0, 9)), min_size=12, max_size=30),
    st.integers(1, 10),
    st.integers(1, 3),
)
def test_as_many_at_every_cut_and_parallelism_as_the_side_output_has(
    name: str, events: list[Event], rows: int, parallelism: int
) -> None:
    at_once = run(name, events, parallelism=1)
    counted = {"operator": len(late)} if (late := at_once.outputs["2"]) else {}
    assert at_once.late_records_dropped == counted
    assert run(name, events, epochs=rows, parallelism=parallelism).late_records_dropped == counted


EVENTS = [Event("a", 5, 1), Event("a", 40, 1), Event("a", 6, 1), Event("b", 37, 1), Event("a", 2, 1)]


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_two_are_late(name: str) -> None:
    assert run(name, EVENTS, parallelism=2).late_records_dropped == {"operator": 2}


def test_joins_over_windows_count_what_both_sides_drop() -> None:
    def build(env: Any, left: Any, right: Any) -> Any:
        a, b = (env.from_source(s, STAMPS, name) for s, name in ((left, "left"), (right, "right")))
        joined = a.join(b).where(lambda e: e.key).equal_to(lambda e: e.key).window(TUMBLING)
        grouped = a.co_group(b).where(lambda e: e.key).equal_to(lambda e: e.key).window(TUMBLING)
        return [
            joined.apply(lambda x, y: (x.n, y.n)).uid("join"),
            grouped.apply(lambda xs, ys: [(len(list(xs)), len(list(ys)))]).uid("co-group"),
        ]

    for rows in (1, 100):
        found = run_local(build, TestSource(EVENTS, type=Event), TestSource(EVENTS, type=Event), epochs=rows)
        assert found.late_records_dropped == {"join": 4, "co-group": 4}


def test_a_harness_counts_them() -> None:
    harness = OperatorHarness(lambda stream: OPERATORS["tumbling"](stream, None), input_type=Event)
    harness.process_element(EVENTS[0], 5)
    harness.process_watermark(20)
    harness.process_element(EVENTS[0], 6)
    harness.process_element(EVENTS[0], 26)
    assert harness.late_records_dropped == 1

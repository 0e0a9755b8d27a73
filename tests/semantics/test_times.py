"""Times that programs give: what 64 bits hold is kept as it is, everything else is refused where it is given."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import forkpoint as fp
from forkpoint.testing import KeyedProcessHarness, TestSource, run_local

FIRST, LAST = -(2**63), 2**63 - 1
ENGINE_END = 2**61  # where the engine keeps Flink's last watermark; earlier versions stored timers there, too
BAD = [2**63, -(2**63) - 1, 2**200, float("nan"), float("inf"), 1.5, 2.0, True, None, "5", b"5"]


class Timers(fp.KeyedProcessFunction):
    """``(what, time)``: registers or deletes a timer; says at which time and watermark each fired."""

    def process_element(self, value: Any, ctx: Any) -> None:
        what, time = value
        getattr(ctx.timer_service(), f"{what}_timer")(time)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield timestamp, ctx.timestamp()


def timers() -> KeyedProcessHarness:
    return KeyedProcessHarness(Timers(), key=lambda _: "k", key_type=str)


@pytest.mark.parametrize("time", BAD, ids=repr)
@pytest.mark.parametrize("what", ["register", "delete"])
@pytest.mark.parametrize("domain", ["event_time", "processing_time"])
def test_what_is_no_time_is_refused_with_the_key(time: Any, what: str, domain: str) -> None:
    with timers() as h, pytest.raises(fp.UserFunctionError, match=r"a time is int milliseconds .*key 'k'"):
        h.process_element((f"{what}_{domain}", time))


@given(st.lists(st.integers(FIRST, LAST) | st.sampled_from([FIRST, FIRST + 1, LAST - 1, LAST]), max_size=8), st.booleans())
def test_every_time_of_64_bits_fires_once_and_as_it_is(times: list[int], one_epoch: bool) -> None:
    times = [t for t in times if abs(t) != ENGINE_END]
    registered = [(("register_event_time", t), None) for t in times]
    with timers() as h:
        if one_epoch:
            h.process_elements(registered)
        else:
            for element, stamp in registered:
                h.process_element(element, stamp)
        assert h.event_time_timers() == sorted({(t, "k") for t in times})
        h.process_watermark(0)
        assert h.take() == [(t, t) for t in sorted(set(times)) if t <= 0]
        h.process_watermark(LAST)
        assert h.take() == [(t, t) for t in sorted(set(times)) if t > 0]
        assert h.event_time_timers() == []


def test_timers_far_away_can_be_deleted() -> None:
    with timers() as h:
        h.process_element(("register_event_time", 2**62))
        h.process_element(("register_event_time", 2**62 + 1))
        h.process_element(("delete_event_time", 2**62))
        h.process_watermark(LAST)
        assert h.output == [(2**62 + 1, 2**62 + 1)]


def test_whatever_acts_as_an_int_is_a_time() -> None:
    with timers() as h:
        h.process_element(("register_event_time", np.int64(7)))
        h.process_watermark(7)
        assert h.output == [(7, 7)]


class Stamp(fp.KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield ctx.timestamp()


class Spans(fp.ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield tuple(context.window()), len(list(elements))


def stamped(source: Any, env: Any) -> Any:
    strategy = fp.WatermarkStrategy.for_bounded_out_of_orderness(timedelta(seconds=1)).with_timestamp_assigner(lambda e, _: e[1])
    return env.from_source(source, strategy, "in").uid("in").key_by(lambda e: e[0], str)


@pytest.mark.parametrize("time", [LAST, 2**62, ENGINE_END, 0, -ENGINE_END, -(2**62), FIRST + 1])
@pytest.mark.parametrize("epochs", [1, 2])
def test_timestamps_at_the_ends_of_time(time: int, epochs: int) -> None:
    elements = [("a", time), ("a", time)]
    found = run_local(lambda env, s: stamped(s, env).process(Stamp()).uid("p"), TestSource(elements), epochs=epochs)
    assert found.output == [time, time]
    window = fp.TumblingEventTimeWindows.of(timedelta(seconds=10))
    found = run_local(
        lambda env, s: stamped(s, env).window(window).process(Spans()).uid("w"), TestSource(elements), epochs=epochs
    )
    start = time - time % 10_000
    assert found.output == [((max(start, FIRST), min(start + 10_000, LAST)), 2)]


@pytest.mark.parametrize("time", [LAST, 2**62])
def test_sorting_at_the_end_of_time_keeps_nothing_back(time: int) -> None:
    def build(env: Any, source: Any) -> Any:
        return stamped(source, env).sort_by_event_time().uid("sorted").map(lambda e: e[1])

    assert run_local(build, TestSource([("a", time), ("a", time - 1), ("a", 3)]), epochs=3).output[-1] == time


@pytest.mark.parametrize("time", BAD, ids=repr)
def test_what_is_no_timestamp_is_refused_with_its_element(time: Any) -> None:
    elements = [("a", 1), ("b", time), ("c", 2)]
    with pytest.raises(fp.UserFunctionError, match=r"operator 'in'.*a time is int milliseconds .*element \('b'"):
        run_local(lambda env, s: stamped(s, env).process(Stamp()).uid("p"), TestSource(elements))


def test_datetimes_are_times() -> None:
    with KeyedProcessHarness(Stamp(), key=lambda _: "k", key_type=str) as h:
        h.process_element("x", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
        assert h.output == [1000]

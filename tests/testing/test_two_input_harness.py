"""Harnesses for functions of two inputs, and for windows."""

from datetime import timedelta

import pytest

import forkpoint as fp
from forkpoint.errors import GraphError
from forkpoint.testing import (
    BroadcastProcessHarness,
    CoProcessHarness,
    KeyedBroadcastProcessHarness,
    KeyedCoProcessHarness,
    TwoInputHarness,
    WindowHarness,
)

RULES = fp.MapStateDescriptor("rules", str, int)


class Pairing(fp.KeyedCoProcessFunction):
    """Waits ten for the other input's element."""

    left = fp.ValueStateDescriptor("left", str)
    waited = fp.OutputTag("waited", tuple[str, int, str])

    def process_element1(self, value, ctx):
        self.left.update(value)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 10)
        ctx.timer_service().register_processing_time_timer(ctx.timer_service().current_processing_time() + 1000)

    def process_element2(self, value, ctx):
        yield self.left.value(), value, ctx.timer_service().current_watermark()
        self.left.clear()

    def on_timer(self, timestamp, ctx):
        yield Pairing.waited, (ctx.get_current_key(), timestamp, ctx.time_domain().name)


def pairing(**more):
    return KeyedCoProcessHarness(Pairing(), key1=lambda v: v[0], key2=lambda v: v[0], key_type=str, **more)


def test_keyed_co_process():
    with pairing(parallelism=2) as harness:
        harness.process_element1("a1", 5)
        harness.process_element1("b1", 6)
        assert harness.states("left") == {"a": "a1", "b": "b1"}
        assert harness.event_time_timers() == [(15, "a"), (16, "b")]
        harness.process_watermark1(20)
        assert harness.watermark == fp.MIN_WATERMARK
        harness.process_watermark2(15)  # the smaller one counts
        assert (harness.watermark, harness.take_side_output(Pairing.waited)) == (15, [("a", 15, "EVENT_TIME")])
        harness.process_element2("a2", 30)
        harness.process_elements2([("a3", 30)])
        assert harness.take() == [("a1", "a2", 15), (None, "a3", 15)]
        assert harness.keys("left") == ["b"]
        saved = harness.snapshot()
    with pairing(parallelism=3, restore=saved) as harness:
        harness.process_watermark2(17)
        assert harness.take_side_output(Pairing.waited) == [("b", 16, "EVENT_TIME")]
        harness.advance_processing_time(timedelta(seconds=1))
        found = harness.take_side_output(Pairing.waited)
        assert sorted(found) == [("a", 1000, "PROCESSING_TIME"), ("b", 1000, "PROCESSING_TIME")]
        harness.process_watermark(99)
        assert harness.watermark == 99


def test_streams_without_keys():
    class Tell(fp.CoMapFunction):
        def map1(self, value):
            return "first", value

        def map2(self, value):
            return None if value < 0 else ("second", value)

    with CoProcessHarness(Tell(), input_type1=int) as harness:
        harness.process_elements1([(1, None), (2, None)])
        harness.process_element2(3)
        harness.process_element2(-3)
        assert harness.output == [("first", 1), ("first", 2), ("second", 3)]
    with pytest.raises(GraphError, match="a harness is for one operator, but the function added 2"):
        TwoInputHarness(lambda a, b: a.connect(b).map(Tell()).map(lambda v: v))


class Limits(fp.KeyedBroadcastProcessFunction):
    total = fp.ValueStateDescriptor("total", int, 0)

    def process_element(self, value, ctx):
        self.total.update(self.total.value() + value[1])
        limit = ctx.get_broadcast_state(RULES)[value[0]]
        if limit is not None and self.total.value() > limit:
            yield value[0], self.total.value(), limit

    def process_broadcast_element(self, value, ctx):
        if value[1] is None:
            ctx.get_broadcast_state(RULES).clear()
            ctx.apply_to_keyed_state(self.total, lambda key, total: total.clear())
        else:
            ctx.get_broadcast_state(RULES).put(*value)


def limits(**more):
    return KeyedBroadcastProcessHarness(Limits(), RULES, key=lambda v: v[0], key_type=str, **more)


@pytest.mark.parametrize("parallelism", [1, 4])
@pytest.mark.parametrize("again", [1, 2, 5])
def test_broadcast(parallelism, again):
    with limits(parallelism=parallelism) as harness:
        for user in "abc":
            harness.process_element((user, 3))
            harness.process_broadcast_element((user, 5))
        assert harness.broadcast_state("rules") == harness.broadcast_state(RULES) == {"a": 5, "b": 5, "c": 5}
        harness.process_element(("a", 3))
        assert harness.take() == [("a", 6, 5)]
        saved = harness.snapshot()
    with limits(parallelism=again, restore=saved) as harness:
        assert list(harness.broadcast_state(RULES)) == ["a", "b", "c"]
        harness.process_element(("b", 4))
        assert harness.take() == [("b", 7, 5)]
        harness.process_broadcast_element(("all", None))
        assert (harness.broadcast_state(RULES), harness.states("total")) == ({}, {})
        with pytest.raises(GraphError, match="no broadcast state 'others'; it has 'rules'"):
            harness.broadcast_state("others")


def test_copies_that_differ_are_found():
    class Random(fp.BroadcastProcessFunction):
        def open(self, runtime_context):
            self.subtask = runtime_context.get_index_of_this_subtask()

        def process_element(self, value, ctx):
            yield ctx.get_broadcast_state(RULES)[value]

        def process_broadcast_element(self, value, ctx):
            ctx.get_broadcast_state(RULES).put(value, self.subtask)

    with BroadcastProcessHarness(Random(), RULES, parallelism=2) as harness:
        harness.process_broadcast_element("x")
        harness.process_elements([("x", None), ("x", None)])
        assert harness.output == [0, 1]
        with pytest.raises(GraphError, match="'rules' is not the same on all subtasks"):
            harness.broadcast_state(RULES)


SALE = tuple[str, int]
TEN = fp.TumblingEventTimeWindows.of(10)


def test_windows_with_elements():
    class Names(fp.ProcessWindowFunction):
        def process(self, key, context, elements):
            yield key, [e[1] for e in elements]

    late = fp.OutputTag("late", SALE)
    build = lambda s: s.key_by(0).window(TEN).allowed_lateness(5).side_output_late_data(late).process(Names())  # noqa: E731
    with WindowHarness(build, input_type=SALE, parallelism=2) as harness:
        for time in (1, 4, 12):
            harness.process_element(("a", time), time)
        harness.process_element(("b", 3), 3)
        first, second = fp.TimeWindow(0, 10), fp.TimeWindow(10, 20)
        assert harness.contents() == {
            ("a", first): [("a", 1), ("a", 4)],
            ("a", second): [("a", 12)],
            ("b", first): [("b", 3)],
        }
        assert harness.window_count == 3
        harness.process_watermark(9)
        assert sorted((r.value, r.timestamp) for r in harness.records) == [(("a", [1, 4]), 9), (("b", [3]), 9)]
        saved = harness.snapshot()
    with WindowHarness(build, input_type=SALE, restore=saved) as harness:
        assert {timer[1:3] for timer in harness.window_timers() if timer[0] == 14} == {("a", first), ("b", first)}
        harness.process_element(("a", 5), 5)
        assert harness.take() == [("a", [1, 4, 5])]
        harness.process_watermark(14)
        assert list(harness.contents()) == [("a", second)]
        harness.process_element(("a", 6), 6)
        assert harness.side_output(late) == [("a", 6)]
        harness.process_watermark(100)
        assert (harness.window_count, harness.window_timers()) == (0, [])


def test_windows_that_merge_and_reduce():
    sessions = fp.EventTimeSessionWindows.with_gap(5)
    with WindowHarness(lambda s: s.key_by(0).window(sessions).sum(1), input_type=SALE) as harness:
        for time in (10, 2, 14, 6):
            harness.process_element(("a", time), time)
        assert harness.contents() == {("a", fp.TimeWindow(2, 19)): ("a", 32)}
        assert harness.window_timers() == [(18, "a", fp.TimeWindow(2, 19), fp.TimeDomain.EVENT_TIME)]
        harness.process_watermark(18)
        assert [(r.value, r.timestamp) for r in harness.records] == [(("a", 32), 18)]


def test_windows_of_processing_time():
    clocked = fp.TumblingProcessingTimeWindows.of(1000)
    with WindowHarness(lambda s: s.key_by(0).window(clocked).sum(1), input_type=SALE) as harness:
        harness.process_elements([(("a", 1), None), (("a", 2), None)])
        assert harness.window_timers() == [(999, "a", fp.TimeWindow(0, 1000), fp.TimeDomain.PROCESSING_TIME)]
        harness.set_processing_time(999)
        assert harness.output == [("a", 3)]


def test_a_window_harness_is_for_windows():
    with pytest.raises(GraphError, match="a WindowHarness is for windows"):
        WindowHarness(lambda s: s.key_by(0).sum(1), input_type=SALE)

"""Harnesses: one operator, pushed by hand."""

from datetime import UTC, datetime, timedelta

import pytest

import forkpoint as fp
from forkpoint.testing import KeyedProcessHarness, ManualClock, OperatorHarness, ProcessHarness, Record

OVERFLOW = fp.OutputTag("overflow", int)


class Counter(fp.KeyedProcessFunction):
    """Counts, reports by timers of both kinds, and sends what is above 2 aside."""

    count = fp.ValueStateDescriptor("count", int)
    seen = fp.ListStateDescriptor("seen", int)
    by_size = fp.MapStateDescriptor("by_size", str, int)
    total = fp.ReducingStateDescriptor("total", lambda a, b: a + b, int)

    def process_element(self, value, ctx):
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        self.seen.add(value[1])
        self.by_size["big" if value[1] > 9 else "small"] = value[1]
        self.total.add(value[1])
        if ctx.timestamp() is not None:
            ctx.timer_service().register_event_time_timer(ctx.timestamp() + 10)
        ctx.timer_service().register_processing_time_timer(ctx.timer_service().current_processing_time() + 100)
        if count > 2:
            yield OVERFLOW, count
        yield value[0], count

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), ctx.time_domain().name, timestamp, ctx.timer_service().current_watermark()


def harness(**more):
    return KeyedProcessHarness(Counter(), key=lambda v: v[0], key_type=str, **more)


def test_elements_state_and_side_outputs():
    with harness() as h:
        for value in (("a", 1), ("a", 20), ("b", 3), ("a", 4)):
            h.process_element(value)
        assert h.output == [("a", 1), ("a", 2), ("b", 1), ("a", 3)]
        assert h.take() == h.output
        assert h.take() == []
        assert h.side_output(OVERFLOW) == h.take_side_output(OVERFLOW) == [3]
        assert h.take_side_output(OVERFLOW) == []
        assert h.side_output(fp.OutputTag("other")) == []
        assert h.state("count", "a") == 3
        assert h.state("count", "zzz") is None
        assert h.state("seen", "a") == [1, 20, 4]
        assert h.state("seen", "zzz") == []
        assert h.state("by_size", "a") == {"small": 4, "big": 20}
        assert h.state("total", "a") == 25
        assert h.states("count") == {"a": 3, "b": 1}
        assert sorted(h.keys("seen")) == ["a", "b"]
        with pytest.raises(fp.GraphError, match="by_size"):
            h.state("unknown", "a")


def test_time_and_timers():
    with harness(clock=ManualClock(1000)) as h:
        assert h.watermark == fp.MIN_WATERMARK
        h.process_elements([(("a", 1), 5), (("b", 1), datetime(1970, 1, 1, tzinfo=UTC)), (("a", 1), None)])
        assert h.event_time_timers() == [(10, "b"), (15, "a")]
        assert h.event_time_timers("a") == [(15, "a")]
        assert h.processing_time_timers() == [(1100, "a"), (1100, "b")]
        assert [r.timestamp for r in h.records] == [5, 0, None]
        h.take()
        h.process_watermark(12)
        h.process_watermark(3)
        assert (h.watermark, h.take()) == (12, [("b", "EVENT_TIME", 10, 10)])
        h.process_watermark(fp.MAX_WATERMARK)
        assert h.take() == [("a", "EVENT_TIME", 15, 15)]
        h.advance_processing_time(timedelta(milliseconds=99))
        assert h.take() == []
        h.set_processing_time(1100)
        assert sorted(h.take()) == [(key, "PROCESSING_TIME", 1100, fp.MAX_WATERMARK) for key in "ab"]
        assert h.processing_time == 1100
        assert h.event_time_timers() == h.processing_time_timers() == []


@pytest.mark.parametrize("parallelism", [1, 3, 5])
def test_a_snapshot_is_restored_at_any_parallelism(parallelism):
    keys = [f"k{i}" for i in range(20)]
    with harness(parallelism=3, clock=ManualClock(7)) as h:
        h.process_watermark(4)
        h.process_elements(((key, i), i) for i, key in enumerate(keys))
        saved = h.snapshot()
        h.process_elements(((key, 100), 100) for key in keys)
        before = h.state("count", "k3")
    with harness(parallelism=parallelism, restore=saved) as h:
        assert before == 2
        assert (h.watermark, h.processing_time) == (4, 7)
        assert h.states("seen") == {key: [i] for i, key in enumerate(keys)}
        assert h.event_time_timers() == [(i + 10, key) for i, key in enumerate(keys)]
        h.process_watermark(13)
        assert sorted(h.take()) == [(f"k{i}", "EVENT_TIME", i + 10, i + 10) for i in range(4)]
        h.process_element(("k3", 1), 50)
        assert h.take() == [("k3", 2)]
    with pytest.raises(fp.GraphError, match="max_parallelism"):
        harness(max_parallelism=4, restore=saved)


def test_looking_at_state_does_not_keep_it_alive():
    class Kept(fp.KeyedProcessFunction):
        value = fp.ValueStateDescriptor("value", int).enable_time_to_live(
            fp.StateTtlConfig.new_builder(timedelta(milliseconds=10)).update_ttl_on_read_and_write().build()
        )

        def process_element(self, value, ctx):
            self.value.update(value)

    with KeyedProcessHarness(Kept(), key=lambda v: 0, key_type=int) as h:
        h.process_element(1)
        h.set_processing_time(9)
        assert h.state("value", 0) == 1
        h.set_processing_time(10)
        assert h.state("value", 0) is None


def test_other_functions_and_operators():
    class Double(fp.MapFunction):
        def map(self, value):
            return 2 * value

    class Twice(fp.FlatMapFunction):
        def flat_map(self, value):
            return [value, value]

    class Odd(fp.FilterFunction):
        def filter(self, value):
            return value % 2

    class Stamps(fp.ProcessFunction):
        def process_element(self, value, ctx):
            yield value, ctx.timestamp(), ctx.timer_service().current_watermark()

    for fn, expected in ((Double(), [2, 4, 6]), (Twice(), [1, 1, 2, 2, 3, 3]), (Odd(), [1, 3])):
        for h in (ProcessHarness(fn), KeyedProcessHarness(fn, key=lambda v: 0, key_type=int)):
            h.process_elements((v, None) for v in (1, 2, 3))
            assert h.output == expected
            h.close()
    with ProcessHarness(Stamps()) as h:
        h.process_watermark(3)
        h.process_element("x", 9)
        assert h.records == [Record(("x", 9, 3), 9, 2, 0)]
        assert h.event_time_timers() == []
    with OperatorHarness(lambda s: s.key_by(lambda v: v % 2, int).reduce(lambda a, b: a + b), parallelism=2) as h:
        h.process_elements((v, None) for v in (1, 2, 3, 4))
        assert sorted(h.output) == [1, 2, 4, 6]


def test_a_harness_is_for_one_operator():
    with pytest.raises(fp.GraphError, match="one operator"):
        OperatorHarness(lambda s: s.map(str).map(str))
    with pytest.raises(fp.GraphError, match="one operator"):
        OperatorHarness(lambda s: s)


def test_a_failing_function_shows_its_own_error():
    class Fails(fp.KeyedProcessFunction):
        def process_element(self, value, ctx):
            raise ValueError("no")

    with (
        KeyedProcessHarness(Fails(), key=lambda v: v, key_type=str) as h,
        pytest.raises(fp.UserFunctionError) as caught,
    ):
        h.process_element("x")
    assert isinstance(caught.value.__cause__, ValueError)

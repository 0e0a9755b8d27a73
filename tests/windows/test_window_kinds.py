"""Each kind of window, trigger and evictor by an example, those of Flink's documentation among them."""

from datetime import timedelta
from typing import NamedTuple

import pytest

import forkpoint as fp
from forkpoint.testing import OperatorHarness, TestSource, run_local

HOUR = 3_600_000


class Reading(NamedTuple):
    key: str
    ts: int
    n: int


def strategy(bound=0):
    return fp.WatermarkStrategy.for_bounded_out_of_orderness(bound).with_timestamp_assigner(lambda r, _: r.ts)


class Numbers(fp.ProcessWindowFunction):
    def process(self, key, context, elements):
        yield tuple(context.window()), [r.n for r in elements]


def windows(assigner, trigger=None, fn=None):
    def build(stream):
        windowed = stream.key_by(lambda r: r.key).window(assigner)
        if trigger is not None:
            windowed = windowed.trigger(trigger)
        return windowed.process(fn or Numbers())

    return OperatorHarness(build, input_type=Reading)


def push(harness, *numbers, ts=None, key="k"):
    for n in numbers:
        harness.process_element(Reading(key, 0 if ts is None else ts, n), ts)
    return harness.take()


class TestAssigners:
    def test_tumbling_windows_with_an_offset(self):
        """From the documentation: hourly windows with an offset of 15 minutes begin at 1:15:00.000."""
        minute = HOUR // 60
        with windows(fp.TumblingEventTimeWindows.of(timedelta(hours=1), timedelta(minutes=15))) as harness:
            push(harness, 1, ts=HOUR + 14 * minute)
            push(harness, 2, ts=HOUR + 15 * minute)
            harness.process_watermark(3 * HOUR)
            assert harness.output == [
                ((15 * minute, HOUR + 15 * minute), [1]),
                ((HOUR + 15 * minute, 2 * HOUR + 15 * minute), [2]),
            ]

    def test_sliding_windows(self):
        """From the documentation: windows of 10 minutes that slide by 5 have the events of the last 10 minutes."""
        with windows(fp.SlidingEventTimeWindows.of(fp.Time.minutes(10), fp.Duration.of_minutes(5))) as harness:
            push(harness, 1, ts=4 * 60_000)
            push(harness, 2, ts=7 * 60_000)
            harness.process_watermark(HOUR)
            assert [(start // 60_000, end // 60_000, n) for (start, end), n in harness.output] == [
                (-5, 5, [1]),
                (0, 10, [1, 2]),
                (5, 15, [2]),
            ]

    def test_sessions(self):
        with windows(fp.EventTimeSessionWindows.with_gap(10)) as harness:
            for ts in (0, 25, 9, 18):  # the last joins the first two with the one at 25
                push(harness, ts, ts=ts)
            harness.process_watermark(100)
            assert harness.output == [((0, 35), [0, 9, 25, 18])]

    def test_a_session_that_touches_another_joins_it(self):
        with windows(fp.EventTimeSessionWindows.with_gap(10)) as harness:
            push(harness, 1, ts=0)
            push(harness, 2, ts=10)
            push(harness, 3, ts=21)
            harness.process_watermark(100)
            assert harness.output == [((0, 20), [1, 2]), ((21, 31), [3])]

    def test_sessions_with_a_gap_of_each_element(self):
        class Gap(fp.SessionWindowTimeGapExtractor):
            def extract(self, element):
                return element.n

        for extractor in (Gap(), lambda r: r.n, lambda r: timedelta(milliseconds=r.n)):
            with windows(fp.EventTimeSessionWindows.with_dynamic_gap(extractor)) as harness:
                push(harness, 3, ts=0)
                push(harness, 50, ts=4)
                push(harness, 1, ts=5)
                harness.process_watermark(100)
                assert harness.output == [((0, 3), [3]), ((4, 54), [50, 1])]

    def test_a_late_element_is_kept_where_it_joins_a_session_that_is_open(self):
        with windows(fp.EventTimeSessionWindows.with_gap(10)) as harness:
            push(harness, 1, ts=20)
            harness.process_watermark(25)
            push(harness, 2, ts=12)  # [12, 22) has passed, [12, 30) has not
            push(harness, 3, ts=1)  # nothing open to join
            harness.process_watermark(100)
            assert harness.output == [((12, 30), [1, 2])]

    def test_count_windows(self):
        """CountWindowAverage's input: full windows of two come out, the fifth element waits."""
        with OperatorHarness(
            lambda s: s.key_by(lambda r: r.key).count_window(2).process(Numbers()), input_type=Reading
        ) as harness:
            assert push(harness, 3, 5, 7, 4, 2) == [((0,), [3, 5]), ((1,), [7, 4])]
            assert push(harness, 1, 1, key="other") == [((0,), [1, 1])]

    def test_count_windows_that_slide(self):
        with OperatorHarness(
            lambda s: s.key_by(lambda r: r.key).count_window(3, 2).process(Numbers()), input_type=Reading
        ) as harness:
            assert push(harness, 1, 2, 3, 4, 5, 6, 7) == [((0,), [1, 2, 3]), ((1,), [3, 4, 5]), ((2,), [5, 6, 7])]

    def test_count_windows_of_flinks_java_api(self):
        """countWindow(3, 2) there: the last 3 elements, every 2."""

        def build(stream):
            windowed = stream.key_by(lambda r: r.key).window(fp.GlobalWindows.create())
            return windowed.trigger(fp.CountTrigger.of(2)).evictor(fp.CountEvictor.of(3)).process(Numbers())

        with OperatorHarness(build, input_type=Reading) as harness:
            assert [n for _, n in push(harness, 1, 2, 3, 4, 5, 6)] == [[1, 2], [2, 3, 4], [4, 5, 6]]

    def test_an_assigner_and_windows_of_ones_own(self):
        with windows(ByParity()) as harness:
            push(harness, 1, 2, 3, ts=5)
            harness.process_watermark(100)
            assert sorted(harness.output) == [(("even", 10), [2]), (("odd", 10), [1, 3])]

    def test_an_element_without_a_timestamp_is_refused_by_windows_of_event_time(self):
        with (
            windows(fp.TumblingEventTimeWindows.of(5)) as harness,
            pytest.raises(fp.UserFunctionError, match="no timestamp"),
        ):
            harness.process_element(Reading("k", 1, 1))


class Named(NamedTuple):
    name: str
    end: int

    def max_timestamp(self):
        return self.end - 1


class ByParity(fp.WindowAssigner):
    def assign_windows(self, element, timestamp, context):
        return [Named("odd" if element.n % 2 else "even", timestamp - timestamp % 10 + 10)]

    def get_default_trigger(self, env=None):
        return fp.EventTimeTrigger.create()

    def is_event_time(self):
        return True

    def window_type(self):
        from forkpoint.types import type_of

        return type_of(Named)


class TestProcessingTime:
    def test_tumbling_windows(self):
        with windows(fp.TumblingProcessingTimeWindows.of(10, 3)) as harness:
            harness.set_processing_time(5)
            push(harness, 1)
            harness.set_processing_time(11)
            push(harness, 2)
            assert harness.take() == []
            harness.set_processing_time(12)
            assert harness.take() == [((3, 13), [1, 2])]
            assert harness.records[0].timestamp == 12
            assert harness.processing_time_timers() == []

    def test_sliding_windows(self):
        with windows(fp.SlidingProcessingTimeWindows.of(10, 5)) as harness:
            harness.set_processing_time(7)
            push(harness, 1)
            harness.set_processing_time(40)
            assert harness.take() == [((0, 10), [1]), ((5, 15), [1])]

    def test_sessions(self):
        with windows(fp.ProcessingTimeSessionWindows.with_gap(10)) as harness:
            for now in (0, 6, 14, 30):
                harness.set_processing_time(now)
                push(harness, now)
            harness.set_processing_time(99)
            assert harness.output == [((0, 24), [0, 6, 14]), ((30, 40), [30])]

    def test_a_continuous_trigger(self):
        trigger = fp.ContinuousProcessingTimeTrigger.of(10)
        with windows(fp.TumblingProcessingTimeWindows.of(25), trigger) as harness:
            harness.set_processing_time(3)
            push(harness, 1)
            harness.set_processing_time(10)
            assert harness.take() == [((0, 25), [1])]
            push(harness, 2)
            harness.set_processing_time(19)
            assert harness.take() == []
            harness.set_processing_time(20)
            assert harness.take() == [((0, 25), [1, 2])]
            harness.set_processing_time(24)
            assert harness.take() == [((0, 25), [1, 2])]
            assert harness.processing_time_timers() == []

    def test_a_continuous_trigger_on_global_windows(self):
        with windows(fp.GlobalWindows.create(), fp.PurgingTrigger.of(fp.ContinuousProcessingTimeTrigger.of(10))) as harness:
            harness.set_processing_time(3)
            push(harness, 1, 2)
            harness.set_processing_time(10)
            push(harness, 3)
            harness.set_processing_time(20)
            assert [n for _, n in harness.output] == [[1, 2], [3]]


class TestLateness:
    def test_a_late_element_fires_its_window_again_until_the_allowed_lateness_is_over(self):
        late = fp.OutputTag("late", Reading)

        def build(stream):
            windowed = stream.key_by(lambda r: r.key).window(fp.TumblingEventTimeWindows.of(10))
            return windowed.allowed_lateness(timedelta(milliseconds=5)).side_output_late_data(late).process(Numbers())

        with OperatorHarness(build, input_type=Reading) as harness:
            push(harness, 1, ts=3)
            harness.process_watermark(9)
            assert harness.take() == [((0, 10), [1])]
            assert push(harness, 2, ts=4) == [((0, 10), [1, 2])]
            harness.process_watermark(13)
            assert push(harness, 3, ts=4) == [((0, 10), [1, 2, 3])]
            harness.process_watermark(14)
            assert push(harness, 4, ts=4) == []
            assert harness.side_output(late) == [Reading("k", 4, 4)]

    @pytest.mark.parametrize(("before", "after"), [(0, 20), (20, 0), (5, 6)])
    def test_the_allowed_lateness_may_change_between_versions(self, before, after):
        def build(lateness):
            tumbling = fp.TumblingEventTimeWindows.of(10)
            return lambda s: s.key_by(lambda r: r.key).window(tumbling).allowed_lateness(lateness).sum("n")

        with OperatorHarness(build(before), input_type=Reading) as harness:
            push(harness, 1, ts=3)
            saved = harness.snapshot()
        with OperatorHarness(build(after), input_type=Reading, restore=saved) as harness:
            harness.process_watermark(9)
            assert [r.n for r in harness.take()] == [1]
            harness.process_watermark(9 + after - 1)
            if after > 1:
                assert [r.n for r in push(harness, 2, ts=3)] == [3]
            harness.process_watermark(9 + max(before, after))
            assert entries(harness) == 0


def entries(harness):
    return sum(1 for s in harness._subtasks for _ in s.store.scan(b"", b"\xff" * 8))


class TestTriggers:
    def test_delta(self):
        """From the documentation: top speed, evaluated every 50 metres."""
        trigger = fp.DeltaTrigger.of(50, lambda old, new: new.n - old.n, Reading)
        with windows(fp.GlobalWindows.create(), trigger) as harness:
            assert [n for _, n in push(harness, 0, 30, 50, 51, 90, 120)] == [[0, 30, 50, 51], [0, 30, 50, 51, 90, 120]]

    def test_continuous_event_time(self):
        with windows(fp.TumblingEventTimeWindows.of(25), fp.ContinuousEventTimeTrigger.of(10)) as harness:
            push(harness, 1, ts=3)
            for watermark, expected in ((9, 0), (10, 1), (19, 0), (20, 1), (23, 0), (24, 1), (99, 0)):
                harness.process_watermark(watermark)
                assert len(harness.take()) == expected, watermark
            assert entries(harness) == 0

    def test_never(self):
        with windows(fp.GlobalWindows.create()) as harness:
            assert push(harness, 1, 2, 3, ts=1) == []
            harness.process_watermark(fp.MAX_WATERMARK)
            assert harness.output == []

    def test_global_windows_end_with_the_input_by_an_event_time_trigger(self):
        def build(env, source):
            keyed = env.from_source(source, strategy(), "in").key_by(lambda r: r.key)
            return keyed.window(fp.GlobalWindows.create()).trigger(fp.EventTimeTrigger.create()).sum("n")

        run = run_local(build, TestSource([Reading("a", 1, 1), Reading("a", 2, 2)], type=Reading))
        assert run.output == [Reading("a", 1, 3)]

    def test_one_of_ones_own_with_state_and_early_results(self):
        with windows(fp.TumblingEventTimeWindows.of(10), Early()) as harness:
            assert push(harness, 1, 200, 2, 300, ts=1) == [((0, 10), [1, 200]), ((0, 10), [1, 200, 2, 300])]
            harness.process_watermark(9)
            assert harness.take() == [((0, 10), [1, 200, 2, 300])]
            assert entries(harness) == 0


class Early(fp.Trigger):
    """Fires at the end, and early for big numbers: at most twice."""

    fired = fp.ValueStateDescriptor("fired", int, 0)

    def on_element(self, element, timestamp, window, ctx):
        ctx.register_event_time_timer(window.max_timestamp())
        fired = ctx.get_partitioned_state(self.fired)
        if element.n < 100 or fired.value() == 2:
            return fp.TriggerResult.CONTINUE
        fired.update(fired.value() + 1)
        return fp.TriggerResult.FIRE

    def on_event_time(self, time, window, ctx):
        return fp.TriggerResult.FIRE

    def on_processing_time(self, time, window, ctx):
        return fp.TriggerResult.CONTINUE

    def clear(self, window, ctx):
        ctx.get_partitioned_state(self.fired).clear()

"""Streams that split and join again: side outputs, unions, several sources."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import forkpoint as fp
from example_counts import examples
from forkpoint.testing import PAUSE, Advance, ManualClock, TestSource, run_local

EVENT_TIME = fp.WatermarkStrategy.for_bounded_out_of_orderness(0).with_timestamp_assigner(lambda e, _: e[1])
NO_WATERMARKS = fp.WatermarkStrategy.no_watermarks()
EVEN, LATE = fp.OutputTag("even", int), fp.OutputTag("late")


class Parity(fp.ProcessFunction):
    def process_element(self, value, ctx):
        if value % 2 == 0:
            yield EVEN, value
        yield value
        if value % 3 == 0:
            yield fp.OutputTag("third"), (value, "third")


class LateOut(fp.KeyedProcessFunction):
    def process_element(self, value, ctx):
        if value[1] <= ctx.timer_service().current_watermark():
            yield LATE, value
        else:
            ctx.timer_service().register_event_time_timer(value[1])
            yield value

    def on_timer(self, timestamp, ctx):
        yield fp.OutputTag("timers"), (ctx.get_current_key(), timestamp)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_side_outputs_without_a_key(parallelism):
    def build(env, source):
        main = env.from_source(source, NO_WATERMARKS, "in").process(Parity())
        sides = {"even": main.get_side_output(EVEN), "third": main.get_side_output(fp.OutputTag("third"))}
        return {"main": main, **sides, "doubled": main.get_side_output(EVEN).map(lambda v: 2 * v)}

    outputs = run_local(build, list(range(10)), parallelism=parallelism, epochs=4).outputs
    assert outputs["main"] == list(range(10))
    assert outputs["even"] == [0, 2, 4, 6, 8]
    assert outputs["doubled"] == [0, 4, 8, 12, 16]
    assert outputs["third"] == [(v, "third") for v in (0, 3, 6, 9)]


@pytest.mark.parametrize("rows", [1, 2, 100])
def test_side_outputs_of_elements_and_timers_keep_their_time(rows):
    elements = [("a", 10), ("b", 20), ("a", 12), ("a", 19), ("b", 5), ("a", 30)]

    def build(env, source):
        main = env.from_source(source, EVENT_TIME, "in").key_by(lambda e: e[0], str).process(LateOut())
        return {
            "main": main,
            "late": main.get_side_output(LATE),
            "timers": main.get_side_output(fp.OutputTag("timers")),
        }

    run = run_local(build, elements, epochs=rows, parallelism=2)
    by_key = {k: [v for v in run.outputs["main"] if v[0] == k] for k in "ab"}
    assert by_key == {"a": [("a", 10), ("a", 30)], "b": [("b", 20)]}
    assert sorted(run.outputs["late"]) == [("a", 12), ("a", 19), ("b", 5)]
    assert sorted((r.value, r.timestamp) for r in run.records["timers"]) == [
        (("a", 10), 10),
        (("a", 30), 30),
        (("b", 20), 20),
    ]


class Trace(fp.KeyedProcessFunction):
    """Order and watermark at the end of a graph."""

    def process_element(self, value, ctx):
        yield ctx.get_current_key(), value, ctx.timestamp(), ctx.timer_service().current_watermark()


class Delayed(fp.KeyedProcessFunction):
    """Emits each element by a timer, 3 ms later."""

    waiting = fp.ListStateDescriptor("waiting", tuple[str, int])

    def process_element(self, value, ctx):
        self.waiting.add(value)
        ctx.timer_service().register_event_time_timer(value[1] + 3)

    def on_timer(self, timestamp, ctx):
        due = [v for v in self.waiting.get() if v[1] + 3 <= timestamp]
        self.waiting.update([v for v in self.waiting.get() if v[1] + 3 > timestamp])
        for value in due:
            yield ("late", *value)


@examples(8)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 6), st.integers(0, 4)), max_size=20),
    st.integers(1, 20),
    st.integers(1, 4),
)
def test_streams_of_different_depth_unite_the_same_everywhere(steps, rows, parallelism):
    now, elements = 0, []
    for key, step, back in steps:
        now += step
        elements.append((key, now - back))

    def build(env, source):
        stream = env.from_source(source, EVENT_TIME, "in")
        deep = stream.key_by(lambda e: e[0], str).process(Delayed())
        deeper = deep.key_by(lambda e: e[1], str).filter(lambda e: e[2] % 2 == 0).map(lambda e: ("even", *e[1:]))
        shallow = stream.map(lambda e: ("now", *e)).filter(lambda e: e[2] % 3 != 0)
        return shallow.union(deep, deeper).key_by(lambda e: e[1], str).process(Trace())

    def traced(**how):
        return run_local(build, elements, **how).by_key(lambda v: v[0])

    expected = traced(parallelism=1)
    assert sum(map(len, expected.values())) == len(elements) + sum(e[1] % 3 != 0 for e in elements) + sum(
        e[1] % 2 == 0 for e in elements
    )
    assert traced(parallelism=parallelism, epochs=rows) == expected


def test_keys_are_taken_anew_behind_a_filter():
    """The filter runs keyed by the first field; what it lets through is keyed by the second."""

    def build(env, source):
        stream = env.from_source(source, NO_WATERMARKS, "in")
        kept = stream.key_by(lambda e: e[0]).filter(lambda e: e[1] != "z")
        return kept.key_by(lambda e: e[1]).map_with_state(lambda e, n: ((e[1], (n or 0) + 1), (n or 0) + 1), int)

    elements = [(i % 5, "xyz"[i % 3]) for i in range(30)]
    found = run_local(build, elements, parallelism=3, epochs=7).by_key(lambda v: v[0])
    assert found == {c: [(c, n) for n in range(1, 11)] for c in "xy"}


def test_a_union_of_columns_and_objects_is_keyed_right():
    def build(env, *sources):
        first, second = (env.from_source(s, NO_WATERMARKS, f"in-{i}", tuple[str, int]) for i, s in enumerate(sources))
        return first.union(second).key_by(0).map_with_state(lambda e, n: ((e[0], (n or 0) + e[1]), (n or 0) + e[1]), int)

    columns = TestSource([("a", 1), ("b", 10)], type=tuple[str, int], columnar=True)
    objects = TestSource([("b", 20), ("c", 5), ("a", 2)])
    for order in ((columns, objects), (objects, columns)):
        found = run_local(build, *order, parallelism=2).by_key(lambda v: v[0])
        assert {k: v[-1] for k, v in found.items()} == {"a": ("a", 3), "b": ("b", 30), "c": ("c", 5)}


class Watermarks(fp.KeyedProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value[1])

    def on_timer(self, timestamp, ctx):
        yield timestamp


def test_an_idle_split_is_not_waited_for():
    def build(env, source):
        strategy = EVENT_TIME.with_idleness(timedelta(seconds=10))
        return env.from_source(source, strategy, "in").key_by(lambda e: e[0], str).process(Watermarks())

    script = TestSource(
        [("a", 1), PAUSE, ("a", 50), Advance(6000), ("a", 60), Advance(6000), ("a", 70), PAUSE, ("a", 80)],
        [("b", 10), PAUSE, PAUSE, PAUSE, PAUSE],
    )
    run = run_local(build, script, clock=ManualClock(0), parallelism=2)
    epochs = {r.value: r.epoch for r in run.records["output"]}
    first = min(epochs.values())
    assert epochs[1] == first  # both splits are past it
    assert epochs[10] == epochs[50] == epochs[60]  # b is idle: what waited for it goes on
    assert epochs[10] > first + 1


def test_timestamps_assigned_anew_take_the_place_of_the_sources():
    def build(env, source):
        stream = env.from_source(source, EVENT_TIME, "in").map(lambda e: (e[0], e[1] * 10))
        again = stream.assign_timestamps_and_watermarks(EVENT_TIME)
        return again.key_by(lambda e: e[0], str).process(Trace())

    run = run_local(build, [("a", 1), ("a", 5), ("a", 3)], epochs=2)
    assert run.output == [
        ("a", ("a", 10), 10, fp.MIN_WATERMARK),
        ("a", ("a", 50), 50, 9),
        ("a", ("a", 30), 30, 49),
    ]


@pytest.mark.parametrize("by", ["rebalance", "shuffle", "rescale"])
def test_spread_elements_all_arrive(by):
    def build(env, source):
        return getattr(env.from_source(source, NO_WATERMARKS, "in"), by)().map(lambda v: v + 1)

    run = run_local(build, list(range(20)), parallelism=3)
    assert sorted(run.output) == list(range(1, 21))
    assert len({r.subtask for r in run.records["output"]}) == 3


class Untouched(fp.ProcessFunction):
    def process_element(self, value, ctx):
        yield (
            value,
            ctx.timestamp(),
            ctx.timer_service().current_watermark(),
            ctx.timer_service().current_processing_time(),
        )


@pytest.mark.parametrize("behind", [False, True])
def test_a_process_function_sees_the_same_time_wherever_it_runs(behind):
    def build(env, source):
        stream = env.from_source(source, EVENT_TIME, "in")
        return (stream.rebalance() if behind else stream).process(Untouched())

    run = run_local(build, [("a", 1), ("a", 5), ("a", 3)], clock=ManualClock(7), parallelism=1, epochs=2)
    assert run.output == [(("a", 1), 1, fp.MIN_WATERMARK, 7), (("a", 5), 5, 0, 7), (("a", 3), 3, 4, 7)]

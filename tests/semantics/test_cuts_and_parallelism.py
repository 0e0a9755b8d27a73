"""Results depend neither on where epochs are cut nor on the parallelism, nor on deaths on the way."""

from collections import Counter
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from semantics_programs import Event, Interpreter, by_key, inputs, mix, programs, strategy

import forkpoint as fp
from example_counts import examples
from forkpoint.testing import ABORT, PAUSE, Abort, Advance, ManualClock, TestSource, run_local


def one_stage(env, source, timer_ops, bound):
    stream = env.from_source(source, strategy(bound), "in")
    return stream.key_by(lambda e: e.key, str).process(Interpreter(timer_ops))


class Follower(fp.KeyedProcessFunction):
    """Keyed by something else than its upstream: shows the order and the time in which elements arrive there."""

    history = fp.ValueStateDescriptor("history", int)
    count = fp.ValueStateDescriptor("count", int, 0)

    def process_element(self, value, ctx):
        key, kind, ts, *_ = value
        self.history.update(mix(self.history.value() or 0, hash_of(value)))
        ctx.timer_service().register_event_time_timer(ts + 3)
        if ts % 5 == 0:
            ctx.timer_service().register_event_time_timer(ts - 7)
        if ts % 4 == 0:
            ctx.timer_service().delete_event_time_timer(ts + 2)
        yield ctx.get_current_key(), "element", key, kind, *self.seen(ctx)

    def on_timer(self, timestamp, ctx):
        self.history.update(mix(self.history.value() or 0, timestamp))
        yield ctx.get_current_key(), "timer", timestamp, *self.seen(ctx)

    def seen(self, ctx):
        self.count.update(self.count.value() + 1)
        return ctx.timestamp(), ctx.timer_service().current_watermark(), self.history.value(), self.count.value()


def hash_of(value):
    """The same in every process, unlike hash()."""
    total = 0
    for part in repr(value).encode():
        total = mix(total, part)
    return total


def two_stages(env, source, timer_ops, bound):
    first = one_stage(env, source, timer_ops, bound)
    return first.key_by(lambda v: v[2] % 2, int).process(Follower())


def three_stages(env, source, timer_ops, bound):
    return two_stages(env, source, timer_ops, bound).key_by(lambda v: "one", str).process(Arrivals())


class Arrivals(fp.KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield "one", value, ctx.timestamp(), ctx.timer_service().current_watermark()


def by_channel(arrivals):
    """What the last stage got, by the key of the stage before."""
    found = {}
    for arrival in arrivals:
        found.setdefault(arrival[1][0], []).append(arrival)
    return found


def in_the_order_emitted(found):
    """No output of a key has overtaken another: the last item is a count."""
    for values in found.values():
        assert [value[-1] for value in values] == list(range(1, len(values) + 1))


def results(shape, events, timer_ops, bound, **how):
    run = run_local(lambda env, source: shape(env, source, timer_ops, bound), events, **how)
    return run, by_key(run.output)


@examples(8)
@given(inputs(size=45), programs, st.integers(0, 10), st.sets(st.integers(1, 44), max_size=6), st.integers(1, 4))
def test_one_stage(events, timer_ops, bound, cuts, parallelism):
    _, expected = results(one_stage, events, timer_ops, bound, parallelism=1)
    _, found = results(one_stage, events, timer_ops, bound, parallelism=parallelism, epochs=sorted(cuts))
    assert found == expected


@examples(8)
@given(inputs(size=40), programs, st.integers(0, 10), st.sets(st.integers(1, 39), max_size=5), st.integers(2, 4))
def test_two_stages(events, timer_ops, bound, cuts, parallelism):
    _, expected = results(two_stages, events, timer_ops, bound, parallelism=1)
    _, found = results(two_stages, events, timer_ops, bound, parallelism=parallelism, epochs=sorted(cuts))
    assert found == expected
    in_the_order_emitted(found)


@examples(5)
@given(inputs(size=25), programs, st.integers(0, 10), st.sets(st.integers(1, 24), max_size=4), st.integers(2, 4))
def test_three_stages(events, timer_ops, bound, cuts, parallelism):
    """Elements that one timer emitted for different keys have no order among them; those of each key keep theirs."""
    _, expected = results(three_stages, events, timer_ops, bound, parallelism=1)
    _, found = results(three_stages, events, timer_ops, bound, parallelism=parallelism, epochs=sorted(cuts))
    assert by_channel(found["one"]) == by_channel(expected["one"])
    in_the_order_emitted({key: [a[1] for a in arrivals] for key, arrivals in by_channel(found["one"]).items()})


LONG_KEYS = ["sensor-0000001", "device-0000001", "switch-0000001", "camera-0000001"]  # alike in their last bytes


@pytest.fixture(scope="module")
def long_input():
    """100 elements with disorder, late ones among them, and timers of all kinds."""
    events, now = [], 0
    for i in range(100):
        now += (i * 7) % 5
        ts = now - (0 if i % 3 else (i * 11) % 17)
        ops = [("value", i % 10), ("add", i % 7)]
        if i % 2:
            ops.append(("register", (i * 5) % 13 - 4))
        if i % 3 == 0:
            ops.append(("register", 9))
            ops.append(("register", 9))
        if i % 5 == 0:
            ops.append(("delete", 4))
        if i % 11 == 0:
            ops.append(("clear", "items"))
        events.append(Event(LONG_KEYS[(i * i) % 4], ts, tuple(ops)))
    return events


LONG_PROGRAM = [(("register", 6), ("value", 3)), (("register", -5), ("add", 1)), (("delete", 3), ("put", 1, 2)), ()]


@pytest.mark.parametrize(
    ("rows", "parallelism"), [(15, 1), pytest.param(1, 2, marks=pytest.mark.slow), (1, 4), (34, 3), (1000, 4)]
)
def test_a_hundred_elements_in_1_to_100_epochs(long_input, rows, parallelism):
    _, expected = results(two_stages, long_input, LONG_PROGRAM, 5, parallelism=1)
    run, found = results(two_stages, long_input, LONG_PROGRAM, 5, parallelism=parallelism, epochs=rows)
    assert run.epochs == -(-100 // rows)
    assert found == expected


@pytest.mark.parametrize("at", ["planned", "computed", "written", "committed"])
def test_a_process_that_dies_changes_nothing(long_input, at):
    _, expected = results(two_stages, long_input, LONG_PROGRAM, 5, parallelism=1)
    script = [*long_input[:20], Abort(at), *long_input[20:50], PAUSE, Abort(at), *long_input[50:], Abort(at)]
    run, found = results(two_stages, script, LONG_PROGRAM, 5, parallelism=3, epochs=17)
    assert run.deaths == 3
    assert found == expected


@examples(6)
@given(inputs(size=20), programs, st.lists(st.tuples(st.integers(0, 20), st.sampled_from([PAUSE, ABORT])), max_size=4))
def test_deaths_and_cuts_anywhere(events, timer_ops, marks):
    _, expected = results(one_stage, events, timer_ops, 3, parallelism=1)
    script = list(events)
    for place, mark in sorted(marks, key=lambda m: -m[0]):
        script.insert(min(place, len(events)), mark)
    _, found = results(one_stage, script, timer_ops, 3, parallelism=2)
    assert found == expected


class Ticking(fp.KeyedProcessFunction):
    """Emits for each element and each processing-time timer, with a count."""

    count = fp.ValueStateDescriptor("count", int, 0)

    def process_element(self, value, ctx):
        ctx.timer_service().register_processing_time_timer(1000)
        yield self.out(ctx, "element")

    def on_timer(self, timestamp, ctx):
        yield self.out(ctx, "timer")

    def out(self, ctx, kind):
        self.count.update(self.count.value() + 1)
        return ctx.get_current_key(), kind, self.count.value()


@pytest.mark.parametrize("keys", [("a", 0), (0, "a")])
def test_processing_time_timers_of_two_stages_fire_in_the_same_epoch_in_order(keys):
    def build(env, source):
        first = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "in").key_by(lambda v: keys[0]).process(Ticking())
        return first.key_by(lambda v: keys[1]).process(Ticking())

    found = by_key(run_local(build, [1, Advance(1000), PAUSE], clock=ManualClock(0), parallelism=2).output)
    assert [v[1] for v in found[keys[1]]] == ["element", "timer", "element", "timer"]
    in_the_order_emitted(found)


class Reading(NamedTuple):
    sensor: str
    ts: int
    amount: int


class Tumbling(fp.KeyedProcessFunction):
    """Sums over windows of 10 ms, as windows are built of timers: depends on the watermark, not on arrival."""

    sums = fp.MapStateDescriptor("sums", int, int)

    def process_element(self, reading, ctx):
        end = reading.ts - reading.ts % 10 + 9
        self.sums[end] = (self.sums.get(end) or 0) + reading.amount
        ctx.timer_service().register_event_time_timer(end)

    def on_timer(self, timestamp, ctx):
        yield (
            ctx.get_current_key(),
            timestamp,
            self.sums[timestamp],
            ctx.timestamp(),
            ctx.timer_service().current_watermark(),
        )
        del self.sums[timestamp]


@st.composite
def split_inputs(draw):
    """Splits, each with its own pace, that keep to a disorder of 5 ms."""
    splits = []
    for _ in range(draw(st.integers(2, 4))):
        now, split = draw(st.integers(0, 40)), []
        for _ in range(draw(st.integers(0, 15))):
            now += draw(st.integers(0, 12))
            split.append(Reading(draw(st.sampled_from("xyz")), now - draw(st.integers(0, 5)), draw(st.integers(1, 9))))
        splits.append(split)
    return splits


@examples(12)
@given(split_inputs(), st.integers(1, 12), st.integers(1, 4))
@example([[Reading("x", 100, 1)], [Reading("x", 5, 2)]], 1, 1)
def test_with_several_splits_what_depends_on_the_watermark_alone_is_the_same(splits, rows, parallelism):
    def build(env, source):
        strategy = fp.WatermarkStrategy.for_bounded_out_of_orderness(5).with_timestamp_assigner(lambda r, _: r.ts)
        return env.from_source(source, strategy, "in").key_by(lambda r: r.sensor).process(Tumbling())

    truth = Counter()
    for reading in (r for split in splits for r in split):
        truth[reading.sensor, reading.ts - reading.ts % 10 + 9] += reading.amount
    expected = {}
    for (sensor, end), total in sorted(truth.items()):
        expected.setdefault(sensor, []).append((sensor, end, total, end, end))
    run = run_local(build, TestSource(*splits), epochs=rows, parallelism=parallelism)
    assert by_key(run.output) == expected


class Windows(fp.KeyedProcessFunction):
    """The second of two operators that work by the watermark alone."""

    seen = fp.ListStateDescriptor("seen", tuple[str, int])

    def process_element(self, value, ctx):
        sensor, end, total, *_ = value
        self.seen.add((sensor, total))
        ctx.timer_service().register_event_time_timer(end + 30 - end % 30)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp, sorted(self.seen.get())
        self.seen.clear()


@examples(6)
@given(split_inputs(), st.integers(1, 12), st.integers(1, 4))
def test_several_splits_through_two_stages(splits, rows, parallelism):
    def build(env, source):
        strategy = fp.WatermarkStrategy.for_bounded_out_of_orderness(5).with_timestamp_assigner(lambda r, _: r.ts)
        windows = env.from_source(source, strategy, "in").key_by(lambda r: r.sensor).process(Tumbling())
        return windows.key_by(lambda v: v[2] % 2, int).process(Windows())

    expected = by_key(run_local(build, TestSource(*splits), parallelism=1).output)
    assert by_key(run_local(build, TestSource(*splits), epochs=rows, parallelism=parallelism).output) == expected

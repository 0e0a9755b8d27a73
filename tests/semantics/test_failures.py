"""Functions that fail: what is said about it, and starting again."""

import pytest

import forkpoint as fp
from forkpoint.graph.options import JobOptions
from forkpoint.testing import PAUSE, TestSource, run_local

NO_WATERMARKS = fp.WatermarkStrategy.no_watermarks()
EVENT_TIME = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e[1])


def fails(value):
    if value[1] == 13:
        raise ValueError("unlucky")
    return value


class FailsKeyed(fp.KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield fails(value)


class FailsInTimer(fp.KeyedProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value[1])

    def on_timer(self, timestamp, ctx):
        fails((ctx.get_current_key(), timestamp))
        return ()


class FailsFlat(fp.FlatMapFunction):
    def flat_map(self, value):
        yield fails(value)


class FailsMap(fp.MapFunction):
    def map(self, value):
        return fails(value)


class FailsProcess(fp.ProcessFunction):
    def process_element(self, value, ctx):
        yield fails(value)


def key(e):
    return e[0]


WITHOUT_KEY = {
    "map": lambda s: s.map(fails),
    "filter": lambda s: s.filter(fails),
    "flat_map": lambda s: s.flat_map(FailsFlat()),
    "process": lambda s: s.process(FailsProcess()),
    "rebalanced": lambda s: s.rebalance().map(fails),
}
WITH_KEY = {
    "process": lambda s: s.key_by(key, str).process(FailsKeyed()),
    "map": lambda s: s.key_by(key, str).map(FailsMap()),
    "flat_map": lambda s: s.key_by(key, str).flat_map(FailsFlat()),
    "map_with_state": lambda s: s.key_by(key, str).map_with_state(lambda e, n: (fails(e), n), int),
    "flat_map_with_state": lambda s: s.key_by(key, str).flat_map_with_state(lambda e, n: ([fails(e)] * 2, n), int),
    "reduce": lambda s: s.key_by(key, str).reduce(lambda a, b: fails(b)),
}
ELEMENTS = [("a", 1), ("b", 2), ("a", 3), ("b", 13), ("a", 14), ("b", 15)]


def message(build, elements=ELEMENTS, strategy=NO_WATERMARKS):
    def job(env, source):
        return build(env.from_source(source, strategy, "in")).uid("broken")

    with pytest.raises(fp.UserFunctionError) as caught:
        run_local(job, elements, epochs=4)
    return str(caught.value)


def check(text):
    assert "operator 'broken'" in text
    assert "ValueError: unlucky" in text
    assert 'raise ValueError("unlucky")' in text  # the user's own line
    assert "/forkpoint/runtime/" not in text
    assert "/forkpoint/functions/" not in text


@pytest.mark.parametrize("kind", WITHOUT_KEY)
def test_the_message_has_uid_element_and_traceback(kind):
    text = message(WITHOUT_KEY[kind])
    check(text)
    assert "element ('b', 13)" in text


@pytest.mark.parametrize("kind", WITH_KEY)
def test_the_message_has_the_key_too(kind):
    text = message(WITH_KEY[kind])
    check(text)
    assert "key 'b', element ('b', 13)" in text


def stops(value):
    return next(e for e in (value,) if e[1] != 13)


class StopsKeyed(fp.KeyedProcessFunction):
    def process_element(self, value, ctx):
        return [stops(value)]


STOPPING = {
    "map": lambda s: s.map(stops),
    "filter": lambda s: s.filter(stops),
    "flat_map": lambda s: s.flat_map(lambda e: [stops(e)]),
    "timestamps": lambda s: s.assign_timestamps_and_watermarks(EVENT_TIME.with_timestamp_assigner(lambda e, _: stops(e)[1])),
    "key_by": lambda s: s.key_by(lambda e: stops(e)[0], str).process(StopsKeyed()),
    "keyed process": lambda s: s.key_by(key, str).process(StopsKeyed()),
    "reduce": lambda s: s.key_by(key, str).reduce(lambda a, b: stops(b)),
}


@pytest.mark.parametrize("kind", STOPPING)
def test_a_stop_iteration_is_a_failure_not_the_end_of_the_elements(kind):
    assert "raised StopIteration" in message(STOPPING[kind])


def test_a_failing_timer_names_its_time():
    text = message(lambda s: s.key_by(key, str).process(FailsInTimer()), strategy=EVENT_TIME)
    check(text)
    assert "key 'b', element 'timer at 13 ms'" in text or "timer at 13 ms" in text


def test_failing_timestamps_and_keys_are_told_too():
    text = message(lambda s: s.assign_timestamps_and_watermarks(EVENT_TIME), elements=[("a", 1), ("a", "x"), ("a", 3)])
    assert "('a', 'x')" in text
    text = failing_key([("a", 1), ("b",), ("c", 1)])
    assert "('b',)" in text
    assert "IndexError" in text


def failing_key(elements):
    def job(env, source):
        keyed = env.from_source(source, NO_WATERMARKS, "in").key_by(lambda e: e[1], int)
        return keyed.map_with_state(lambda e, n: (e, n), int).uid("counts")

    with pytest.raises(fp.ForkpointError) as caught:
        run_local(job, elements)
    return str(caught.value)


def test_a_value_that_its_state_cannot_hold_is_named():
    class Wrong(fp.KeyedProcessFunction):
        count = fp.ValueStateDescriptor("count", int)

        def process_element(self, value, ctx):
            self.count.update(object() if value[1] == 13 else 1)

    def job(env, source):
        return env.from_source(source, NO_WATERMARKS, "in").key_by(key, str).process(Wrong()).uid("wrong")

    with pytest.raises(fp.ForkpointError) as caught:
        run_local(job, ELEMENTS[:5])
    text = str(caught.value)
    assert "'wrong'" in text
    assert "'count'" in text


FAILURES = {"left": 0}
SEEN = []


class Flaky(fp.KeyedProcessFunction):
    """Fails at its third element as often as FAILURES says."""

    count = fp.ValueStateDescriptor("count", int)

    def process_element(self, value, ctx):
        SEEN.append(value)
        if value == 3 and FAILURES["left"]:
            FAILURES["left"] -= 1
            raise RuntimeError("flaky")
        self.count.update((self.count.value() or 0) + value)
        yield self.count.value()


def flaky(strategy, failures):
    FAILURES["left"] = failures
    SEEN.clear()
    env = fp.StreamExecutionEnvironment(JobOptions(parallelism=1))
    if strategy is not None:
        env.set_restart_strategy(strategy)

    def build(inner, source):
        inner.options = env.options
        return inner.from_source(source, NO_WATERMARKS, "in").key_by(lambda v: 0, int).process(Flaky())

    return run_local(build, TestSource([1, 2, PAUSE, 3, 4]))


STRATEGIES = {
    "fixed": fp.RestartStrategy.fixed_delay(2, 1),
    "exponential": fp.RestartStrategy.exponential_delay(initial=1, maximum=4, attempts=2),
    "rate": fp.RestartStrategy.failure_rate(2, 60_000, 1),
}


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_a_job_starts_again_from_its_last_checkpoint(strategy):
    run = flaky(strategy, failures=2)
    assert run.restarts == 2
    assert run.output == [1, 3, 6, 10]
    assert SEEN == [1, 2, 3, 3, 3, 4]


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_a_strategy_gives_up(strategy):
    with pytest.raises(fp.UserFunctionError, match="flaky"):
        flaky(strategy, failures=3)
    assert SEEN == [1, 2, 3, 3, 3]


@pytest.mark.parametrize("strategy", [None, fp.RestartStrategy.none()])
def test_without_a_strategy_the_first_failure_is_the_last(strategy):
    with pytest.raises(fp.UserFunctionError, match="flaky"):
        flaky(strategy, failures=1)
    assert SEEN == [1, 2, 3]

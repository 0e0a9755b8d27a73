"""Async I/O against a real server: places, capacity, retries, timeouts, side outputs, and what failures say."""

import asyncio
import threading
import time
from datetime import timedelta

import pytest
from lookup_server import Square, serving

import forkpoint as fp
from forkpoint.errors import ConfigError, GraphError, UserFunctionError
from forkpoint.testing import ABORT, EOF, PAUSE, OperatorHarness, TestSource, run_local

NO_WATERMARKS = fp.WatermarkStrategy.no_watermarks()
SECONDS = timedelta(seconds=20)
LATE = fp.OutputTag("late", int)


@pytest.fixture(scope="module")
def lookup():
    with serving() as lookup:
        yield lookup


@pytest.fixture
def server(lookup):
    return lookup.begin()


def asking(fn, *, timeout=SECONDS, wait=fp.AsyncDataStream.unordered_wait, ahead=lambda s: s, **more):
    def build(env, source):
        return wait(ahead(env.from_source(source, NO_WATERMARKS, "in").uid("in")), fn, timeout, **more).uid("asks")

    return build


@pytest.mark.parametrize("wait", [fp.AsyncDataStream.ordered_wait, fp.AsyncDataStream.unordered_wait])
@pytest.mark.parametrize("ahead", [lambda s: s, lambda s: s.rebalance(), lambda s: s.key_by(lambda v: v[0] % 7, int)])
def test_results_take_the_place_of_their_elements(server, wait, ahead):
    numbers = [(n, {"sleep": (20 - n) / 200}) for n in range(20)]
    run = run_local(asking(Square(server.url), wait=wait, ahead=ahead), numbers, parallelism=1)
    assert run.output == [(n, n * n) for n in range(20)]
    assert server.finished != sorted(server.finished), "the server answered in another order"


@pytest.mark.parametrize("wait", [fp.AsyncDataStream.ordered_wait, fp.AsyncDataStream.unordered_wait])
def test_a_slow_request_holds_up_no_other(server, wait):
    numbers = [(0, {"after": 29}), *range(1, 30)]
    run = run_local(asking(Square(server.url), wait=wait, capacity=2), numbers, parallelism=1)
    assert run.output == [(n, n * n) for n in range(30)]
    assert server.finished[-1] == 0


def test_as_many_are_in_flight_as_may_be_and_no_more(server):
    numbers = [(n, {"sleep": 0.02}) for n in range(40)]
    run_local(asking(Square(server.url), capacity=5), numbers, parallelism=1)
    assert server.most_in_flight == 5


def test_one_client_serves_all_epochs_and_is_closed(server):
    before = threading.active_count()
    run = run_local(asking(Square(server.url), capacity=1), [1, PAUSE, 2, PAUSE, 3], parallelism=1)
    assert run.output == [(1, 1), (2, 4), (3, 9)]
    assert len(server.clients) == 1, "the connection was kept between epochs"
    assert threading.active_count() <= before, "the loop has ended with the job"


def test_every_cut_gives_the_same(server):
    numbers = list(range(30))
    runs = [run_local(asking(Square(server.url)), numbers, epochs=epochs, parallelism=1) for epochs in (1, 7, 30)]
    assert [r.output for r in runs] == [[(n, n * n) for n in numbers]] * 3


def test_a_repeated_task_asks_again(server):
    run = run_local(asking(Square(server.url)), [1, 2, ABORT, PAUSE, 3], parallelism=1, epochs=2)
    assert sorted(set(run.output)) == [(1, 1), (2, 4), (3, 9)]
    assert sum(server.calls.values()) > 3


EXCEPTIONS = {"exception_predicate": fp.has_exception_predicate}


@pytest.mark.parametrize(
    "strategy",
    [
        fp.FixedDelayRetryStrategy(3, 10, **EXCEPTIONS),
        fp.ExponentialBackoffDelayRetryStrategy(3, 5, timedelta(milliseconds=20), 2.0, **EXCEPTIONS),
    ],
)
@pytest.mark.parametrize("wait", [fp.AsyncDataStream.ordered_wait_with_retry, fp.AsyncDataStream.unordered_wait_with_retry])
def test_failed_requests_are_made_again(server, strategy, wait):
    numbers = [(1, {"fail": 3}), (2, {}), (3, {"fail": 1})]
    run = run_local(asking(Square(server.url), wait=wait, async_retry_strategy=strategy), numbers, parallelism=1)
    assert run.output == [(1, 1), (2, 4), (3, 9)]
    assert server.calls == {1: 4, 2: 1, 3: 2}


def test_the_last_failure_is_reported_once_no_attempt_is_left(server):
    strategy = fp.FixedDelayRetryStrategy(2, 1, **EXCEPTIONS)
    build = asking(Square(server.url), wait=fp.AsyncDataStream.unordered_wait_with_retry, async_retry_strategy=strategy)
    with pytest.raises(UserFunctionError, match=r"(?s)operator 'asks'.*HTTPStatusError.*element \(7, .*lookup_server.py"):
        run_local(build, [(7, {"fail": 9})])
    assert server.calls == {7: 3}


CALLS = []  # of functions of this module, which are not copied
ENDED = []


async def odd(value: int) -> list[int]:
    CALLS.append(value)
    if value == 3:
        raise KeyError(value)
    return [] if len(CALLS) < 3 else [value]


def test_only_outcomes_that_the_predicates_name_are_tried_again():
    def harness(value, **predicates):
        CALLS.clear()
        strategy = fp.FixedDelayRetryStrategy(5, 1, **predicates)
        wait = fp.AsyncDataStream.ordered_wait_with_retry
        with OperatorHarness(lambda s: wait(s, odd, SECONDS, strategy)) as h:
            h.process_element(value)
            return h.output

    assert harness(1, result_predicate=fp.empty_result_predicate) == [1]
    assert len(CALLS) == 3
    assert harness(1) == []
    assert len(CALLS) == 1
    with pytest.raises(UserFunctionError, match="KeyError"):
        harness(3, exception_predicate=lambda error: isinstance(error, ValueError))
    assert len(CALLS) == 1


def test_the_last_results_are_emitted_once_no_attempt_is_left():
    async def never(value):
        return []

    strategy = fp.FixedDelayRetryStrategy(2, 1, fp.empty_result_predicate)
    with OperatorHarness(lambda s: fp.AsyncDataStream.ordered_wait_with_retry(s, never, SECONDS, strategy)) as h:
        h.process_element(1)
        assert h.output == []


def test_pauses_grow_to_their_greatest():
    strategy = fp.ExponentialBackoffDelayRetryStrategy(9, 100, 1000, 3.0)
    assert [strategy.get_backoff_time_millis(n) for n in (1, 2, 3, 4, 50)] == [100, 300, 900, 1000, 1000]
    assert strategy.can_retry(9)
    assert not strategy.can_retry(10)


def test_a_timeout_is_an_error_unless_the_function_knows_better(server):
    class Patient(Square):
        def timeout(self, value):
            return [(LATE, value[0]), (value[0], -1)]

    numbers = [(1, {}), (2, {"sleep": 2}), (3, {})]
    brief = timedelta(milliseconds=150)
    with pytest.raises(UserFunctionError, match=r"(?s)operator 'asks'.*no answer within the timeout.*element \(2,"):
        run_local(asking(Square(server.url), timeout=brief), numbers)

    def build(env, source):
        asked = asking(Patient(server.url), timeout=brief)(env, source)
        return {"main": asked, "late": asked.get_side_output(LATE)}

    run = run_local(build, numbers, parallelism=1)
    assert run.outputs == {"main": [(1, 1), (2, -1), (3, 9)], "late": [2]}


def test_the_timeout_is_over_all_attempts_together(server):
    strategy = fp.FixedDelayRetryStrategy(1000, 20, **EXCEPTIONS)
    wait = fp.AsyncDataStream.unordered_wait_with_retry
    build = asking(Square(server.url), timeout=200, wait=wait, async_retry_strategy=strategy)
    began = time.monotonic()
    with pytest.raises(UserFunctionError, match="no answer within the timeout"):
        run_local(build, [(7, {"fail": 10_000})])
    assert time.monotonic() - began < 3


def test_a_timeout_of_the_functions_own_is_its_failure():
    async def impatient(value):
        raise TimeoutError("my own")

    with pytest.raises(UserFunctionError, match="TimeoutError: my own"):
        run_local(asking(impatient), [1])


async def fails_at_two(value):
    if value == 2:
        await asyncio.sleep(0.01)
        raise ValueError("two")
    try:
        await asyncio.sleep(30)
    finally:
        ENDED.append(value)


def test_a_failure_ends_the_other_requests():
    ENDED.clear()
    with pytest.raises(UserFunctionError, match="two"):
        run_local(asking(fails_at_two), [1, 2, 3], parallelism=1)
    assert sorted(ENDED) == [1, 3]


async def cancelled_task():
    task = asyncio.ensure_future(asyncio.sleep(30))
    task.cancel()
    await task


async def cancelled_itself():
    asyncio.current_task().cancel()
    await asyncio.sleep(0)


async def raised():
    raise asyncio.CancelledError


class Cancelling(fp.AsyncFunction):
    """Ends its request for 2 with a CancelledError, the first ``times`` times; emits tens."""

    def __init__(self, how, times=1000):
        self.how, self.times = how, times

    async def async_invoke(self, value):
        if value == 2 and self.times:
            self.times -= 1
            await self.how()
        return [value * 10]

    def timeout(self, value):
        return [-value]


@pytest.mark.parametrize("how", [raised, cancelled_task, cancelled_itself])
@pytest.mark.parametrize("wait", [fp.AsyncDataStream.ordered_wait, fp.AsyncDataStream.unordered_wait])
@pytest.mark.parametrize("capacity", [1, 3])
def test_a_cancellation_of_the_requests_own_is_its_failure_and_loses_no_element(how, wait, capacity):
    with pytest.raises(UserFunctionError, match=r"(?s)operator 'asks'.*CancelledError.*element 2"):
        run_local(asking(Cancelling(how), wait=wait, capacity=capacity), [1, 2, 3], parallelism=1)


def test_a_cancellation_of_the_requests_own_is_an_exception_to_retries():
    wait = fp.AsyncDataStream.ordered_wait_with_retry
    strategy = fp.FixedDelayRetryStrategy(2, 1, **EXCEPTIONS)
    build = asking(Cancelling(raised, times=2), wait=wait, async_retry_strategy=strategy)
    assert run_local(build, [1, 2, 3], parallelism=1).output == [10, 20, 30]


class Stubborn(fp.AsyncFunction):
    """Does not end when it is cancelled."""

    def __init__(self, reaction):
        self.reaction = reaction

    async def async_invoke(self, value):
        try:
            await asyncio.sleep(30 if value == 2 else 0)
        except asyncio.CancelledError:
            if self.reaction == "fail":
                raise ValueError("cancelled") from None
            if self.reaction == "stay":
                await asyncio.sleep(300)
        return [value * 10]

    def timeout(self, value):
        return [-value]


@pytest.mark.parametrize("reaction", ["return", "fail", "stay"])
def test_what_a_request_does_after_its_timeout_counts_no_more(reaction):
    run = run_local(asking(Stubborn(reaction), timeout=timedelta(milliseconds=50)), [1, 2, 3], parallelism=1)
    assert run.output == [10, -2, 30]


class Cancelled(BaseException):
    """As those of trio or of a test runner: not an Exception."""


@pytest.mark.parametrize("error", [asyncio.CancelledError, Cancelled])
def test_any_exception_of_a_function_is_a_failure_of_its_operator(error):
    def fails(value):
        raise error("odd")

    def build(env, source):
        return env.from_source(source, NO_WATERMARKS, "in").uid("in").map(fails).uid("map")

    with pytest.raises(UserFunctionError, match=rf"operator 'map': the function raised {error.__name__}: odd \(element 1\)"):
        run_local(build, [1])


class Numbered(fp.AsyncFunction, fp.CheckpointedFunction):
    """Has operator state beside its requests."""

    def initialize_state(self, context):
        self.state = context.get_operator_state_store().get_list_state(fp.ListStateDescriptor("asked", int))
        self.asked = sum(self.state.get())

    async def async_invoke(self, value):
        self.asked += 1
        return [(value, self.asked)]

    def snapshot_state(self, context):
        self.state.update([self.asked])


def test_operator_state_goes_with_it(tmp_path):
    script = ["a", ABORT, PAUSE, "b", EOF, "c"]
    runs = [run_local(asking(Numbered()), script, parallelism=1, state_root=tmp_path) for _ in range(2)]
    assert [run.output for run in runs] == [[("a", 1), ("b", 2)], [("c", 3)]]


@pytest.mark.parametrize("wrong", [(1, 2), "text", b"bytes", {"a": 1}, 7])
def test_results_that_are_no_list_are_refused(wrong):
    async def ask(value):
        return wrong

    with pytest.raises(GraphError, match=r"operator 'asks'.*return a list"):
        run_local(asking(ask), [1])


def test_no_results_or_many():
    async def up_to(value: int) -> list[int] | None:
        return list(range(value)) if value else None

    source = TestSource([0, 1, 3], type=int)
    assert run_local(asking(up_to), source, parallelism=1).output == [0, 0, 1, 2]


def test_elements_keep_their_time():
    async def twice(value: int) -> list[int]:
        await asyncio.sleep(0.01 / value)
        return [value, value]

    strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v, _: v * 1000)

    def build(env, source):
        numbers = env.from_source(source, strategy, "in").uid("in")
        asked = fp.AsyncDataStream.unordered_wait(numbers, twice, SECONDS)
        windows = asked.key_by(lambda v: 0, int).window(fp.TumblingEventTimeWindows.of(timedelta(seconds=2)))
        return windows.reduce(lambda a, b: a + b).uid("windows")

    runs = [run_local(build, TestSource(range(1, 8), type=int), epochs=epochs).output for epochs in (1, 3, 100)]
    assert runs == [[2, 10, 18, 26]] * 3


async def fine(value):
    return [value]


@pytest.mark.parametrize(
    ("fn", "more", "error", "says"),
    [
        (lambda v: [v], {}, GraphError, "async def"),
        (fine, {"capacity": 0}, ConfigError, "at least 1"),
        (fine, {"timeout": 0}, ConfigError, "at least 1 ms"),
        (fp.MapFunction, {}, GraphError, "is a class; give an instance"),
        (7, {}, GraphError, "callable"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_written(fn, more, error, says):
    with pytest.raises(error, match=says):
        run_local(asking(fn, **more), [1])


def test_strategies_are_checked():
    with pytest.raises(ConfigError, match="at least 1"):
        fp.FixedDelayRetryStrategy(0, 10)
    with pytest.raises(ConfigError, match="at least 1 ms"):
        fp.FixedDelayRetryStrategy(1, 0)
    with pytest.raises(ConfigError, match="maximum retry delay"):
        fp.ExponentialBackoffDelayRetryStrategy(1, 100, 10, 2.0)
    with pytest.raises(GraphError, match="AsyncRetryStrategy"):
        run_local(asking(fine, wait=fp.AsyncDataStream.ordered_wait_with_retry, async_retry_strategy=3), [1])

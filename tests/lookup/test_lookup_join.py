"""lookup_join with functions of the program's own: places, batches, what is missing, retries, timeouts, and what errors say."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from lookup_jobs import (
    ASKED,
    EVENTS,
    MOST,
    TABLE,
    THREADS,
    Hanging,
    OfSqlite,
    Order,
    Profiles,
    ages,
    asked,
    begin,
    failing,
    joining,
    settle,
)

import forkpoint as fp
from forkpoint.errors import ConfigError, GraphError, JobFailed, SystemUnavailable, TypeNotSupported, UserFunctionError
from forkpoint.graph.options import RestartStrategy
from forkpoint.testing import PAUSE, TestSource, run_local

ANN, BOB, EVE = Order("ann", 1), Order("bob", 2), Order("eve", 3)


@pytest.fixture(autouse=True)
def table() -> None:
    begin({"ann": 30, "bob": 40})
    EVENTS.clear()
    THREADS.clear()
    MOST[0] = 0


def test_an_epoch_asks_once_about_each_of_its_keys() -> None:
    run = run_local(joining(ages), [ANN, BOB, ANN, PAUSE, ANN], parallelism=1)
    assert run.output == [(ANN, 30), (BOB, 40), (ANN, 30), (ANN, 30)]
    assert ASKED == [["ann", "bob"], ["ann"]]


@pytest.mark.parametrize("columnar", [False, True])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_each_key_keeps_its_order(columnar: bool, parallelism: int) -> None:
    orders = [Order(["ann", "bob", "eve", "dan"][n % 4], n) for n in range(60)]
    source = TestSource(orders, type=Order, columnar=columnar)
    run = run_local(joining(ages), source, parallelism=parallelism, epochs=25)
    expected: dict[str, list[Any]] = {}
    for order in orders:
        expected.setdefault(order.customer, []).append((order, TABLE.get(order.customer)))
    assert run.by_key(lambda pair: pair[0].customer) == expected
    if parallelism == 1:
        assert run.output == [(order, TABLE.get(order.customer)) for order in orders]


def test_results_keep_the_times_of_their_elements_and_watermarks_pass() -> None:
    strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda o, _: o.amount * 1000)

    def build(env: Any, source: Any) -> Any:
        joined = joining(ages, strategy=strategy)(env, source)
        windows = fp.TumblingEventTimeWindows.of(timedelta(seconds=10))
        sums = joined.key_by(lambda pair: pair[1] or 0, int).window(windows).agg(n=fp.Count(), end=fp.WindowEnd())
        return {"joined": joined, "sums": sums.uid("sums")}

    run = run_local(build, [Order("ann", 1), Order("ann", 8), Order("bob", 12), PAUSE, Order("eve", 25)])
    assert sorted(record.timestamp for record in run.records["joined"]) == [1000, 8000, 12000, 25000]
    assert sorted((row.key, row.n) for row in run.outputs["sums"]) == [(0, 1), (30, 2), (40, 1)]


@pytest.mark.parametrize(("on_missing", "expected"), [("null", [(EVE, None), (ANN, 30), (EVE, None)]), ("drop", [(ANN, 30)])])
def test_what_is_missing(on_missing: str, expected: list[Any]) -> None:
    assert run_local(joining(ages, on_missing=on_missing), [EVE, ANN, EVE], parallelism=1).output == expected


def test_a_missing_key_can_fail_the_job() -> None:
    with pytest.raises(JobFailed, match=r"operator 'joined': .*nothing for key 'eve' of element Order\(.*on_missing='null'"):
        run_local(joining(ages, on_missing="fail"), [ANN, EVE])


class Older(fp.JoinFunction):
    def open(self, runtime_context: fp.RuntimeContext) -> None:
        EVENTS.append("older")

    def join(self, first: Order, second: int) -> tuple[str, int]:
        return first.customer, second + 1

    def close(self) -> None:
        EVENTS.append("closed")


class Twice(fp.FlatJoinFunction):
    def join(self, first: Order, second: int | None) -> list[str] | None:
        return None if second is None else [first.customer] * 2


def spelled(order: Order, age: int | None):
    yield from order.customer if age is None else ()


def test_functions_make_the_results() -> None:
    orders = [ANN, EVE, BOB]
    assert run_local(joining(ages, lambda o, age: (o.amount, age)), orders, parallelism=1).output == [
        (1, 30),
        (3, None),
        (2, 40),
    ]
    assert run_local(joining(ages, Older(), on_missing="drop"), orders, parallelism=1).output == [
        ("ann", 31),
        ("bob", 41),
    ]
    assert EVENTS == ["older", "closed"]
    assert run_local(joining(ages, Twice()), orders, parallelism=1).output == ["ann", "ann", "bob", "bob"]
    assert run_local(joining(ages, spelled), orders, parallelism=1).output == ["e", "v", "e"]


def test_batch_mode() -> None:
    options = {"runtime_mode": fp.RuntimeExecutionMode.BATCH}
    run = run_local(joining(ages, cache_ttl=1000), [ANN, EVE, ANN], parallelism=1, options=options)
    assert run.by_key(lambda pair: pair[0].customer) == {"ann": [(ANN, 30)] * 2, "eve": [(EVE, None)]}


def test_types_come_from_annotations() -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    orders = env.from_collection([ANN], Order)
    of_order = fp.Types.TUPLE([orders.get_type(), fp.Types.LONG()])
    assert orders.lookup_join(ages, key="customer", on_missing="drop").get_type() == of_order
    assert str(orders.lookup_join(ages, key="customer").get_type()) != str(of_order)
    assert orders.lookup_join(ages, Older(), key="customer").get_type() == fp.Types.TUPLE([fp.Types.STRING(), fp.Types.LONG()])
    assert env.from_collection([1]).map(lambda n: n).lookup_join(ages, key=lambda n: n).get_type() is None


def test_keyed_streams_and_computed_keys() -> None:
    by_field = joining(ages, ahead=lambda s: s.key_by("customer"), key=None)
    assert run_local(by_field, [ANN, EVE], parallelism=1).output == [(ANN, 30), (EVE, None)]
    by_function = joining(ages, key=lambda o: o.customer.lower(), key_type=str)
    assert run_local(by_function, [Order("ANN", 1)]).output == [(Order("ANN", 1), 30)]
    other_key = joining(ages, ahead=lambda s: s.key_by("amount"))
    assert run_local(other_key, [ANN]).output == [(ANN, 30)]


def test_async_lookups_run_concurrently_up_to_their_capacity() -> None:
    begin({f"c{n}": n for n in range(20)})
    orders = [Order(f"c{n}", n) for n in range(20)]
    run = run_local(joining(Profiles(capacity=4)), orders, parallelism=1)
    assert run.output == [(order, {"age": order.amount, "tags": ["x"]}) for order in orders]
    assert MOST == [4]
    assert sorted(ASKED) == sorted([o.customer] for o in orders)
    assert EVENTS == ["open", "close"]
    ASKED.clear()
    run_local(joining(Profiles(max_batch_size=8)), orders, parallelism=1)
    assert sorted(map(len, ASKED)) == [4, 8, 8]


async def later(keys: list[str]) -> dict[str, int]:
    return ages(keys)


def test_plain_async_functions() -> None:
    assert run_local(joining(later), [ANN, EVE, BOB], parallelism=1).output == [(ANN, 30), (EVE, None), (BOB, 40)]
    assert ASKED == [["ann", "eve", "bob"]]


def test_a_lookup_function_runs_on_one_thread() -> None:
    run = run_local(joining(OfSqlite()), [ANN, EVE, BOB, PAUSE, BOB], parallelism=1)
    assert run.output == [(ANN, 30), (EVE, None), (BOB, 40), (BOB, 40)]
    assert ASKED == [["ann", "eve"], ["bob"], ["bob"]]
    assert len(THREADS) == 1


def change(order: Order, profile: dict[str, Any]) -> tuple[str, list[str]]:
    profile["tags"].append(order.customer)
    return order.customer, profile["tags"]


@pytest.mark.parametrize("options", [{}, {"cache_ttl": timedelta(hours=1)}])
def test_each_element_gets_an_object_of_its_own(options: dict[str, Any]) -> None:
    run = run_local(joining(Profiles(), change, **options), [ANN, ANN, PAUSE, ANN])
    assert run.output == [("ann", ["x", "ann"])] * 3


# -- failures


@pytest.mark.parametrize("error", [ConnectionError("gone"), TimeoutError("slow"), SystemUnavailable("down")])
def test_a_lookup_is_repeated_while_its_system_does_not_work(error: Exception) -> None:
    assert run_local(joining(failing(2, error)), [ANN], parallelism=1).output == [(ANN, 30)]  # by default
    assert len(ASKED) == 3
    ASKED.clear()
    retry = fp.FixedDelayRetryStrategy(3, 1)
    with pytest.raises(SystemUnavailable, match=rf"operator 'joined': the lookup of the keys \['ann'\] failed: .*{error}"):
        run_local(joining(failing(9, error), retry_strategy=retry), [ANN], parallelism=1)
    assert len(ASKED) == 4


def test_the_epoch_is_repeated_until_the_system_works_again() -> None:
    build = joining(Outage(), retry_strategy=fp.NoRetryStrategy())
    once = {"restart": RestartStrategy.fixed_delay(1, 1)}  # an outage uses up no attempts
    run = run_local(build, [BOB, PAUSE, ANN, ANN], parallelism=1, options=once)
    assert run.output == [(BOB, 40), (ANN, 30), (ANN, 30)]
    assert asked() == ["bob", *["ann"] * 6]


class Outage(fp.LookupFunction[str, int]):
    def lookup(self, keys: Any) -> dict[str, int]:
        found = ages(keys)
        if 1 < len(ASKED) < 7:
            raise SystemUnavailable("the system does not work")
        return found


def test_other_exceptions_are_the_functions_own() -> None:
    with pytest.raises(
        UserFunctionError, match=r"(?s)operator 'joined'.*ValueError: bad \(the keys \['ann'\]\).*lookup_jobs\.py"
    ):
        run_local(joining(failing(9, ValueError("bad"))), [ANN], parallelism=1)
    assert len(ASKED) == 1
    ASKED.clear()
    retry = fp.FixedDelayRetryStrategy(2, 1, exception_predicate=lambda error: isinstance(error, ValueError))
    assert run_local(joining(failing(2, ValueError("bad")), retry_strategy=retry), [ANN]).output == [(ANN, 30)]
    for raised in (StopIteration(), SystemExit(3)):
        ASKED.clear()
        with pytest.raises(UserFunctionError, match="operator 'joined'"):
            run_local(joining(failing(9, raised)), [ANN])  # type: ignore[arg-type]


def test_empty_answers_can_be_asked_for_again() -> None:
    retry = fp.FixedDelayRetryStrategy(2, 1, result_predicate=fp.empty_result_predicate)
    assert run_local(joining(ages, retry_strategy=retry), [EVE]).output == [(EVE, None)]
    assert ASKED == [["eve"]] * 3


def test_a_call_that_hangs_ends_with_the_timeout() -> None:
    with pytest.raises(SystemUnavailable, match=r"operator 'joined'.*\['ann'\].*no answer within 100 ms; increase the timeout"):
        run_local(joining(Hanging(), timeout=timedelta(milliseconds=100)), [ANN], parallelism=1)
    settle(lambda: EVENTS == ["released"])
    assert len(ASKED) == 1


def test_wrong_answers_are_refused() -> None:
    with pytest.raises(GraphError, match=r"operator 'joined'.*it returned \[30\]; return a dict"):
        run_local(joining(lambda keys: [30]), [ANN])
    with pytest.raises(TypeNotSupported, match=r"(?s)operator 'joined', lookup: 'old' of key 'ann'.*Return values of the type"):
        run_local(joining(wrong), [ANN])
    with pytest.raises(UserFunctionError, match=r"(?s)operator 'joined'.*ZeroDivisionError.*element Order"):
        run_local(joining(ages, lambda order, age: 1 / 0), [ANN])


def wrong(keys: Any) -> dict[str, int]:
    return dict.fromkeys(keys, "old")  # type: ignore[arg-type]


class CannotOpen(fp.LookupFunction[str, int]):
    def open(self, runtime_context: fp.RuntimeContext) -> None:
        raise RuntimeError("no client")

    def lookup(self, keys: Any) -> dict[str, int]:
        return {}


def test_a_function_that_does_not_open() -> None:
    with pytest.raises(UserFunctionError, match=r"operator 'joined'.*RuntimeError: no client \(open\(\)\)"):
        run_local(joining(CannotOpen()), [ANN])


class NotAsync(fp.AsyncLookupFunction[str, int]):
    def async_lookup(self, keys: Any) -> dict[str, int]:  # type: ignore[override]
        return {}


class WronglyAsync(fp.LookupFunction[str, int]):
    async def lookup(self, keys: Any) -> dict[str, int]:  # type: ignore[override]
        return {}


@pytest.mark.parametrize(
    ("lookup", "options", "error", "text"),
    [
        (ages, {"on_missing": "ignore"}, ConfigError, "on_missing='ignore'.*'null', 'drop', 'fail'"),
        (ages, {"cache_misses": True}, ConfigError, "there is no cache; set cache_ttl"),
        (ages, {"cache_ttl": timedelta(0)}, ConfigError, "cache_ttl"),
        (ages, {"timeout": 0}, ConfigError, "timeout of lookup_join"),
        (ages, {"key": None}, GraphError, "pass key=, or call key_by"),
        (ages, {"key": lambda o: [o.customer], "key_type": list[str]}, GraphError, "not hashable"),
        (ages, {"key": "name"}, GraphError, "no field 'name'"),
        (ages, {"retry_strategy": 3}, GraphError, "retry_strategy must be"),
        (ages, {"output_type": int}, GraphError, "type of the function's results"),
        (3, {}, GraphError, "takes a LookupFunction"),
        (OfSqlite, {}, GraphError, r"OfSqlite is a class; give an instance, OfSqlite\(\)"),
        (NotAsync(), {}, GraphError, "NotAsync.async_lookup: declare it as 'async def'"),
        (WronglyAsync(), {}, GraphError, "derive WronglyAsync from AsyncLookupFunction"),
        (Profiles(capacity=0), {}, ConfigError, "capacity is 0"),
        (Profiles(max_batch_size=0), {}, ConfigError, "max_batch_size is 0"),
    ],
)
def test_what_cannot_work_is_refused_at_once(lookup: Any, options: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        run_local(joining(lookup, **options), [ANN])


class ByClass(fp.LookupFunction):
    """Names the class of each key."""

    def lookup(self, keys: Sequence[Any]) -> dict[Any, str]:
        ASKED.append(list(keys))
        return {float("nan") if key != key else key: repr(key) for key in keys}


def test_keys_that_python_takes_for_equal_are_looked_up_apart() -> None:
    keys = [1, True, 1.0, 0.0, -0.0, float("nan"), "x"]
    run = run_local(
        lambda env, source: env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "in").lookup_join(
            ByClass(), key=lambda k: k
        ),
        TestSource(keys),
    )
    assert len(run.output) == len(keys)
    assert all(repr(key) == found for key, found in run.output)

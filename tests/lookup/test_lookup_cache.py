"""The cache of lookup_join: how long it is used, that it survives restarts and savepoints, and that it evolves."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lookup_jobs import ASKED, TABLE, Order, Profiles, ages, asked, begin, joining

import forkpoint as fp
from example_counts import examples
from forkpoint.errors import RestoreRefused, SystemUnavailable
from forkpoint.graph.options import RestoreOptions
from forkpoint.state_processor import SavepointReader, SavepointWriter
from forkpoint.testing import ABORT, PAUSE, Abort, Advance, Eof, Rescale, run_local

TTL = timedelta(minutes=10)
ANN, BOB, EVE = Order("ann", 1), Order("bob", 2), Order("eve", 3)
LATER = Advance(timedelta(minutes=6))
PEOPLE = [("ann", 30), ("bob", 40)]


@pytest.fixture(autouse=True)
def table() -> None:
    begin({"ann": 30, "bob": 40})


def test_a_cached_key_is_not_asked_about_until_its_time_is_over() -> None:
    run = run_local(joining(growing, cache_ttl=TTL), [ANN, LATER, ANN, BOB, LATER, ANN, BOB, LATER, BOB], parallelism=1)
    # An entry's age counts from the lookup; reading does not renew it.
    assert run.output == [(ANN, 1), (ANN, 1), (BOB, 2), (ANN, 3), (BOB, 2), (BOB, 4)]
    assert ASKED == [["ann"], ["bob"], ["ann"], ["bob"]]


def growing(keys: Any) -> dict[str, int]:
    """Never the same twice."""
    ages(keys)
    return dict.fromkeys(keys, len(ASKED))


def test_misses_are_cached_if_asked_for() -> None:
    orders = [EVE, PAUSE, EVE, LATER, LATER, EVE]
    assert run_local(joining(ages, cache_ttl=TTL), orders).output == [(EVE, None)] * 3
    assert len(ASKED) == 3
    ASKED.clear()
    run = run_local(joining(ages, cache_ttl=TTL, cache_misses=True, on_missing="drop"), [*orders, ANN], parallelism=1)
    assert run.output == [(ANN, 30)]
    assert asked() == ["eve", "eve", "ann"]


def test_an_entry_ends_when_its_key_is_gone() -> None:
    run = run_local(joining(forgetful, cache_ttl=TTL), [ANN, LATER, LATER, ANN, PAUSE, ANN], parallelism=1)
    assert run.output == [(ANN, 30), (ANN, None), (ANN, None)]
    assert len(ASKED) == 3, "the missing key was not cached"


def forgetful(keys: Any) -> dict[str, int]:
    found = ages(keys)
    TABLE.clear()
    return found


@pytest.mark.parametrize("misses", [False, True])
@pytest.mark.parametrize(
    ("lookup", "found"),
    [(ages, {"ann": 30, "bob": 40}), (Profiles(), {n: {"age": a, "tags": ["x"]} for n, a in PEOPLE})],
)
def test_a_savepoint_has_the_cache(tmp_path: Path, lookup: Any, found: dict[str, Any], misses: bool) -> None:
    build = joining(lookup, cache_ttl=TTL, cache_misses=misses)
    orders = [ANN, BOB, EVE, Eof(savepoint=True), EVE, BOB, ANN, ANN]
    first = run_local(build, orders, state_root=tmp_path, parallelism=2)
    ASKED.clear()
    TABLE.clear()  # it is not asked about what is cached
    restored = run_local(build, orders, state_root=tmp_path, restore=first.savepoint, job_name="restored", parallelism=3)
    everybody = {**found, "eve": None}
    assert restored.by_key(lambda pair: pair[0].customer) == {
        order.customer: [(order, everybody[order.customer])] * (2 if order is ANN else 1) for order in (ANN, BOB, EVE)
    }
    assert set(asked()) == (set() if misses else {"eve"})
    cache = SavepointReader.read(first.savepoint).state("joined", "cache")
    assert cache.count == len(everybody if misses else found)
    assert [cache.get(name) for name in everybody] == list(everybody.values())


@pytest.mark.parametrize("death", [ABORT, Abort("committed")])
def test_a_repeated_epoch_uses_the_cache_of_the_committed_ones(death: Abort) -> None:
    run = run_local(joining(growing, cache_ttl=TTL), [ANN, PAUSE, ANN, BOB, death, ANN, PAUSE, BOB], parallelism=1)
    assert run.deaths == 1
    by_key = run.by_key(lambda pair: pair[0].customer)
    assert by_key["ann"] == [(ANN, 1)] * 3
    assert len(set(by_key["bob"])) == 1, "the answer that was committed holds"


def test_the_cache_moves_with_its_keys() -> None:
    orders = [Order(f"c{n}", n) for n in range(40)]
    begin({o.customer: o.amount for o in orders})
    run = run_local(joining(ages, cache_ttl=TTL), [*orders, Rescale(4), *orders, PAUSE, *orders], parallelism=1)
    assert sorted(run.output) == sorted((o, o.amount) for o in orders * 3)
    assert sorted(asked()) == sorted(TABLE)


# -- programs that change


class Customer(NamedTuple):
    name: str
    age: int


class CustomerWithCity(NamedTuple):
    name: str
    age: int
    city: str = "?"


def customers(keys: Any) -> dict[str, Customer]:
    return {key: Customer(key, age) for key, age in ages(keys).items()}


def customers_with_city(keys: Any) -> dict[str, CustomerWithCity]:
    return {key: CustomerWithCity(key, age, "Rome") for key, age in ages(keys).items()}


def test_cached_records_evolve(tmp_path: Path) -> None:
    orders = [ANN, EVE, Eof(savepoint=True), ANN, EVE, BOB]
    options = {"cache_ttl": TTL, "cache_misses": True}
    first = run_local(joining(customers, **options), orders, state_root=tmp_path)
    assert sorted(first.output) == [(ANN, Customer("ann", 30)), (EVE, None)]
    changed = joining(customers_with_city, **options)
    second = run_local(changed, orders, state_root=tmp_path, job_name="again", restore=first.savepoint)
    assert sorted(second.output, key=str) == [
        (ANN, CustomerWithCity("ann", 30, "?")),
        (BOB, CustomerWithCity("bob", 40, "Rome")),
        (EVE, None),
    ]
    assert [type(pair[1]) for pair in second.output if pair[0] == ANN] == [CustomerWithCity]
    with pytest.raises(RestoreRefused, match=r"joined/cache  its value type was .*Customer.* is declared as .*STRING"):
        run_local(joining(names, **options), orders, state_root=tmp_path, job_name="text", restore=first.savepoint)


def names(keys: Any) -> dict[str, str]:
    return {key: key for key in ages(keys)}


def test_a_program_may_cache_longer_or_start_to_cache_or_cease(tmp_path: Path) -> None:
    orders = [ANN, Eof(savepoint=True), ANN]
    first = run_local(joining(ages, cache_ttl=TTL), orders, state_root=tmp_path)
    longer = joining(ages, cache_ttl=TTL * 2, cache_misses=True)
    run_local(longer, orders, state_root=tmp_path, job_name="longer", restore=first.savepoint)
    assert asked() == ["ann"]
    without = joining(ages)
    with pytest.raises(RestoreRefused, match="cache"):
        run_local(without, orders, state_root=tmp_path, job_name="without", restore=first.savepoint)
    ceased = run_local(
        without,
        orders,
        state_root=tmp_path,
        job_name="without",
        restore=RestoreOptions(savepoint=first.savepoint, allow_non_restored=True),
    )
    assert ceased.output == [(ANN, 30)]
    assert asked() == ["ann"] * 2


# -- a model


class Asks(fp.LookupFunction[int, int]):
    """What it has for a key changes with each epoch; now and then it does not work."""

    max_batch_size = 3

    def lookup(self, keys: Any) -> dict[int, int]:
        assert len(keys) <= 3
        if random.random() < 0.1:
            raise SystemUnavailable("not now")
        VERSION[0] += 1
        ASKED.append(list(keys))
        return {key: VERSION[0] for key in keys if key % 3}


VERSION = [0]


KEYS = st.integers(0, 8)
MINUTES = st.sampled_from([3, 7, 12]).map(lambda minutes: Advance(timedelta(minutes=minutes)))


@examples(30)
@given(
    st.lists(KEYS | KEYS | st.just(PAUSE) | MINUTES, max_size=40),
    st.booleans(),
    st.sampled_from(["null", "drop"]),
    st.sampled_from([None, 10]),
    st.integers(1, 3),
)
def test_a_key_has_one_answer_for_as_long_as_its_entry_lives(
    script: list[Any], misses: bool, on_missing: Any, ttl: int | None, parallelism: int
) -> None:
    """And no key is asked about without need."""
    ASKED.clear()
    items: list[Any] = []
    epochs: list[tuple[int, list[tuple[int, int]]]] = [(0, [])]  # the minute, and keys with their numbers
    for number, step in enumerate(script):
        if isinstance(step, int):
            epochs[-1][1].append((step, number))
            items.append((step, number))
        else:
            passed = step.by // timedelta(minutes=1) if isinstance(step, Advance) else 0
            epochs.append((epochs[-1][0] + passed, []))
            items.append(step)

    cache = None if ttl is None else timedelta(minutes=ttl)

    def build(env: Any, source: Any) -> Any:
        pairs = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "in", type_info=tuple[int, int]).uid("in")
        retry = fp.FixedDelayRetryStrategy(100, 1)
        return pairs.lookup_join(
            Asks(),
            key=0,
            on_missing=on_missing,
            cache_ttl=cache,
            cache_misses=misses and cache is not None,
            retry_strategy=retry,
        ).uid("joined")

    run = run_local(build, items, parallelism=parallelism)
    got = {pair[0][1]: pair[1] for pair in run.output}

    needed: list[int] = []
    since: dict[int, int] = {}
    answer: dict[int, Any] = {}
    for now, elements in epochs:
        for key in dict.fromkeys(key for key, _ in elements):
            if ttl is None or key not in since or now >= since[key] + ttl:
                needed.append(key)
                answer.pop(key, None)
                since.pop(key, None)
                if key % 3 or misses:
                    since[key] = now
        for key, number in elements:
            if key % 3:
                assert answer.setdefault(key, got[number]) == got[number]
            else:
                assert got.get(number, "dropped") == ("dropped" if on_missing == "drop" else None)
    assert sorted(asked()) == sorted(needed)


def test_the_cache_can_be_edited(tmp_path: Path) -> None:
    build = joining(ages, cache_ttl=TTL)
    first = run_local(build, [ANN, BOB, Eof(savepoint=True), BOB, ANN], state_root=tmp_path)
    table = SavepointReader.read(first.savepoint).state("joined", "cache").to_arrow()
    older = pc.if_else(pc.equal(table["key"], "ann"), pa.scalar(31), table["value"])
    table = table.set_column(table.schema.get_field_index("value"), "value", older)
    cache = fp.ValueStateDescriptor("cache", int | None).enable_time_to_live(TTL)
    edited = (
        SavepointWriter.from_existing_savepoint(first.savepoint)
        .with_state("joined", cache, table)
        .write(str(tmp_path / "edited"))
    )
    orders = [ANN, BOB, Eof(savepoint=True), BOB, ANN]
    second = run_local(build, orders, state_root=tmp_path, restore=edited.path, job_name="edited", parallelism=1)
    assert second.output == [(BOB, 40), (ANN, 31)]

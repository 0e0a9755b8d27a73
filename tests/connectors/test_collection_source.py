"""Collection and counter sources: nothing lost, nothing twice, wherever epochs are cut and starts happen."""

from __future__ import annotations

from typing import Any

import cloudpickle
import pytest
from connector_reading import elements, json_round_trip, read_all
from hypothesis import given
from hypothesis import strategies as st

from forkpoint.connectors.collection import CollectionSource, fair_shares
from forkpoint.connectors.counter import CounterSource
from forkpoint.contract.source import Source
from forkpoint.errors import ConfigError, RestoreRefused
from forkpoint.types import Types


def test_a_list_is_read_in_order_and_ends() -> None:
    source = CollectionSource(["a", ("b", 1), None])
    assert source.bounded
    enumerator = source.create_enumerator(None)
    assert not enumerator.finished
    assert read_all(source, enumerator.plan(100)) == {"0": ["a", ("b", 1), None]}
    assert enumerator.finished
    assert enumerator.plan(100) == []


def test_an_empty_list_is_finished_at_once() -> None:
    assert CollectionSource([]).create_enumerator(None).finished


@given(
    splits=st.lists(st.lists(st.integers(), max_size=20), max_size=4),
    steps=st.lists(st.tuples(st.integers(1, 15), st.integers(1, 5), st.booleans()), max_size=30),
)
def test_epochs_and_restarts_do_not_show(splits: list[list[int]], steps: list[tuple[int, int, bool]]) -> None:
    source = CollectionSource(splits=splits)
    enumerator = source.create_enumerator(None)
    seen: dict[str, list[Any]] = {}
    for max_rows, hint, restart in [*steps, (1000, 2, True)]:
        if restart:
            enumerator = source.create_enumerator(json_round_trip(enumerator.position))
        planned = enumerator.plan(max_rows, hint)
        assert sum(r.rows or 0 for r in planned) <= max_rows
        for split, values in read_all(source, planned).items():
            seen.setdefault(split, []).extend(values)
    assert enumerator.finished
    assert seen == {str(i): s for i, s in enumerate(splits) if s}


@given(splits=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=5), budget=st.integers(0, 200))
def test_shares_use_the_budget_and_let_those_behind_catch_up(splits: list[tuple[int, int]], budget: int) -> None:
    left, done = [n for n, _ in splits], [d for _, d in splits]
    shares = fair_shares(left, done, budget)
    assert all(0 <= s <= n for s, n in zip(shares, left, strict=True))
    assert sum(shares) == min(budget, sum(left))
    for i, taken in enumerate(shares):
        for j in range(len(shares)):
            # Nobody moves ahead of one that still has elements and is behind, but for the last odd element.
            if taken and shares[j] < left[j]:
                assert done[i] + taken <= done[j] + shares[j] + 1


def test_elements_keep_their_identity_in_a_task() -> None:
    source = cloudpickle.loads(cloudpickle.dumps(CollectionSource([1, 2, 3], int)))
    assert source.output_type() == Types.LONG() or source.output_type() is not None
    assert read_all(source, source.create_enumerator(None).plan(10)) == {"0": [1, 2, 3]}


def test_a_position_beyond_the_collection_is_refused() -> None:
    position = {"0": 5}
    with pytest.raises(RestoreRefused, match=r"element 5 of split 0.*\[3\]"):
        CollectionSource([1, 2, 3]).create_enumerator(position)
    with pytest.raises(RestoreRefused, match="split 1"):
        CollectionSource([1, 2, 3]).create_enumerator({"0": 0, "1": 0})


def test_elements_and_splits_together_are_refused() -> None:
    with pytest.raises(ConfigError, match="not both"):
        CollectionSource([1], splits=[[1]])


def test_the_counter_goes_on_where_it_was() -> None:
    source: Source = CounterSource(per_epoch=4)
    enumerator = source.create_enumerator(None)
    assert read_all(source, enumerator.plan(100)) == {"counter": [0, 1, 2, 3]}
    again = source.create_enumerator(json_round_trip(enumerator.position))
    assert read_all(source, again.plan(3)) == {"counter": [4, 5, 6]}
    assert not source.bounded
    assert not again.finished


def test_the_counter_stops() -> None:
    source = CounterSource(5, start=2)
    enumerator = source.create_enumerator(None)
    ranges = enumerator.plan(100, parallelism_hint=2)
    assert len(ranges) == 2
    assert [v for r in ranges for v in elements(source, r)] == [2, 3, 4]
    assert enumerator.finished
    assert enumerator.plan(100) == []

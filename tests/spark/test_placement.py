"""Which host runs which subtask."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from forkpoint.spark.placement import place

cores = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 4), max_size=6)


@given(st.integers(1, 40), cores, cores)
def test_hosts_get_their_share_and_no_more_subtasks_move_than_must(
    subtasks: int, first: dict[str, int], second: dict[str, int]
) -> None:
    before = place(subtasks, first)
    after = place(subtasks, second, before)
    assert len(after) == (subtasks if second else 0)
    assert set(after) <= set(second)
    counts, total = Counter(after), sum(second.values())
    for host, number in second.items():
        assert abs(counts[host] - subtasks * number / total) < 1
    stayed = sum(a == b for a, b in zip(before, after, strict=False))
    assert stayed == sum(min(Counter(before)[host], counts[host]) for host in second)


@given(st.integers(1, 40), cores)
def test_a_placement_is_stable(subtasks: int, hosts: dict[str, int]) -> None:
    placed = place(subtasks, hosts)
    assert place(subtasks, hosts, placed) == placed


def test_a_host_that_comes_back_gets_its_share_from_the_others() -> None:
    both = place(4, {"a": 1, "b": 1})
    alone = place(4, {"a": 1}, both)
    again = place(4, {"a": 1, "b": 1}, alone)
    assert (Counter(both), Counter(alone), Counter(again)) == ({"a": 2, "b": 2}, {"a": 4}, {"a": 2, "b": 2})

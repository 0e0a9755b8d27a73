"""How the watermark of an epoch comes out of what its splits bring, and who reads the pieces of a split."""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import given
from hypothesis import strategies as st

from forkpoint.contract.source import SplitRange
from forkpoint.driver.run.planner import Assignment, spread
from forkpoint.runtime.event_time.watermarks import MIN_MS, Channel, combined, join_pieces, source_channel
from forkpoint.runtime.exchange.control import SplitProgress, SplitStart


def progress(split: str, watermark_ms: int, count: int = 1, *, marked_idle: bool = False) -> SplitProgress:
    return SplitProgress(0, split, 0, watermark_ms, count, marked_idle)


def window(
    start: dict[str, SplitStart],
    *pieces: SplitProgress,
    current: int = MIN_MS,
    finished: Collection[str] = (),
    released: bool = False,
) -> tuple[int, int]:
    channel = source_channel(join_pieces(start, pieces, finished=finished, released=released), current)
    return channel.start, channel.end


AB = {"a": SplitStart(10), "b": SplitStart(20)}


def test_the_lowest_split_tells_the_way() -> None:
    assert window(AB, progress("a", 15), progress("b", 40)) == (10, 15)
    assert window(AB, progress("b", 40)) == (10, 10)


def test_a_split_that_ends_counts_until_its_last_element() -> None:
    assert window(AB, progress("a", 15), progress("b", 40), finished=["a"]) == (10, 40)
    assert window(AB, progress("b", 40), finished=["a"]) == (20, 40)


def test_when_all_end_the_furthest_has_the_last_word() -> None:
    assert window(AB, progress("a", 15), progress("b", 40), finished=["a", "b"]) == (10, 40)
    assert window(AB, current=30, finished=["a", "b"]) == (30, 30)


def test_a_split_that_its_generator_marks_idle_is_left_out_from_the_epochs_end_on() -> None:
    assert window(AB, progress("a", 12, marked_idle=True), progress("b", 40)) == (10, 40)
    asleep = {"a": SplitStart(12, marked_idle=True), "b": SplitStart(40)}
    assert window(asleep, progress("b", 50), current=40) == (40, 50)
    assert window(asleep, progress("a", 12, marked_idle=True), progress("b", 50), current=40) == (40, 50)
    assert window(asleep, progress("a", 45), progress("b", 50), current=40) == (40, 45)


def test_an_origin_that_was_not_heard_of_holds_back_and_leaves_no_split_behind() -> None:
    no_splits_yet = join_pieces({}, [])
    assert not no_splits_yet.ends
    channels = [source_channel(no_splits_yet, MIN_MS), source_channel(join_pieces(AB, []), MIN_MS)]
    assert combined(channels, MIN_MS, union=True) == Channel(MIN_MS, MIN_MS, active=True, waiting=True)
    assert window({}, released=True, current=5) == (5, 5)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from("ab"), st.integers(0, 5), st.integers(1, 50)), max_size=25),
    st.integers(1, 5),
)
def test_the_pieces_of_a_split_that_has_a_generator_go_to_one_task_in_order(
    pieces: list[tuple[int, str, int, int]], tasks: int
) -> None:
    assignments: list[Assignment] = [(o, SplitRange(s, p, 0, 1, rows)) for o, s, p, rows in pieces]
    cut = spread(assignments, tasks, {1, 2})
    assert sorted(map(repr, (a for task in cut for a in task))) == sorted(map(repr, assignments))
    assert len(cut) <= tasks
    for whole in {(o, r.split) for o, r in assignments if o}:
        found = [[r.piece for o, r in task if (o, r.split) == whole] for task in cut]
        (one,) = [numbers for numbers in found if numbers]
        assert one == sorted(one)

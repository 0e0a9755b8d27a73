"""A split, or a source, that has come to its end holds no watermark back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from watermark_jobs import Event, by_key, seen_job, timed

import forkpoint as fp
from example_counts import examples
from forkpoint.testing import PAUSE, TestSource, run_local

MONOTONOUS = fp.WatermarkStrategy.for_monotonous_timestamps()


def watermarks(job: Any, *sources: Any, rows: int, parallelism: int = 2) -> dict[tuple[str, int], int]:
    """The watermark that each element saw, by key and time."""

    def build(env: Any) -> Any:
        return job(env, *sources)

    run = run_local(build, epochs=rows, parallelism=parallelism)
    return {(v[0], v[2]): v[3] for v in run.output if v[1] == "element"}


def splits(*times: list[int]) -> fp.CollectionSource:
    return fp.CollectionSource(splits=[[Event("abcdef"[i], t) for t in ts] for i, ts in enumerate(times)])


@pytest.mark.parametrize("assign", [False, True])
def test_a_finished_split_is_not_waited_for(assign: bool) -> None:
    seen = watermarks(seen_job(MONOTONOUS, assign=assign), splits([1, 2], list(range(10, 100, 10))), rows=2)
    # The short split comes to its end in the second epoch, and in event time that is ahead of 20.
    assert [seen["b", t] for t in (10, 20, 30, 60, 90)] == [fp.MIN_WATERMARK, 9, 19, 49, 79]


@examples(10)
@given(
    st.lists(st.lists(st.integers(0, 50), max_size=8), min_size=1, max_size=4),
    st.sampled_from([1, 3, 100]),
    st.integers(1, 3),
)
def test_nothing_is_late_because_another_split_has_ended(times: list[list[int]], rows: int, parallelism: int) -> None:
    """Each split's times go up, so no element may ever be at or behind the watermark."""
    ordered = [[10 * t + i for i, t in enumerate(sorted(ts))] for ts in times]
    seen = watermarks(seen_job(MONOTONOUS), splits(*ordered), rows=rows, parallelism=parallelism)
    assert len(seen) == sum(map(len, ordered))
    assert all(watermark < time for (_, time), watermark in seen.items())


def test_a_finished_source_gives_what_is_behind_it_the_last_watermark() -> None:
    """Its windows come out although another source goes on."""

    def build(env: Any, short: Any, long: Any) -> Any:
        strategy = timed(MONOTONOUS)
        first = env.from_source(short, strategy, "short").key_by(lambda e: e.key, str)
        second = env.from_source(long, strategy, "long").key_by(lambda e: e.key, str)
        counted = first.window(fp.TumblingEventTimeWindows.of(1000)).reduce(lambda a, b: b)
        return {"windows": counted, "long": second.map_with_state(lambda e, s: (e, None), int)}

    run = run_local(build, [Event("a", t) for t in range(4)], [Event("b", t) for t in range(40)], epochs=2)
    (window,) = run.records["windows"]
    assert window.epoch < max(r.epoch for r in run.records["long"]) - 10


def test_what_goes_round_still_comes_before_the_last_watermark() -> None:
    """With an iteration a finished source is not waited for, but the last watermark is that of the whole job."""

    def build(env: Any, source: Any) -> Any:
        loop = env.from_source(source, timed(MONOTONOUS), "in").map(lambda e: (e.key, e.ts), tuple[str, int]).iterate()
        body = loop.map(lambda e: (e[0], e[1] - 1), tuple[str, int])
        loop.close_with(body.filter(lambda e: e[1] > 0))
        counted = body.key_by(lambda e: e[0], str).window(fp.GlobalWindows.create()).trigger(fp.EventTimeTrigger.create())
        return {"count": counted.reduce(lambda a, b: b), "all": body}

    run = run_local(build, [Event("a", 5), Event("b", 3)])
    assert len(run.outputs["all"]) == 8


def test_a_source_behind_an_assigner_ends_it_only_with_all_others() -> None:
    build = seen_job(MONOTONOUS, assign=True)
    run = run_local(build, [Event("a", 1)], TestSource([Event("b", t) for t in range(10, 60, 10)]), epochs=1)
    seen = {(v[0], v[2]): v[3] for v in run.output if v[1] == "element"}
    assert [seen["b", t] for t in (30, 40, 50)] == [19, 29, 39]


@examples(5)
@given(
    st.lists(st.lists(st.lists(st.integers(0, 30), max_size=3), min_size=3, max_size=3), min_size=2, max_size=3),
    st.sampled_from([1, 100]),
    st.integers(1, 2),
)
def test_a_split_without_elements_holds_the_watermark_behind_the_source_back_too(
    splits: list[list[list[int]]], rows: int, parallelism: int
) -> None:
    """Timestamps assigned behind the source: each element sees the same watermark as with those of the source."""
    scripts = [
        [x for section in split for x in (*(Event("abc"[i], 10 * t + i) for t in section), PAUSE)]
        for i, split in enumerate(splits)
    ]
    seen = [
        run_local(seen_job(MONOTONOUS, assign=assign), TestSource(*scripts), epochs=rows, parallelism=parallelism)
        for assign in (False, True)
    ]
    assert by_key(seen[0]) == by_key(seen[1])

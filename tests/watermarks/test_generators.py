"""Watermark generators of one's own: one a split, in the split's order, exact over epochs, tasks and restores."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from watermark_jobs import (
    Bounded,
    Event,
    Periodic,
    Punctuated,
    Seen,
    by_key,
    columnar,
    seen_job,
    stopped_and_restored,
    timed,
)

import forkpoint as fp
from example_counts import examples
from forkpoint.errors import TypeNotSupported, UserFunctionError
from forkpoint.testing import ABORT, PAUSE, Advance, ManualClock, TestSource, run_local

MIN = fp.MIN_WATERMARK
PUNCTUATED = fp.WatermarkStrategy.for_generator(Punctuated)

events = st.lists(st.builds(Event, st.sampled_from("ab"), st.integers(0, 60), st.booleans()), min_size=1, max_size=30)


def some(count: int) -> list[Event]:
    return [Event("abc"[i % 3], i * 3 - i * 7 % 11, i % 4 == 1) for i in range(count)]


def punctuated_model(elements: list[Event]) -> dict[str, list[Any]]:
    """What Seen gives with the Punctuated generator, worked out an element at a time."""
    found: dict[str, list[Any]] = {}
    timers: set[tuple[int, str]] = set()
    late: dict[str, int] = {}
    watermark, marks = MIN, 0

    def fire(until: int) -> None:
        for timer in sorted(t for t in timers if t[0] <= until):
            timers.discard(timer)
            found.setdefault(timer[1], []).append(("timer", timer[0], late.get(timer[1], 0), 0))

    for e in elements:
        late[e.key] = late.get(e.key, 0) + (e.ts <= watermark)
        found.setdefault(e.key, []).append(("element", e.ts, watermark, late[e.key]))
        timers.add((e.ts + 3, e.key))
        if e.mark:
            marks += 1
            if e.ts - marks % 2 > watermark:
                watermark = e.ts - marks % 2
                fire(watermark)
    fire(2**63)
    return found


@examples(10)
@given(events, st.sampled_from([1, 7, 100]), st.integers(1, 3), st.booleans())
def test_a_punctuated_one_gives_the_same_wherever_epochs_are_cut(
    elements: list[Event], rows: int, parallelism: int, assign: bool
) -> None:
    run = run_local(seen_job(PUNCTUATED, assign=assign), elements, epochs=rows, parallelism=parallelism)
    assert by_key(run) == punctuated_model(elements)


@pytest.mark.parametrize("rows", [1, 7, 100])
@pytest.mark.parametrize("assign", [False, True])
def test_one_by_hand_does_what_the_built_in_one_does(rows: int, assign: bool) -> None:
    elements = some(40)
    built_in = seen_job(fp.WatermarkStrategy.for_bounded_out_of_orderness(4))
    mine = seen_job(fp.WatermarkStrategy.for_generator(lambda: Bounded(4)), assign=assign)
    expected = by_key(run_local(built_in, elements, parallelism=1))
    assert by_key(run_local(mine, elements, epochs=rows, parallelism=3)) == expected
    assert by_key(run_local(mine, columnar(elements), epochs=rows, parallelism=2)) == expected


@pytest.mark.parametrize("at", range(0, 19, 3))
def test_its_state_goes_through_savepoints(tmp_path: Any, at: int) -> None:
    elements = some(19)
    straight = by_key(run_local(seen_job(PUNCTUATED), elements, parallelism=1))
    found = stopped_and_restored(seen_job(PUNCTUATED), elements, at, tmp_path, before=at % 3 + 1, after=3 - at % 3, rows=4)
    assert found == straight


def test_its_state_survives_the_death_of_the_process(tmp_path: Any) -> None:
    elements = some(20)
    script = [*elements[:6], ABORT, *elements[6:13], ABORT, *elements[13:]]
    run = run_local(seen_job(PUNCTUATED), script, epochs=3, parallelism=2, state_root=tmp_path)
    assert run.deaths == 2
    assert by_key(run) == by_key(run_local(seen_job(PUNCTUATED), elements, parallelism=1))


def test_there_is_one_for_each_split() -> None:
    """Two splits; the operator's watermark is the lower of theirs."""
    first = [Event("a", t, t == 20, 0) for t in (10, 20, 30)]
    second = [Event("b", t, True, 1) for t in (5, 7, 9)]
    run = run_local(seen_job(PUNCTUATED), TestSource(first, [*second[:2], PAUSE, *second[2:]]), epochs=[2], parallelism=2)
    assert [v[2] for v in by_key(run)["a"]][:1] == [MIN]
    assert by_key(run)["b"][0][:3] == ("element", 5, MIN)
    assert ("element", 9, 7, 0) in by_key(run)["b"]  # marks 5 - 1 and 7; the other split is at 20 - 1


def test_splits_of_several_sources_are_told_apart_where_timestamps_are_assigned_behind_them() -> None:
    fast = [Event("a", t, True) for t in range(100, 200, 10)]
    slow = [Event("b", t, True) for t in range(10)]
    build = seen_job(PUNCTUATED, assign=True)
    run = run_local(build, [*fast, PAUSE], [*slow, PAUSE, Event("b", 50)], epochs=3, parallelism=2)
    assert all(late == 0 for _, values in by_key(run).items() for _, _, _, late in values)


def test_a_periodic_one_is_asked_at_the_end_of_each_epoch() -> None:
    elements = [Event("a", t) for t in range(10, 70, 10)]
    run = run_local(seen_job(fp.WatermarkStrategy.for_generator(Periodic)), elements, epochs=2)
    assert [v[2] for v in by_key(run)["a"] if v[0] == "element"] == [MIN, MIN, 20, 20, 40, 40]


@pytest.mark.parametrize(
    "strategy",
    [
        fp.WatermarkStrategy.for_generator(Periodic),
        fp.WatermarkStrategy.for_bounded_out_of_orderness(1),
        fp.WatermarkStrategy.for_monotonous_timestamps(),
    ],
)
def test_with_an_interval_of_0_only_what_is_emitted_at_elements_counts(strategy: fp.WatermarkStrategy) -> None:
    elements = some(12)

    def marks(strategy: fp.WatermarkStrategy) -> list[int]:
        def build(env: Any, source: Any) -> Any:
            env.get_config().set_auto_watermark_interval(0)
            return seen_job(strategy)(env, source)

        values = by_key(run_local(build, elements, epochs=3))
        assert sum(v[0] == "timer" for vs in values.values() for v in vs) > 3  # they fire at the end
        return [v[2] for vs in values.values() for v in vs if v[0] == "element"]

    assert set(marks(strategy)) == {MIN}
    assert len(set(marks(PUNCTUATED))) > 2


class Sleepy(fp.WatermarkGenerator):
    """A marked element puts its split to sleep, until one that is not."""

    def on_event(self, value: Event, event_timestamp: int, output: fp.WatermarkOutput) -> None:
        output.emit_watermark(event_timestamp)
        if value.mark:
            output.mark_idle()

    def on_periodic_emit(self, output: fp.WatermarkOutput) -> None:
        pass


@pytest.mark.parametrize("restored", [False, True])
def test_a_split_that_is_marked_idle_is_not_waited_for_until_it_emits(tmp_path: Any, restored: bool) -> None:
    strategy = fp.WatermarkStrategy.for_generator(Sleepy)
    awake = [
        Event("a", 10),
        PAUSE,
        Event("a", 20),
        PAUSE,
        Event("a", 30),
        PAUSE,
        Event("a", 40),
        PAUSE,
        Event("a", 50),
        PAUSE,
    ]
    sleepy = [Event("b", 5, mark=True), PAUSE, PAUSE, PAUSE, Event("b", 35), PAUSE, PAUSE]
    if restored:
        stop = fp.testing.Eof(savepoint=True)
        awake[3] = sleepy[2] = stop
    runs = [run_local(seen_job(strategy), TestSource(awake, sleepy), parallelism=2, state_root=tmp_path)]
    if restored:
        runs.append(
            run_local(
                seen_job(strategy),
                TestSource(awake, sleepy),
                parallelism=1,
                state_root=tmp_path,
                restore=runs[0].savepoint,
            )
        )
    found = {v[1]: v[2] for v in by_key(*runs)["a"] if v[0] == "element"}
    assert found == {10: MIN, 20: 10, 30: 20, 40: 30, 50: 35}


def test_idleness_lets_the_watermark_go_on() -> None:
    strategy = PUNCTUATED.with_idleness(timedelta(seconds=10))
    script = TestSource(
        [
            Event("a", 10, True),
            Advance(6000),
            Event("a", 20, True),
            Advance(6000),
            Event("a", 30, True),
            PAUSE,
            Event("a", 40),
        ],
        [Event("b", 2, True), *[PAUSE] * 6],
    )
    run = run_local(seen_job(strategy), script, clock=ManualClock(0), parallelism=2)
    found = {v[1]: v[2] for v in by_key(run)["a"] if v[0] == "element"}
    assert found == {10: MIN, 20: 1, 30: 20, 40: 29}


class Slots(fp.WatermarkGenerator):
    """Keeps what cannot be saved."""

    def __init__(self) -> None:
        self.what = object()

    def on_event(self, value: Any, event_timestamp: int, output: fp.WatermarkOutput) -> None:
        if value.ts == 13:
            raise ValueError("thirteen")

    def on_periodic_emit(self, output: fp.WatermarkOutput) -> None:
        pass


@pytest.mark.parametrize(
    ("factory", "ts", "error", "message"),
    [
        (Slots, 1, TypeNotSupported, "'in-0'.*Slots cannot be saved.*snapshot_state"),
        (Slots, 13, UserFunctionError, "'in-0'.*thirteen.*Event"),
        (lambda: None, 1, UserFunctionError, "for_generator.*returned None"),
        (lambda: 1 / 0, 1, UserFunctionError, "division by zero"),
    ],
)
def test_what_goes_wrong_says_where(factory: Any, ts: int, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"(?s){message}"):
        run_local(seen_job(fp.WatermarkStrategy.for_generator(factory)), [Event("a", ts)])


class Snapshots(Bounded):
    """Keeps the newest time as text."""

    def snapshot_state(self) -> dict[str, Any]:
        return {"newest": str(self.newest)}

    def restore_state(self, state: Any) -> None:
        self.newest = int(state["newest"])


def test_it_may_say_what_it_keeps(tmp_path: Any) -> None:
    job = seen_job(fp.WatermarkStrategy.for_generator(lambda: Snapshots(4)))
    straight = by_key(run_local(seen_job(fp.WatermarkStrategy.for_bounded_out_of_orderness(4)), some(12)))
    assert stopped_and_restored(job, some(12), 5, tmp_path, before=2, after=3, rows=2) == straight


def test_a_stateless_function_at_the_source_sees_its_splits_watermark() -> None:
    class Plain(fp.ProcessFunction):
        def process_element(self, value: Event, ctx: Any) -> Any:
            yield value.ts, ctx.timer_service().current_watermark()

    def build(env: Any, source: Any) -> Any:
        return env.from_source(source, timed(PUNCTUATED), "in").process(Plain())

    elements = [Event("a", t, t % 3 == 0) for t in range(12)]
    expected = [(0, MIN), (1, -1), (2, -1), (3, -1), (4, 3), (5, 3), (6, 3), (7, 5), (8, 5), (9, 5), (10, 9), (11, 9)]
    for rows in (1, 5, 100):
        assert sorted(run_local(build, elements, epochs=rows, parallelism=3).output) == expected


@pytest.mark.parametrize("rows", [7, 1000])
def test_all_pieces_of_files_pass_one_generator(tmp_path: Any, rows: int) -> None:
    """An epoch's files are cut into pieces for several tasks; a generator sees them in their order all the same."""
    numbers = [(i % 3, i * 3 - i * 7 % 11 + 20) for i in range(60)]
    for name in range(3):
        lines = [f"{key},{ts}\n" for key, ts in numbers[name * 20 : name * 20 + 20]]
        (tmp_path / f"{name}.csv").write_text("".join(lines))
        os.utime(tmp_path / f"{name}.csv", (name, name))

    def build(env: Any) -> Any:
        source = fp.FileSource.text(str(tmp_path)).as_bounded()
        strategy = fp.WatermarkStrategy.for_generator(lambda: Bounded(4))
        stream = env.from_source(source, strategy.with_timestamp_assigner(lambda line, _: int(line.split(",")[1])), "in")
        events = stream.map(lambda line: Event(line.split(",")[0], int(line.split(",")[1])))
        return events.key_by(lambda e: e.key, str).process(Seen())

    expected = run_local(seen_job(fp.WatermarkStrategy.for_bounded_out_of_orderness(4)), [Event(str(k), ts) for k, ts in numbers])
    assert by_key(run_local(build, epochs=rows, parallelism=4)) == by_key(expected)


class Watermarks(fp.ProcessFunction):
    def process_element(self, value: Event, ctx: Any) -> Any:
        yield value.ts, ctx.timer_service().current_watermark()


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("rows", [5, 100])
def test_at_the_source_the_built_in_watermark_is_exact_too(tmp_path: Any, rows: int, assign: bool) -> None:
    """Nobody can tell ahead that the function asks; the first epoch is read again, each split by one task."""
    strategy = timed(fp.WatermarkStrategy.for_monotonous_timestamps())

    def build(env: Any, source: Any) -> Any:
        stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks() if assign else strategy, "in").uid("in")
        if assign:
            stream = stream.assign_timestamps_and_watermarks(strategy).uid("time")
        return stream.process(Watermarks()).uid("watermarks")

    elements = [Event("a", i * 10 - i % 3 * 15) for i in range(40)]
    newest = [MIN, *(max(e.ts for e in elements[: i + 1]) - 1 for i in range(39))]
    script = [*elements[:23], fp.testing.Eof(savepoint=True), *elements[23:]]
    first = run_local(build, script, epochs=rows, parallelism=4, state_root=tmp_path)
    second = run_local(build, script, epochs=rows, parallelism=3, state_root=tmp_path, restore=first.savepoint)
    assert sorted(first.output + second.output) == sorted((e.ts, mark) for e, mark in zip(elements, newest, strict=True))

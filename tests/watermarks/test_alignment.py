"""Watermark alignment: who is ahead waits; nobody waits for what is idle or at its end."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from watermark_jobs import Event, by_key, seen_job

import forkpoint as fp
from example_counts import examples
from forkpoint.driver.run.planner import MIN_ROWS
from forkpoint.errors import GraphError
from forkpoint.graph.compile import compile_graph
from forkpoint.graph.specs import DataFrameSpec
from forkpoint.graph.transformations import Transformation
from forkpoint.testing import PAUSE, Advance, Eof, LocalRun, ManualClock, TestSource, run_local

DRIFT = 500
ALIGNED = fp.WatermarkStrategy.for_monotonous_timestamps().with_watermark_alignment("g", timedelta(milliseconds=DRIFT))


def times(key: str, step: int, count: int) -> list[Event]:
    return [Event(key, i * step) for i in range(count)]


def run(*sources: Any, rows: int, **more: Any) -> LocalRun:
    def build(env: Any) -> Any:
        made = [fp.CollectionSource(s) if isinstance(s, list) else s for s in sources]
        return seen_job(ALIGNED)(env, *made)

    return run_local(build, epochs=rows, **more)


def ways(found: LocalRun) -> dict[int, dict[str, int]]:
    """How far each key had come at the end of each epoch, until the first has all it gives."""
    elements = [(r.epoch, r.value[0], r.value[2]) for r in found.records["output"] if r.value[1] == "element"]
    ends = [max(epoch for epoch, key, _ in elements if key == k) for k in {key for _, key, _ in elements}]
    so_far: dict[str, int] = {}
    way: dict[int, dict[str, int]] = {}
    for epoch, key, time in elements:
        so_far[key] = max(so_far.get(key, 0), time)
        if epoch < min(ends):
            way[epoch] = dict(so_far)
    return way


def scripted(events: list[Event]) -> TestSource:
    """A source that cannot pause its splits, and so is paused as a whole."""
    return TestSource(events)


@pytest.mark.parametrize("source", [fp.CollectionSource, scripted])
@pytest.mark.parametrize("rows", [5, 20])
def test_the_faster_source_waits(source: Any, rows: int) -> None:
    fast, slow = times("fast", 50, 200), times("slow", 2, 200)
    found = run(source(fast), source(slow), rows=rows)
    drifts = [at["fast"] - at["slow"] for at in ways(found).values() if len(at) == 2]
    assert len(drifts) > 200 // rows - 5
    assert max(drifts) <= DRIFT + rows * 50
    assert len(found.output) == 2 * 400  # and in the end all has been read


def test_without_alignment_it_does_not() -> None:
    strategy = fp.WatermarkStrategy.for_monotonous_timestamps()
    found = run_local(seen_job(strategy), times("fast", 50, 400), times("slow", 2, 400), epochs=20)
    assert max(at["fast"] - at["slow"] for at in ways(found).values()) > 10 * DRIFT


def test_of_one_source_the_faster_splits_wait() -> None:
    source = fp.CollectionSource(splits=[times("fast", 50, 300), times("slow", 2, 300)])
    found = run(source, rows=20)
    assert max(at["fast"] - at["slow"] for at in ways(found).values()) <= DRIFT + 20 * 50
    assert len(found.output) == 2 * 600


@examples(6)
@given(
    st.lists(st.tuples(st.integers(1, 900), st.integers(0, 40)), min_size=1, max_size=4),
    st.sampled_from([1, 7, 100]),
    st.booleans(),
)
def test_all_is_read_whatever_the_speeds_are(sources: list[tuple[int, int]], rows: int, whole: bool) -> None:
    made = [times("abcd"[i], step, count) for i, (step, count) in enumerate(sources)]
    found = run(*(scripted(m) if whole else m for m in made), rows=rows)
    assert {k: sum(v[0] == "element" for v in vs) for k, vs in by_key(found).items()} == {m[0].key: len(m) for m in made if m}


@pytest.mark.parametrize("marked", [False, True])
def test_an_idle_one_is_not_waited_for(marked: bool) -> None:
    class Sleepy(fp.WatermarkGenerator):
        def on_event(self, value: Event, event_timestamp: int, output: fp.WatermarkOutput) -> None:
            output.emit_watermark(event_timestamp)
            if value.mark:
                output.mark_idle()

        def on_periodic_emit(self, output: fp.WatermarkOutput) -> None:
            pass

    strategy = fp.WatermarkStrategy.for_generator(Sleepy) if marked else ALIGNED.with_idleness(timedelta(seconds=10))
    strategy = strategy.with_watermark_alignment("g", timedelta(milliseconds=DRIFT))
    clock = [PAUSE] if marked else [Advance(6000), Advance(6000)]
    slow = TestSource([Event("slow", 0, mark=True), *clock, *[PAUSE] * 60, Event("slow", 50_000)])
    fast = TestSource(times("fast", 100, 100))
    found = run_local(seen_job(strategy), fast, slow, epochs=4, clock=ManualClock(0), parallelism=2)
    epochs = {(r.value[0], r.value[2]): r.epoch for r in found.records["output"] if r.value[1] == "element"}
    assert epochs["fast", 9900] < epochs["slow", 50_000]


def test_a_paused_one_is_not_idle() -> None:
    """It waits longer than its idleness allows; what it has then is not late."""
    strategy = ALIGNED.with_idleness(timedelta(seconds=10))
    slow = TestSource([e for i in range(60) for e in (Event("slow", i * 100), Advance(4000))])
    found = run_local(seen_job(strategy), times("fast", 400, 40), slow, epochs=3, clock=ManualClock(0), parallelism=2)
    assert all(v[3] == 0 for values in by_key(found).values() for v in values if v[0] == "element")


@pytest.mark.parametrize("at", [7, pytest.param(40, marks=pytest.mark.slow), 70])
def test_it_goes_on_after_a_restore(tmp_path: Any, at: int) -> None:
    fast, slow = times("fast", 50, 100), times("slow", 2, 100)
    straight = by_key(run_local(seen_job(ALIGNED), fast, slow, epochs=5, parallelism=1))
    script = [*slow[:at], Eof(savepoint=True), *slow[at:]]
    first = run_local(seen_job(ALIGNED), fast, script, epochs=5, parallelism=2, state_root=tmp_path)
    second = run_local(seen_job(ALIGNED), fast, script, epochs=5, parallelism=3, state_root=tmp_path, restore=first.savepoint)
    found = by_key(first, second)
    assert {k: [v[:2] for v in vs if v[0] == "element"] for k, vs in found.items()} == {
        k: [v[:2] for v in vs if v[0] == "element"] for k, vs in straight.items()
    }


def test_an_epoch_reads_about_a_drift_of_an_aligned_source() -> None:
    """Without a limit of rows: it begins with few elements and learns how many are a drift's worth."""
    fast, slow = times("fast", 1, 12_000), times("slow", 1, 4_000)
    strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_watermark_alignment("g", 2_000)
    found = run_local(seen_job(strategy), fast, slow, epochs=30_000)
    way = ways(found)
    assert next(iter(way.values())) == {"fast": MIN_ROWS - 1, "slow": MIN_ROWS - 1}
    assert max(at["fast"] - at["slow"] for at in way.values()) <= 2 * 2_000


def test_dataframes_cannot_be_aligned() -> None:
    rows = Transformation(DataFrameSpec(None, ALIGNED, None, None, None), "rows", (), None, uid="rows")
    with pytest.raises(GraphError, match=r"'rows' reads a Spark DataFrame.*max_rows"):
        compile_graph([rows], max_parallelism=128, require_uids=False)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (seen_job(ALIGNED, assign=True), "assigns timestamps after a source"),
        (
            seen_job(fp.WatermarkStrategy.no_watermarks().with_watermark_alignment("g", 1)),
            "'in-0' has no watermarks.*'g'",
        ),
    ],
)
def test_what_cannot_be_aligned_is_refused(build: Any, message: str) -> None:
    with pytest.raises(GraphError, match=f"(?s){message}"):
        run_local(build, [Event("a", 1)])

"""sort_by_event_time: per key in the order of timestamps, then of arrival; nothing waits longer than the watermark does."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from watermark_jobs import timed

import forkpoint as fp
from example_counts import examples
from forkpoint.errors import GraphError
from forkpoint.savepoint.format.opened_savepoint import open_savepoint
from forkpoint.testing import ABORT, Eof, LocalRun, TestSource, run_local

BOUND = 5
LATE = fp.OutputTag("late")


class Trade(NamedTuple):
    key: str
    ts: int
    number: int


trades = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 40)), max_size=40).map(
    lambda pairs: [Trade(key, ts, i) for i, (key, ts) in enumerate(pairs)]
)


class Following(fp.KeyedProcessFunction):
    """An operator behind the sort, with the watermark that it sees."""

    last = fp.ValueStateDescriptor("last", int)

    def process_element(self, value: Trade, ctx: Any) -> Any:
        yield (*value, self.last.value(), ctx.timestamp(), ctx.timer_service().current_watermark())
        self.last.update(value.ts)


def job(env: Any, source: Any) -> Any:
    strategy = timed(fp.WatermarkStrategy.for_bounded_out_of_orderness(BOUND))
    keyed = env.from_source(source, strategy, "in").uid("in").map(Trade._make, Trade).key_by(lambda t: t.key, str)
    ordered = keyed.sort_by_event_time(LATE).uid("sort")
    following = ordered.key_by(lambda t: t.key, str).process(Following()).uid("following")
    return {"sorted": ordered, "late": ordered.get_side_output(LATE), "following": following}


def outputs(*runs: LocalRun) -> dict[str, dict[str, list[Any]]]:
    found: dict[str, dict[str, list[Any]]] = {"sorted": {}, "late": {}, "following": {}}
    for run in runs:
        for name in found:
            for value in run.outputs[name]:
                found[name].setdefault(value[0], []).append(tuple(value))
    return found


def model(elements: list[Trade]) -> dict[str, dict[str, list[Any]]]:
    """A list for each key, sorted at the end; late is who comes at or behind the newest less the bound."""
    lists: dict[str, list[Trade]] = defaultdict(list)
    late: dict[str, list[Any]] = defaultdict(list)
    newest: int | None = None
    for t in elements:
        if newest is not None and t.ts <= newest - BOUND - 1:
            late[t.key].append(tuple(t))
        else:
            lists[t.key].append(t)
        newest = t.ts if newest is None else max(newest, t.ts)
    ordered = {k: sorted(ts, key=lambda t: t.ts) for k, ts in lists.items()}
    following = {
        k: [(*t, last, t.ts, t.ts - 1) for t, last in zip(ts, [None, *(t.ts for t in ts)], strict=False)]
        for k, ts in ordered.items()
    }
    return {
        "sorted": {k: [tuple(t) for t in ts] for k, ts in ordered.items()},
        "late": dict(late),
        "following": following,
    }


@examples(8)
@given(trades, st.sampled_from([1, 7, 100]), st.integers(1, 4), st.booleans())
def test_wherever_epochs_are_cut_and_at_any_parallelism(
    elements: list[Trade], rows: int, parallelism: int, columns: bool
) -> None:
    source = TestSource(elements, type=Trade, columnar=True, batch_rows=7) if columns else TestSource(elements)

    def build(env: Any, source: Any) -> Any:
        if not columns:
            return job(env, source)
        strategy = timed(fp.WatermarkStrategy.for_bounded_out_of_orderness(BOUND))
        ordered = env.from_source(source, strategy, "in").key_by("key").sort_by_event_time(LATE)
        following = ordered.key_by("key").process(Following())
        return {"sorted": ordered, "late": ordered.get_side_output(LATE), "following": following}

    found = outputs(run_local(build, source, epochs=rows, parallelism=parallelism))
    assert found == model(elements)


def some(count: int) -> list[Trade]:
    return [Trade("abc"[i % 3], i * 2 - i * 5 % 9, i) for i in range(count)]


@pytest.mark.parametrize("at", [0, 8, 20, *(pytest.param(at, marks=pytest.mark.slow) for at in (4, 12, 16, 24))])
def test_a_savepoint_at_each_cut_and_another_parallelism(tmp_path: Any, at: int) -> None:
    elements = some(24)
    script = [*elements[:at], Eof(savepoint=True), *elements[at:]]
    first = run_local(job, script, parallelism=at % 3 + 1, state_root=tmp_path, epochs=3)
    second = run_local(job, script, parallelism=4 - at % 3, state_root=tmp_path, restore=first.savepoint, epochs=5)
    assert outputs(first, second) == model(elements)


def test_killed_on_the_way(tmp_path: Any) -> None:
    elements = some(24)
    run = run_local(job, [*elements[:8], ABORT, *elements[8:17], ABORT, *elements[17:]], state_root=tmp_path, epochs=3)
    assert run.deaths == 2
    assert outputs(run) == model(elements)


def test_nothing_is_left_when_all_has_come_out(tmp_path: Any) -> None:
    elements = some(24)

    def entries(drain: bool) -> dict[str, int]:
        script = [*elements, Eof(savepoint=True, drain=drain)]
        run = run_local(job, script, state_root=tmp_path / str(drain), parallelism=2, epochs=5)
        assert run.savepoint is not None
        operators = {o.uid: o for o in open_savepoint(run.savepoint).savepoint.operators}
        return {s.info.name: s.entries for s in operators["sort"].states}

    waiting = entries(drain=False)
    assert waiting["elements"] == waiting["_event_timers"] > 0
    assert entries(drain=True) == {"elements": 0, "_event_timers": 0}


def test_without_a_tag_late_elements_are_dropped() -> None:
    def build(env: Any, source: Any) -> Any:
        return (
            env.from_source(source, timed(fp.WatermarkStrategy.for_monotonous_timestamps()), "in")
            .key_by(lambda t: t.key, str)
            .sort_by_event_time()
        )

    source = TestSource([Trade("a", 5, 0), Trade("a", 4, 1), Trade("a", 5, 2), Trade("a", 9, 3)], type=Trade)
    run = run_local(build, source, epochs=1)
    # At 5 the watermark is 4, so another element at 5 is in time.
    assert [t.number for t in run.output] == [0, 2, 3]


@pytest.mark.parametrize("rows", [1, 7, 100])
def test_a_whole_stream(rows: int) -> None:
    def build(env: Any, source: Any) -> Any:
        strategy = timed(fp.WatermarkStrategy.for_bounded_out_of_orderness(BOUND))
        return env.from_source(source, strategy, "in").sort_by_event_time()

    elements = some(30)
    run = run_local(build, elements, epochs=rows, parallelism=3)
    late = {tuple(t) for ts in model(elements)["late"].values() for t in ts}
    assert [tuple(t) for t in run.output] == sorted((tuple(t) for t in elements if tuple(t) not in late), key=lambda t: t[1])


def test_elements_without_timestamps_are_refused() -> None:
    def build(env: Any, source: Any) -> Any:
        return (
            env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "in").key_by(lambda t: t.key, str).sort_by_event_time()
        )

    with pytest.raises(GraphError, match="timestamp assigner"):
        run_local(build, some(3))


def test_the_tag_is_a_tag() -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    with pytest.raises(GraphError, match="'late'"):
        env.from_collection([1]).sort_by_event_time("late")  # type: ignore[arg-type]

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from jobs import clicks, job

import forkpoint as fp
from forkpoint.contract.source import SplitRange
from forkpoint.driver.run.planner import SourcePlanner, spread
from forkpoint.testing import ABORT, PAUSE, run_local

ranges = st.builds(
    lambda piece, rows: (1, SplitRange("s", piece, 0, 1, rows, None)),
    st.integers(0, 99),
    st.one_of(st.none(), st.integers(0, 10**6)),
)


@given(st.lists(ranges, max_size=30), st.integers(1, 9))
def test_spread_keeps_all_and_their_order(assignments: list[tuple[int, SplitRange]], tasks: int) -> None:
    cut = spread(assignments, tasks)
    assert [one for task in cut for one in task] == assignments
    assert all(cut)
    assert len(cut) <= min(tasks, len(assignments))


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=60), st.integers(1, 9))
def test_no_task_gets_much_more_than_its_share(rows: list[int], tasks: int) -> None:
    assignments = [(1, SplitRange("s", i, 0, 1, n, None)) for i, n in enumerate(rows)]
    loads = [sum(r.rows or 0 for _, r in task) for task in spread(assignments, tasks)]
    assert max(loads) <= sum(rows) / min(tasks, len(rows)) + 2 * max(rows)


def test_ranges_of_one_size_are_cut_evenly() -> None:
    assignments = [(1, SplitRange("s", i, 0, 1, 10, None)) for i in range(12)]
    assert [len(task) for task in spread(assignments, 4)] == [3, 3, 3, 3]
    assert [len(task) for task in spread(assignments, 5)] == [2, 3, 2, 3, 2]
    assert spread([], 4) == []


def test_positions_advance_with_planning_and_resume_where_a_manifest_left_them(tmp_path: Path) -> None:
    graph = job(tmp_path, clicks(12)).graph
    planner = SourcePlanner(graph, {}, 2, 5)
    plans = [planner.plan() for _ in range(2)]
    position = planner.positions()
    rest = [planner.plan() for _ in range(3)]
    assert [bool(plan) for plan in plans + rest] == [True, True, True, False, False]
    assert planner.finished() == {"clicks"}
    planner.close()

    resumed = SourcePlanner(graph, position, 2, 5)
    assert not resumed.finished()
    assert [ranges_of(resumed.plan()) for _ in range(3)] == [ranges_of(plan) for plan in rest]
    assert resumed.finished() == {"clicks"}


class _Told(fp.CounterSource):
    """Notes which positions it is told are committed."""

    def __init__(self) -> None:
        super().__init__(9, per_epoch=4)
        self.committed: list[Any] = []

    def create_enumerator(self, position: Any) -> fp.SplitEnumerator:
        enumerator = super().create_enumerator(position)
        enumerator.committed = self.committed.append  # type: ignore[method-assign]
        return enumerator


def test_a_source_learns_which_positions_are_committed() -> None:
    source = _Told()

    def build(env: fp.StreamExecutionEnvironment, script: fp.Source[int]) -> fp.DataStream:
        env.from_source(script, fp.WatermarkStrategy.no_watermarks(), "script").sink_to(fp.DiscardSink())
        return env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "numbers")

    assert run_local(build, [PAUSE, ABORT, PAUSE, PAUSE]).output == list(range(9))
    assert source.committed == [{"next": 4}, {"next": 8}, {"next": 9}, {"next": 9}]


def ranges_of(tasks: list[bytes]) -> list[tuple[int, SplitRange]]:
    return [assignment for task in tasks for assignment in pickle.loads(task)]

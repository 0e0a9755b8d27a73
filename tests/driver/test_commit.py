"""From commit rows to a manifest: pure, so without a job."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import forkpoint as fp
from forkpoint.api.execution import prepare
from forkpoint.api.launch import Launch
from forkpoint.checkpoint.manifest import Manifest, Parent, SnapshotRef
from forkpoint.checkpoint.states import StateInfo
from forkpoint.driver.commit.manifests import (
    Positions,
    _outside,
    build_manifest,
    chains,
    due_snapshots,
    merge_states,
    next_idle_ms,
    raise_failure,
    split_starts,
)
from forkpoint.driver.start.restorer import Restored
from forkpoint.driver.start.starter import start_manifest
from forkpoint.errors import RestoreRefused, UserFunctionError
from forkpoint.graph.job import JobGraph
from forkpoint.runtime.event_time.watermarks import MAX_MS, MIN_MS
from forkpoint.runtime.exchange.control import Changes, CommitRow, EpochContext, Failure, Snapshot, SplitProgress

HASH = "0" * 64


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> JobGraph:
    """Timestamps with a bound of 100 ms and idleness after 1 s."""
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(str(tmp_path_factory.mktemp("root")))
    strategy = fp.WatermarkStrategy.for_bounded_out_of_orderness(100).with_timestamp_assigner(lambda e, _: e).with_idleness(1000)
    source = fp.CollectionSource([1], fp.Types.LONG())
    env.from_source(source, strategy, "numbers").uid("numbers").key_by(lambda e: e, fp.Types.LONG()).sum().uid("sum").sink_to(
        fp.DiscardSink()
    ).uid("sink")
    env.launch = Launch(options={"engine": "local"})
    return prepare(env, "job").graph


def start(graph: JobGraph, now_ms: int = 0, parallelism: int = 2) -> Manifest:
    return start_manifest("job", "run", graph, Restored(Parent()), generation=1, parallelism=parallelism, now_ms=now_ms)


def source_id(graph: JobGraph) -> int:
    return graph.by_uid["numbers"].id


def context(before: Manifest, graph: JobGraph, now_ms: int, drain: bool = False) -> EpochContext:
    return EpochContext(
        generation=1,
        epoch=before.epoch + 1,
        committed=before.epoch,
        processing_time_ms=now_ms,
        drain=drain,
        previous={},
        splits=split_starts(graph, before, now_ms),
        watermarks=dict(before.watermarks),
        snapshot_subtasks=[],
    )


def after(before: Manifest, graph: JobGraph, rows: list[CommitRow], now_ms: int = 0, drain: bool = False) -> Manifest:
    return build_manifest(
        before,
        graph,
        context(before, graph, now_ms, drain),
        rows,
        Positions({"numbers": [7]}, {}, frozenset()),
        run="run",
        created_ms=now_ms,
        kind="epoch",
        drained=drain,
    )


def progress(graph: JobGraph, split: str, watermark_ms: int, count: int = 1, piece: int = 0) -> CommitRow:
    return CommitRow(0, 0, "a", progress=[SplitProgress(source_id(graph), split, piece, watermark_ms, count)])


def test_the_watermark_is_the_least_over_the_splits(graph: JobGraph) -> None:
    one = after(start(graph), graph, [progress(graph, "a", 1000), progress(graph, "b", 500)])
    assert one.watermarks["sum"] == 500
    assert one.sources["numbers"].position == [7]
    assert {name: (s.watermark_ms, s.count) for name, s in one.sources["numbers"].splits.items()} == {
        "a": (1000, 1),
        "b": (500, 1),
    }
    two = after(one, graph, [progress(graph, "b", 800)])
    assert two.watermarks["sum"] == 800


def test_watermarks_never_fall_and_pieces_of_a_split_join(graph: JobGraph) -> None:
    one = after(start(graph), graph, [progress(graph, "a", 300, 2, 1), progress(graph, "a", 900, 3, 0)])
    assert (one.watermarks["sum"], one.sources["numbers"].splits["a"].count) == (900, 5)
    two = after(one, graph, [progress(graph, "a", 100), progress(graph, "new", MIN_MS, 0)])
    assert two.watermarks["sum"] == 900


def test_drained_is_the_end_of_time(graph: JobGraph) -> None:
    one = after(start(graph), graph, [progress(graph, "a", 5)], drain=True)
    assert one.drained
    assert one.watermarks["sum"] >= MAX_MS - 1


def test_an_idle_split_holds_nothing_up(graph: JobGraph) -> None:
    one = after(start(graph), graph, [progress(graph, "a", 1000), progress(graph, "b", 500)], now_ms=100)
    assert next_idle_ms(graph, one, 100) == 1100
    two = after(one, graph, [progress(graph, "a", 2000)], now_ms=1099)
    assert two.watermarks["sum"] == 500
    starts = split_starts(graph, two, 1100)[str(source_id(graph))]
    assert {name: s.idle for name, s in starts.items()} == {"a": False, "b": True}
    three = after(two, graph, [progress(graph, "a", 3000)], now_ms=1100)
    assert three.watermarks["sum"] == 3000
    assert three.sources["numbers"].splits["b"].last_active_ms == 100


def test_a_split_is_awake_when_a_run_starts(graph: JobGraph) -> None:
    one = after(start(graph), graph, [progress(graph, "a", 1000)], now_ms=100)
    restored = Restored(Parent(kind="checkpoint", job="job", epoch=2, run="run"), sources=one.sources, epoch=3)
    again = start_manifest("job", "two", graph, restored, generation=2, parallelism=2, now_ms=50_000)
    assert not split_starts(graph, again, 50_500)[str(source_id(graph))]["a"].idle


def test_changes_and_committables_are_this_epochs_only_and_snapshots_all(graph: JobGraph) -> None:
    changes = Changes(None, b"x", 1, 1, HASH)
    rows = [
        CommitRow(1, 1, "b", changes=changes, committables={"sink": ["late"]}),
        CommitRow(1, 0, "a", changes=Changes("jobs/j/c", None, 1, 1, HASH), committables={"sink": ["early"]}),
        CommitRow(0, 0, "z"),
    ]
    one = after(start(graph), graph, rows)
    assert sorted((c.subtask, c.kg_start, c.kg_stop, c.inline_data(), c.path) for c in one.changes) == [
        (0, 0, 64, None, "jobs/j/c"),
        (1, 64, 128, b"x", None),
    ]
    assert one.sinks == {"sink": ["early", "late"]}
    two = after(one, graph, [CommitRow(1, 0, "c", snapshot=Snapshot("jobs/j/s", one.epoch, 3, 10, HASH))])
    assert (two.changes, two.sinks) == ([], {})
    assert [(s.subtask, s.epoch, s.kg_start, s.kg_stop) for s in two.snapshots] == [(0, one.epoch, 0, 64)]
    assert after(two, graph, []).snapshots == two.snapshots


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 4)), max_size=12))
def test_snapshots_cover_each_key_group_once_and_the_newest_wins(graph: JobGraph, taken: list[tuple[int, int]]) -> None:
    """Runs of changing parallelism, each taking a snapshot of one subtask."""
    newest: dict[int, int] = {}
    refs: list[SnapshotRef] = []
    from forkpoint.driver.commit.manifests import _snapshots
    from forkpoint.state import key_group_range

    base = start(graph).replace(epoch=100, max_parallelism=12)
    for epoch, (parallelism, which) in enumerate(taken, 1):
        subtask = which % parallelism
        manifest = base.replace(parallelism=parallelism, snapshots=refs)
        refs = _snapshots(manifest, [CommitRow(1, subtask, "a", snapshot=Snapshot("p", epoch, 1, 1, HASH))])
        newest.update(dict.fromkeys(range(*key_group_range(subtask, parallelism, 12)), epoch))
    found = [(kg, ref.epoch) for ref in refs for kg in range(ref.kg_start, ref.kg_stop)]
    assert sorted(found) == sorted(newest.items())


def test_outside() -> None:
    ref = SnapshotRef(subtask=0, attempt="a", kg_start=0, kg_stop=10, epoch=1, path="p", entries=0, bytes=0, checksum=HASH)
    assert [(r.kg_start, r.kg_stop) for r in _outside(ref, [(3, 6)])] == [(0, 3), (6, 10)]
    assert _outside(ref, [(0, 10)]) == []
    assert _outside(ref, [(10, 12)]) == [ref]


@given(st.lists(st.integers(0, 12), max_size=6, unique=True), st.integers(0, 12), st.integers(0, 12))
def test_what_is_outside_of_several_ranges(bounds: list[int], start: int, stop: int) -> None:
    covered = list(zip(sorted(bounds)[::2], sorted(bounds)[1::2], strict=False))
    ref = SnapshotRef(
        subtask=0,
        attempt="a",
        kg_start=min(start, stop),
        kg_stop=max(start, stop),
        epoch=1,
        path="p",
        entries=0,
        bytes=0,
        checksum=HASH,
    )
    found = [kg for part in _outside(ref, covered) for kg in range(part.kg_start, part.kg_stop)]
    assert found == [kg for kg in range(ref.kg_start, ref.kg_stop) if not any(a <= kg < b for a, b in covered)]


def state(sid: int, name: str, **more: Any) -> StateInfo:
    return StateInfo(sid=sid, uid="sum", name=name, kind="value", **more)


def test_states_are_kept_and_two_with_one_number_refused() -> None:
    rows = [CommitRow(1, 0, "a", states=[state(5, "five"), state(9, "nine", ttl_ms=10)])]
    found = merge_states([state(9, "nine"), state(3, "three")], rows)
    assert [(s.sid, s.name, s.ttl_ms) for s in found] == [(3, "three", None), (5, "five", None), (9, "nine", 10)]
    with pytest.raises(RestoreRefused, match="'five' of operator 'sum' gets the same id as state 'other'"):
        merge_states([state(5, "other")], rows)


def test_the_first_failure_is_raised_as_what_it_was() -> None:
    rows = [
        CommitRow(2, 0, "a", failure=Failure("StorageError", "later")),
        CommitRow(1, 1, "a", failure=Failure("UserFunctionError", "ouch")),
        CommitRow(1, 0, "a"),
    ]
    with pytest.raises(UserFunctionError, match="ouch"):
        raise_failure(rows)
    raise_failure(rows[2:])


def test_snapshots_are_due_after_many_epochs_or_many_bytes(graph: JobGraph) -> None:
    manifest = start(graph)
    mib = 2**20
    big = SnapshotRef(
        subtask=1, attempt="a", kg_start=64, kg_stop=128, epoch=1, path="p", entries=1, bytes=500 * mib, checksum=HASH
    )
    assert due_snapshots(manifest, {0: (9, 0), 1: (10, 0)}, chain=10, ratio=1.0) == [1]
    assert due_snapshots(manifest, {0: (3, 9 * mib), 1: (3, 7 * mib)}, chain=10, ratio=1.0) == [0]
    assert due_snapshots(manifest, {0: (2, 10**12)}, chain=10, ratio=1.0) == []
    with_big = manifest.replace(snapshots=[big])
    assert due_snapshots(with_big, {1: (3, 400 * mib)}, chain=10, ratio=1.0) == []
    assert due_snapshots(with_big, {1: (3, 501 * mib)}, chain=10, ratio=1.0) == [1]
    assert due_snapshots(with_big, {0: (10, 0), 1: (39, 1)}, chain=10, ratio=1.0) == [0]
    assert due_snapshots(with_big, {1: (40, 1)}, chain=10, ratio=1.0) == [1]


def test_a_new_run_goes_on_with_the_old_chains(graph: JobGraph) -> None:
    ref = SnapshotRef(subtask=1, attempt="a", kg_start=64, kg_stop=128, epoch=30, path="p", entries=1, bytes=1, checksum=HASH)
    manifest = start(graph).replace(epoch=40, snapshots=[ref])
    assert chains(manifest) == {0: (39, 0), 1: (10, 0)}
    assert chains(manifest.replace(parallelism=4)) == {0: (39, 0), 1: (39, 0), 2: (10, 0), 3: (10, 0)}

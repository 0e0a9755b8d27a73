"""How much there is of each state while a job runs: exact for few changes, whatever stops and starts it."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from jobs import JOB, Crash, history

import forkpoint as fp
from forkpoint.api.execution import Job, prepare
from forkpoint.api.launch import Launch
from forkpoint.checkpoint.manifest import Manifest
from forkpoint.driver.commit.amounts import JobAmounts, redistributed_amounts, saved
from forkpoint.driver.observe.events import EpochReached, Event
from forkpoint.driver.run import epochs
from forkpoint.driver.serve.commands import Commands
from forkpoint.graph.options import CheckpointOptions, RestartStrategy
from forkpoint.protocol.messages import MetricsMessage
from forkpoint.runtime.exchange.control import Changes as ChangesPart
from forkpoint.runtime.exchange.control import CommitRow
from forkpoint.runtime.tasks.committed_state import CommittedState, Share
from forkpoint.state import (
    Amount,
    Amounts,
    Changes,
    Count,
    GrowthMeter,
    amounts,
    key_group_range,
    operator_key,
    sum_amounts,
)

Visit = tuple[int, int, int]  # user, page, time in ms


def visits(number: int, users: int = 40) -> list[Visit]:
    dice = random.Random(7)
    return [(dice.randrange(users), dice.randrange(12), i * 20) for i in range(number)]


class Visits(fp.KeyedProcessFunction):
    """Puts, reads, removes and clears state of each kind; sets timers again, deletes some, and lets others fire."""

    last = fp.ValueStateDescriptor("last", int)
    pages = fp.MapStateDescriptor("pages", int, str)
    log = fp.ListStateDescriptor("log", int)
    total = fp.ReducingStateDescriptor("total", lambda a, b: a + b, int)
    recent = fp.MapStateDescriptor("recent", int, int)
    recent.enable_time_to_live(
        fp.StateTtlConfig.new_builder(timedelta(milliseconds=700))
        .set_ttl_time_characteristic(fp.StateTtlConfig.TtlTimeCharacteristic.EventTime)
        .build()
    )

    def process_element(self, visit: Visit, ctx: fp.KeyedProcessFunction.Context) -> Iterable[tuple[int, int]]:
        user, page, at_ms = visit
        timers = ctx.timer_service()
        self.last.update(at_ms)
        self.total.add(page)
        self.recent.put(page, at_ms)
        self.log.add(page)
        if page % 3:
            self.pages.put(page, "x" * (at_ms % 9))  # blind
        else:
            self.pages.remove(page + 1)  # blind, and perhaps never put
        if page == 5:
            self.log.clear()
            self.total.clear()
        if page == 7:
            self.log.update([1, 2])
        if page == 9:
            self.pages.clear()
            self.last.clear()
        timers.register_event_time_timer(at_ms // 500 * 500 + 900)  # the same one again and again
        timers.register_processing_time_timer(10**13 + page)
        if page == 11:
            timers.delete_event_time_timer(at_ms // 500 * 500 + 900)
            timers.delete_processing_time_timer(10**13 + 3)
        yield user % 5, page

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[tuple[int, int]]:
        self.total.clear()
        return ()


class Taken(fp.MapFunction, fp.CheckpointedFunction):
    """Each subtask has a list of its own, which a rescaling redistributes, and one that each gets all of."""

    def initialize_state(self, context: fp.FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.own = store.get_list_state(fp.ListStateDescriptor("own", int))
        self.all = store.get_union_list_state(fp.ListStateDescriptor("all", int))

    def snapshot_state(self, context: fp.FunctionSnapshotContext) -> None:
        pass

    def map(self, value: tuple[int, int]) -> tuple[int, int]:
        if value[1] == 3:
            self.own.add(value[1])
        if value[1] == 4:
            self.all.add(value[1])
        return value


class Stop:
    """Ends the run as a crash would, or rescales it, when an epoch is published."""

    def __init__(self, crash_at: int | None = None, parallelism: Mapping[int, int] | None = None) -> None:
        self.crash_at = crash_at
        self.parallelism = dict(parallelism or {})
        self.job: Job

    def on_event(self, event: Event) -> None:
        if not isinstance(event, EpochReached):
            return
        current = self.job.driver.parts.rescaling._current
        if event.phase == "planned" and current is not None:
            current.ready.wait()
        if event.phase == "published":
            if event.epoch == self.crash_at:
                raise Crash
            if event.epoch in self.parallelism:
                self.job.driver.rescale(self.parallelism[event.epoch])


def run(
    root: Path,
    elements: list[Visit],
    stop: Stop | None = None,
    *,
    store: Any = "lmdb",
    parallelism: int = 2,
    rows: int = 10,
    retained: int = 1000,
    restore: str | None = None,
    fn: fp.KeyedProcessFunction | None = None,
) -> MetricsMessage:
    env = fp.StreamExecutionEnvironment.get_execution_environment().set_state_root(str(root))
    env.set_parallelism(parallelism).set_max_epoch_rows(rows)
    env.options = replace(
        env.options,
        checkpoint=CheckpointOptions(interval_ms=1, num_retained=retained),
        restart=RestartStrategy.fixed_delay(3, 1),
        max_parallelism=16,
        state_backend=store,
    )
    times = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda visit, _: visit[2])
    source = env.from_collection(elements, fp.Types.TUPLE([fp.Types.LONG()] * 3)).uid("visits")
    pair = fp.Types.TUPLE([fp.Types.LONG()] * 2)
    seen = source.assign_timestamps_and_watermarks(times).uid("times").key_by(lambda v: v[0], int)
    taken = seen.process(fn or Visits(), pair).uid("seen").map(Taken(), pair).uid("taken")
    windows = taken.key_by(lambda v: v[0], int).window(fp.TumblingEventTimeWindows.of(timedelta(milliseconds=300)))
    windows.reduce(lambda a, b: (a[0], a[1] + b[1])).uid("windows").sink_to(fp.DiscardSink()).uid("out")
    listener = stop or Stop()
    env.launch = Launch(
        options={"engine": "local"},
        listeners=[listener],
        restore=None if restore is None else fp.RestoreOptions(restore),
    )
    listener.job = job = prepare(env, JOB)
    job.begin()()
    return Commands(job.driver).metrics()


def read(root: Path, manifest: Manifest) -> dict[int, Amount]:
    """What there is in the committed state."""
    past, found = history(root), []
    for subtask in range(manifest.parallelism):
        share = Share(subtask, *key_group_range(subtask, manifest.parallelism, manifest.max_parallelism))
        count = Count()
        for _ in CommittedState(past.storage, past.paths, share).entries(manifest, count):
            pass
        found.append(count.amounts)
    return sum_amounts(found)


def check(root: Path, unknown: Collection[int] = ()) -> dict[int, Manifest]:
    """Compare what each manifest tells with the state at its epoch; those of some epochs tell nothing."""
    past = history(root)
    manifests = {epoch: past.load(epoch) for epoch in past.epochs()}
    for manifest in manifests.values():
        told = saved(manifest)
        assert (told is None) == (manifest.epoch in unknown), manifest.epoch
        if told is None:
            continue
        assert {sid: amount for sid, amount in told.items() if amount.entries} == read(root, manifest), manifest.epoch
    return manifests


def entries(message: MetricsMessage) -> dict[tuple[str, str], int]:
    assert message.states is not None
    return {(state.uid, state.name): state.entries for state in message.states}


@pytest.fixture
def each_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measures short epochs with many changes, too."""
    monkeypatch.setattr(amounts, "_SECONDS", 0)


@pytest.mark.usefixtures("each_epoch")
@pytest.mark.parametrize("store", ["dict", "lmdb", "rocksdb"])
def test_each_epoch_tells_exactly_what_there_is(tmp_path: Path, store: str) -> None:
    run(tmp_path, visits(150), store=store)
    manifests = check(tmp_path)
    most = [max(amount.entries for amount in (saved(m) or {}).values()) for m in manifests.values() if m.amounts]
    assert max(most) > 50
    kinds = {state.kind for state in manifests[max(manifests)].states}
    assert {"value", "map", "list", "reducing", "timers-event", "timers-processing", "operator-list"} <= kinds


class Counted(fp.KeyedProcessFunction):
    """Keeps each user's pages until page 0, and wakes at 1,000,000 of event time, and far away."""

    pages = fp.MapStateDescriptor("pages", int, int)
    visits = fp.ValueStateDescriptor("visits", int)

    def process_element(self, visit: Visit, ctx: fp.KeyedProcessFunction.Context) -> Iterable[tuple[int, int]]:
        self.visits.update((self.visits.value() or 0) + 1)
        self.pages.put(visit[1], 1)
        ctx.timer_service().register_event_time_timer(1_000_000)
        ctx.timer_service().register_processing_time_timer(10**13 + visit[1])
        if visit[1] == 0:
            self.pages.clear()
            self.visits.clear()
            ctx.timer_service().delete_processing_time_timer(10**13 + 2)
        yield visit[0], 1


def test_metrics_have_entries_bytes_and_timers_of_each_operator(tmp_path: Path) -> None:
    elements = [(1, 1, 0), (1, 2, 0), (1, 2, 20), (2, 2, 0), (3, 3, 0), (3, 0, 40), (4, 4, 40), (9, 9, 310)]
    with pytest.raises(Crash):
        run(tmp_path, [*elements, *[(1, 1, 320)] * 3], Stop(crash_at=9), fn=Counted(), rows=1)
    message = run(tmp_path, [*elements, *[(1, 1, 320)] * 3], Stop(), fn=Counted(), rows=1)
    manifest = history(tmp_path).load(9)
    told = {(s.uid, s.name): (saved(manifest) or {}).get(s.sid, Amount(0, 0)).entries for s in manifest.states}
    assert told["seen", "visits"] == 4  # of 1, 2, 4 and 9
    assert told["seen", "pages"] == 2 + 1 + 0 + 1 + 1
    assert told["seen", "_event_timers"] == 5
    assert told["seen", "_processing_timers"] == 2 + 1 + 2 + 1 + 1
    assert entries(message)["seen", "visits"] == 4
    assert entries(message)["seen", "_event_timers"] == 0  # fired as the input has ended
    assert entries(message)["seen", "_processing_timers"] == 7
    states = {(s.uid, s.name): s for s in message.states or ()}
    assert states["seen", "pages"].bytes > states["seen", "pages"].entries * 10
    assert states["seen", "pages"].kind == "map"
    assert all(uid in {"seen", "taken", "windows"} for uid, _ in states)


@pytest.mark.usefixtures("each_epoch")
def test_another_run_goes_on_with_them(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        run(tmp_path, visits(120), Stop(crash_at=6))
    run(tmp_path, visits(120))
    assert len({m.run for m in check(tmp_path).values()}) == 2


@pytest.mark.usefixtures("each_epoch")
def test_a_run_whose_state_is_imported_counts_it_with_its_first_epoch(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        run(tmp_path, visits(120), Stop(crash_at=6))
    run(tmp_path, visits(120), parallelism=3)  # operator state has to be divided
    assert {m.parallelism for m in check(tmp_path, unknown={7}).values()} == {2, 3}


@pytest.mark.slow
@pytest.mark.usefixtures("each_epoch")
def test_a_rescaled_job_goes_on_with_them(tmp_path: Path) -> None:
    run(tmp_path, visits(400), Stop(parallelism={6: 3, 18: 1, 28: 4}))
    assert {m.parallelism for m in check(tmp_path).values()} == {1, 2, 3, 4}


@pytest.mark.usefixtures("each_epoch")
def test_what_an_earlier_release_has_not_saved_is_counted_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(Crash), patch.object(epochs, "to_save", lambda sums: None):
        run(tmp_path, visits(120), Stop(crash_at=6))
    before = max(history(tmp_path).epochs())
    run(tmp_path, visits(120))
    check(tmp_path, unknown=range(2, before + 2))  # up to the start itself


def test_snapshots_correct_what_was_estimated(tmp_path: Path) -> None:
    """All changes are estimated wrongly, as if each had added an entry; snapshots count."""

    def wrong(self: GrowthMeter, keys: Any, values: Any, read: Any, seconds: float) -> dict[int, Amount]:
        return {int.from_bytes(key[2:6], "big"): Amount(1000, 0) for key in keys.to_pylist()}

    with patch.object(GrowthMeter, "growth", wrong), patch.object(epochs, "SNAPSHOT_CHAIN", 5):
        run(tmp_path, visits(300))
    past = history(tmp_path)
    manifest = past.load(14)
    told, truth = saved(manifest) or {}, read(tmp_path, manifest)
    off = max(told[sid].entries - truth[sid].entries for sid in truth)
    assert off + 200 >= 1000  # by the estimates since the last snapshots
    assert off <= 5 * 2 * 1000  # not by all of them


def row(subtask: int, grown: Amounts | None = None, counted: Amounts | None = None) -> CommitRow:
    changes = None if grown is None else ChangesPart(None, b"", 1, 1, "", dict(grown))
    return CommitRow(1, subtask, "a", changes=changes, counted=None if counted is None else dict(counted))


def test_sums_go_on_until_all_subtasks_are_counted() -> None:
    told = JobAmounts({1: Amount(10, 100)})
    told = told.after([row(0, {1: Amount(1, 10)}), row(1, {1: Amount(2, 20)}, {1: Amount(6, 60)})], 2)
    assert told.sums == {1: Amount(13, 130)}
    told = told.after([row(0, {1: Amount(1, 10)}, {1: Amount(3, 30)}), row(1, {2: Amount(5, 5)})], 2)
    assert told.sums == {1: Amount(6 + 2 + 3 + 1, 120), 2: Amount(5, 5)}
    assert JobAmounts().after([row(0, {1: Amount(1, 10)})], 2).sums is None
    assert JobAmounts().after([row(0, {1: Amount(1, 10)}, {})], 1).sums == {1: Amount(1, 10)}


def test_redistributed_operator_state_may_have_more_copies() -> None:
    keys = [operator_key(7, subtask, 0) for subtask in range(3)]
    before = {keys[0]: b"ab", keys[1]: b"c"}
    changes = [Changes([keys[0]], [b"abc"]), Changes([keys[1]], [b"abc"]), Changes([keys[2]], [b"abc"])]
    sums = {7: Amount(2, 2 * 18 + 3), 8: Amount(1, 1)}
    assert redistributed_amounts(sums, before, changes) == {7: Amount(3, 3 * (len(keys[0]) + 3)), 8: Amount(1, 1)}
    assert redistributed_amounts(None, before, changes) is None

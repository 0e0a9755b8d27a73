"""What a run measures: the pure folding of its events, and jobs on the local engine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

import forkpoint as fp
from forkpoint.api.execution import prepare
from forkpoint.api.launch import Launch
from forkpoint.checkpoint.manifest import SplitState
from forkpoint.contract.source import Backlog
from forkpoint.driver.commit.measurements import Hold, Measurements, UserReport, hold_of
from forkpoint.driver.observe.events import (
    AttemptStarted,
    EpochCommitted,
    EpochReached,
    PublishingProgressed,
    RescaleEnded,
    Restarting,
    SavepointEnded,
)
from forkpoint.driver.observe.metrics import BOUNDS_MS, CatchUps, Durations, JobMetrics, UserKey, UserValue, after
from forkpoint.driver.serve.commands import Commands
from forkpoint.graph.options import RestartStrategy
from forkpoint.protocol.messages import BacklogMetrics, MetricsMessage
from forkpoint.runtime.event_time.watermarks import MIN_MS
from forkpoint.runtime.exchange.control import CatchUp, UserMetric
from forkpoint.runtime.tasks.measurements import MetricReporter, Stopwatch
from forkpoint.state import StoreSize


def epoch(**measured: Any) -> EpochCommitted:
    return EpochCommitted(
        5, {"a": 2}, {"a": 3}, {"a": 1}, {"a": 40}, 10, 20, [CatchUp(0, "memory", 1, 7)], 3, Measurements(**measured)
    )


def test_committed_epochs_add_up() -> None:
    one = epoch(busy_us={"a": 5}, bytes_in={"a": 6}, bytes_out={"a": 7}, state_size=StoreSize(8, 9))
    metrics = after(after(JobMetrics(), one), one)
    assert (metrics.epochs, metrics.records_in, metrics.records_out) == (2, {"a": 4}, {"a": 6})
    assert (metrics.busy_us, metrics.bytes_in, metrics.bytes_out) == ({"a": 10}, {"a": 12}, {"a": 14})
    assert (metrics.changes_bytes, metrics.snapshot_bytes, metrics.stores_reused) == (20, 40, 6)
    assert metrics.catch_ups == {"memory": CatchUps(2, 14)}
    assert (metrics.late_records_dropped, metrics.watermarks) == ({"a": 2}, {"a": 40})
    assert metrics.state_size == StoreSize(8, 9)


def test_when_sources_last_read_and_how_large_their_backlogs_were() -> None:
    metrics = JobMetrics()
    for at_ms, amount in ((1_000, 5), (2_000, 6), (30_000, 7), (620_000, 8)):
        metrics = after(metrics, EpochReached(5, "committed", at_ms, 0))
        metrics = after(metrics, epoch(backlog={"a": Backlog(amount)}))
    assert metrics.backlogs == {"a": ((30_000, 7), (620_000, 8))}  # one in so many seconds, of the last minutes
    restarted = after(metrics, AttemptStarted(5, 1, {}, 700_000))
    assert (restarted.read_ms, restarted.backlogs) == ({"a": 620_000}, {})


def test_a_hot_key_is_found_and_kept_until_the_next_large_epoch(tmp_path: Path) -> None:
    """With keys as columns, and as results of a function, of which only one operator's are uneven."""

    class Count(fp.KeyedProcessFunction[int, int, int]):
        def process_element(self, value: int, ctx: Any) -> None: ...

    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(str(tmp_path)).set_parallelism(4).set_max_epoch_rows(20_000)
    numbers = env.from_source(fp.NumberSequenceSource(1, 20_100), fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    uneven = numbers.map(lambda n: fp.Row(user=17 if n % 2 else n, n=n), fp.Types.ROW_NAMED(["user", "n"], [fp.Types.LONG()] * 2))
    uneven.key_by("user").agg(count=fp.Count()).uid("columns").sink_to(fp.DiscardSink()).uid("one")
    uneven.key_by(lambda row: f"user {row.user}", key_type=fp.Types.STRING()).process(Count()).uid("function")
    numbers.key_by(lambda n: n % 100).process(Count()).uid("even")
    env.launch = Launch(options={"engine": "local"})
    job = prepare(env, "hot")
    job.begin()()
    found = job.driver.metrics().skews
    assert found.keys() == {"columns", "function"}
    for uid, name in (("columns", "17"), ("function", "'user 17'")):
        assert (found[uid].subtasks, found[uid].key and found[uid].key[0]) == (4, name)
        assert 0.6 < found[uid].share < 0.7
        assert found[uid].share * (found[uid].key or ("", 0))[1] == pytest.approx(0.5, abs=0.1)


def test_since_when_a_sink_is_behind() -> None:
    metrics = after(JobMetrics(), PublishingProgressed({"s": 3}, ["s"], 10))
    metrics = after(metrics, PublishingProgressed({"s": 4}, ["s"], 20))
    assert metrics.behind_ms == {"s": 10}
    assert after(metrics, PublishingProgressed({"s": 2}, [], 30)).behind_ms == {}


def test_what_holds_a_watermark_back() -> None:
    def split(watermark_ms: int, count: int = 1) -> SplitState:
        return SplitState(watermark_ms=watermark_ms, last_active_ms=7, count=count)

    assert hold_of({}) is None
    assert hold_of({"a": split(5)}) == Hold("a", 5, 7, empty=False)
    hold = hold_of({"d": split(90_000), "c": split(30_000), "b": split(5), "a": split(5)})
    assert hold == Hold("a", 5, 7, False, 1, ("c", 30_000), ("d", 90_000))
    assert (hold.behind_ms, hold.notable) == (29_995, True)
    early = hold_of({"a": split(MIN_MS, 0), "b": split(5)})
    assert early == Hold("a", MIN_MS, 7, True, 0, ("b", 5), ("b", 5))
    assert (early.behind_ms, early.notable) == (None, True)


def test_a_restart_begins_counts_anew_but_not_those_of_the_run() -> None:
    metrics = JobMetrics()
    for event in (
        epoch(),
        Restarting("why", 1, 0),
        RescaleEnded(3, 7),
        RescaleEnded(3, failure="no"),
        PublishingProgressed({"s": 2}),
        SavepointEnded("s", 5, "there", at_ms=70),
        SavepointEnded("s", 5, failure="no"),
        AttemptStarted(5, 1, {"a": 40}, 90),
    ):
        metrics = after(metrics, event)
    assert (metrics.epochs, metrics.records_in, metrics.changes_bytes) == (0, {}, 0)
    assert (metrics.restarts, metrics.rescalings, metrics.savepoints, metrics.savepoints_failed) == (1, 1, 1, 1)
    assert (metrics.since_ms, metrics.savepoint_ms, metrics.unpublished) == (90, 70, {"s": 2})


def test_phases_and_whole_epochs_have_durations() -> None:
    metrics = JobMetrics()
    for phase, at_ms, since_ms in (("planned", 104, 100), ("computed", 354, 104), ("published", 600_100, 600_099)):
        metrics = after(metrics, EpochReached(5, phase, at_ms, since_ms))
    assert metrics.durations["plan"].up_to[0] == 1
    assert metrics.durations["compute"] == Durations().with_one(250)
    assert metrics.durations["compute"].up_to[BOUNDS_MS.index(250)] == 1
    assert (metrics.durations["epoch"].sum_ms, metrics.durations["epoch"].up_to[-1]) == (600_000, 1)
    assert metrics.began_ms is None


def test_user_metrics_add_changes_and_keep_the_last_value_of_each_gauge() -> None:
    metrics = JobMetrics()
    for reports in (
        [("counter", 3, 0, None, None), ("distribution", 2, 9, 4, 5), ("gauge", 7, 0, None, None)],
        [("counter", -1, 0, None, None), ("distribution", 1, 1, 1, 5), ("gauge", 6, 0, None, None)],
    ):
        user = [UserReport("a", 1, UserMetric(kind, "g", "n", *rest)) for kind, *rest in reports]
        metrics = after(metrics, epoch(user=user))
    assert metrics.user == {
        UserKey("a", "g", "n", "counter"): UserValue(2),
        UserKey("a", "g", "n", "distribution"): UserValue(3, 10, 1, 5),
        UserKey("a", "g", "n", "gauge", 1): UserValue(6),
    }


def test_a_report_has_only_what_has_changed_since_the_last_one() -> None:
    group = fp.MetricGroup()
    seen, sizes = group.counter("seen"), group.add_group("io").distribution("sizes")
    reporter = MetricReporter("a", group)
    seen.inc(2)
    sizes.update(4)
    assert reporter.take() == [
        UserMetric("counter", "", "seen", 2),
        UserMetric("distribution", "io", "sizes", 1, 4, 4, 4),
    ]
    assert reporter.take() == []
    seen.inc(5)
    reporter.skip()
    seen.dec()
    assert reporter.take() == [UserMetric("counter", "", "seen", -1)]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "text", None])
def test_a_gauge_without_a_number_is_left_out(value: Any) -> None:
    group = fp.MetricGroup()
    group.gauge("g", lambda: value)
    assert MetricReporter("a", group).take() == []


def test_a_gauge_that_fails_is_left_out_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    group = fp.MetricGroup()
    group.gauge("g", lambda: 1 / 0)
    reporter = MetricReporter("a", group)
    assert reporter.take() == reporter.take() == []
    assert len(caplog.records) == 1


def test_time_belongs_to_the_operator_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 1.0, 4.0, 9.0])
    monkeypatch.setattr("forkpoint.runtime.tasks.measurements.time.perf_counter", lambda: next(times))
    clock = Stopwatch()
    clock.switch("outer")
    caller = clock.switch("inner")
    clock.switch(caller)
    assert clock.switch(None) == "outer"
    assert clock.seconds == {"outer": 6.0, "inner": 3.0}


class Seen(fp.MapFunction):
    def __init__(self, fails_at: Path | None) -> None:
        self.fails_at = fails_at

    def open(self, runtime_context: fp.RuntimeContext) -> None:
        group = runtime_context.get_metrics_group()
        self.seen = group.counter("seen")
        self.sizes = group.add_group("io", "in").distribution("sizes")
        group.meter("events")
        self.rate = group.meter("events")
        group.gauge("last", lambda: self.last)
        self.last = 0

    def map(self, value: int) -> int:
        self.seen.inc()
        self.sizes.update(value)
        self.rate.mark_event(2)
        self.last = value
        if self.fails_at is not None and value == 500 and not self.fails_at.exists():
            self.fails_at.touch()
            raise ValueError("once")
        return value


def metrics_of(
    root: Path,
    *,
    rows: int = 100,
    stop: int = 1000,
    keyed: bool = False,
    fails_at: Path | None = None,
    change: Callable[[Any], Any] = lambda options: options,
) -> MetricsMessage:
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(str(root)).set_parallelism(2).set_max_epoch_rows(rows)
    env.options = change(replace(env.options, restart=RestartStrategy.fixed_delay(3, 1)))
    numbers = env.from_source(fp.CounterSource(stop), fp.WatermarkStrategy.no_watermarks(), "n").uid("numbers")
    seen = Seen(fails_at)
    stream = numbers if keyed else numbers.map(seen, fp.Types.LONG()).uid("seen")
    counted = stream.key_by(lambda n: n % 5, int).map_with_state(lambda n, s: (n, (s or 0) + 1), int).uid("counts")
    (counted.map(seen).uid("seen") if keyed else counted).sink_to(fp.DiscardSink()).uid("out")
    env.launch = Launch(options={"engine": "local"})
    job = prepare(env, "job")
    job.begin()()
    return Commands(job.driver).metrics()


def user(message: MetricsMessage, kind: str) -> list[Any]:
    return [u for u in message.user if u.kind == kind]


@pytest.mark.parametrize("keyed", [False, True], ids=["at the source", "behind keys"])
def test_each_operator_counts_elements_and_time(tmp_path: Path, keyed: bool) -> None:
    message = metrics_of(tmp_path, keyed=keyed)
    assert {uid: (o.records_in, o.records_out) for uid, o in message.operators.items()} == {
        "numbers": (1000, 1000),
        "seen": (1000, 1000),
        "counts": (1000, 1000),
        "out": (1000, 0),
    }
    assert all(operator.busy_ms > 0 for operator in message.operators.values())
    sender = "numbers" if keyed else "seen"
    assert message.operators["counts"].bytes_in == message.operators[sender].bytes_out > 0
    assert message.state_entries == 5
    assert message.backlog["numbers"].amount == 0
    assert message.durations["epoch"].count == message.epochs == 10
    assert set(message.durations) == {"plan", "compute", "write", "commit", "publish", "epoch"}


class Waits:
    """Waits at the third line, until there is a file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __call__(self, line: str) -> str:
        while line == "third" and not self._file.exists():
            time.sleep(0.01)
        return line


def test_files_that_wait_to_be_read_are_counted_while_a_job_runs(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number, text in enumerate(["first", "second", "third", "fourth", "fifth"]):
        (tmp_path / "in" / str(number)).write_text(f"{text}\n")
    env = fp.StreamExecutionEnvironment().set_state_root(str(tmp_path / "root")).set_parallelism(1).set_max_epoch_rows(1)
    read = env.from_source(fp.FileSource.text(tmp_path / "in", bounded=True), fp.WatermarkStrategy.no_watermarks(), "in").uid(
        "lines"
    )
    read.map(Waits(tmp_path / "go"), str).uid("waits").sink_to(fp.DiscardSink()).uid("out")
    env.launch = Launch(options={"engine": "local"})
    job = prepare(env, "job")
    thread = threading.Thread(target=job.begin())
    thread.start()
    commands = Commands(job.driver)
    while commands.metrics().epochs < 2:
        time.sleep(0.01)
    assert commands.metrics().backlog["lines"] == BacklogMetrics(amount=len("third\nfourth\nfifth\n"), unit="bytes", files=3)
    (tmp_path / "go").touch()
    thread.join()
    assert commands.metrics().backlog["lines"] == BacklogMetrics(amount=0, unit="bytes", files=0)


@pytest.mark.parametrize("keyed", [False, True], ids=["at the source", "behind keys"])
def test_user_metrics_count_each_element_once(tmp_path: Path, keyed: bool) -> None:
    message = metrics_of(tmp_path, keyed=keyed)
    (counter,), (meter,), (sizes,) = user(message, "counter"), user(message, "meter"), user(message, "distribution")
    assert (counter.value, meter.value, sizes.group) == (1000, 2000, "io.in")
    if keyed:
        return
    assert (sizes.value, sizes.sum, sizes.least, sizes.greatest) == (1000, 499_500, 0, 999)
    assert max(gauge.value for gauge in user(message, "gauge")) == 999


def test_after_a_failure_counts_are_since_the_restart(tmp_path: Path) -> None:
    message = metrics_of(tmp_path, fails_at=tmp_path / "failed")
    assert message.restarts == 1
    assert message.operators["numbers"].records_in == 500
    assert [counter.value for counter in user(message, "counter")] == [500]


def test_a_message_survives_json(tmp_path: Path) -> None:
    message = metrics_of(tmp_path)
    assert msgspec.json.decode(msgspec.json.encode(message), type=MetricsMessage) == message

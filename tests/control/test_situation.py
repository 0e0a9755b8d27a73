"""What a real driver knows for its problems."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import forkpoint as fp
from forkpoint.api.execution import Job, prepare
from forkpoint.api.launch import Launch
from forkpoint.driver.observe.problems import Situation, problems, silences
from forkpoint.driver.serve.reports import situation
from forkpoint.runtime.event_time.watermarks import MIN_MS

RULES = fp.MapStateDescriptor("rules", int, int)
LATER_MS = 86_400_000


class Both(fp.KeyedBroadcastProcessFunction):
    def process_element(self, number: int, ctx: Any) -> Any:
        yield number

    def process_broadcast_element(self, rule: int, ctx: Any) -> Any:
        return ()


def source(env: fp.StreamExecutionEnvironment, uid: str, stop: int | None = None) -> fp.DataStream:
    strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda n, _: n)
    return env.from_source(fp.CounterSource(stop, per_epoch=5), strategy, uid).uid(uid)


def job(root: Path, build: Any) -> Job:
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(str(root)).set_parallelism(1).enable_checkpointing(10)
    env.launch = Launch(options={"engine": "local"})
    build(env)
    return prepare(env, "job")


def known(made: Job, passed_ms: int = 0) -> Situation:
    driver = made.driver
    return situation(driver, driver.status(), driver.now_ms() + passed_ms, None)


def test_before_the_start_there_is_nothing_wrong(tmp_path: Path) -> None:
    def build(env: fp.StreamExecutionEnvironment) -> None:
        numbers, rules = source(env, "numbers"), source(env, "rules").map(lambda n: -n, int).uid("negated")
        both = numbers.key_by(lambda n: n % 3, int).connect(rules.broadcast(RULES)).process(Both(), int).uid("both")
        both.union(source(env, "few", 3)).sink_to(fp.DiscardSink()).uid("out")

    now = known(job(tmp_path, build), LATER_MS)
    assert [(each.uid, each.bounded, each.rare, each.read_ms) for each in now.sources] == [
        ("numbers", False, False, None),
        ("rules", False, True, None),
        ("few", True, False, None),
    ]
    assert (now.operators, now.holds, now.since_ms) == ([], {}, None)
    assert (problems(now), silences(now)) == ([], {})


def test_after_a_bounded_job_has_ended_there_is_nothing_wrong(tmp_path: Path) -> None:
    def build(env: fp.StreamExecutionEnvironment) -> None:
        windows = source(env, "numbers", 20).key_by(lambda n: n % 3, int).window(fp.TumblingEventTimeWindows.of(5))
        windows.sum().uid("windows").sink_to(fp.DiscardSink()).uid("out")

    made = job(tmp_path, build)
    made.begin()()
    now = known(made, LATER_MS)
    assert (now.state, now.sources, now.holds) == ("ended", [], {})
    assert [(each.uid, each.origins, each.sources) for each in now.operators] == [("windows", ["numbers"], ["numbers"])]
    assert now.epochs
    assert problems(now) == []


def test_what_holds_watermarks_back_is_known_from_the_first_epoch_on(tmp_path: Path) -> None:
    def build(env: fp.StreamExecutionEnvironment) -> None:
        env.enable_checkpointing(1)
        late = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda n, _: n)
        few = env.from_collection([1, 2, 3], int).uid("few").assign_timestamps_and_watermarks(late).uid("late")
        numbers = source(env, "numbers").union(few)
        numbers.key_by(lambda n: n % 3, int).window(fp.TumblingEventTimeWindows.of(5)).sum().uid("windows").sink_to(
            fp.DiscardSink()
        ).uid("out")

    made = job(tmp_path, build)
    thread = threading.Thread(target=made.begin())
    thread.start()
    try:
        while made.driver.metrics().epochs < 3:
            time.sleep(0.01)
        now = known(made)
    finally:
        made.driver.cancel()
        thread.join()
    assert set(now.holds) == {"numbers"}
    assert now.holds["numbers"].watermark_ms > MIN_MS
    (windows,) = now.operators
    assert (windows.uid, set(windows.origins), set(windows.sources)) == (
        "windows",
        {"numbers", "late"},
        {"numbers", "few"},
    )
    assert now.sources[0].read_ms is not None

"""The machine's clock is set by hours while a job runs: nothing stands still for as long, and time does not go back."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jobs import Crash, StopAfter, clicks, finish, history, job, run

import forkpoint as fp
from forkpoint.api.execution import prepare
from forkpoint.api.launch import Launch
from forkpoint.driver.run.timing import ProcessingClock
from forkpoint.driver.savepoints.schedule import Schedule
from forkpoint.graph.options import SavepointSchedule

HOUR_MS = 3_600_000


class Jumping:
    """The machine's clock, and by how much it is off."""

    def __init__(self) -> None:
        self.off_ms = 0

    def __call__(self) -> int:
        return time.time_ns() // 10**6 + self.off_ms


@given(st.lists(st.integers(-10 * HOUR_MS, 10 * HOUR_MS), max_size=30), st.integers(-HOUR_MS, HOUR_MS))
def test_processing_time_neither_goes_back_nor_stands_still(steps: list[int], start: int) -> None:
    wall = [0]
    clock = ProcessingClock(lambda: wall[0], start)
    before = clock()
    assert before >= max(0, start) - 1
    for step in steps:
        wall[0] += step
        now = clock()
        assert now - before >= max(0, step) * 0.9 - 1
        assert now >= wall[0]
        before = now
    for _ in range(200):  # and in the end it is the machine's
        wall[0] += HOUR_MS * 24
        now = clock()
    assert now == wall[0]


class Ticks(fp.KeyedProcessFunction):
    """A timer every 50 ms of processing time."""

    def process_element(self, value: str, ctx: Any) -> Any:
        ctx.timer_service().register_processing_time_timer(ctx.timer_service().current_processing_time() + 50)
        return ()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield timestamp
        yield from self.process_element("", ctx)


@pytest.mark.parametrize("hours", [-5, 5])
def test_timers_go_on_when_the_clock_is_set(tmp_path: Path, hours: int) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("x\n")
    clock = Jumping()
    began, off = time.monotonic(), hours * HOUR_MS

    class Watches:
        """Sets the clock at the third epoch with output, and ends the job some epochs later."""

        epochs = 0

        def on_step(self, step: str, epoch: int) -> None:
            if step == "published":
                self.epochs += 1
                if self.epochs == 5:
                    clock.off_ms = off
                if self.epochs == 20:
                    prepared.driver.cancel()

    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(str(tmp_path / "state")).set_parallelism(1).enable_checkpointing(20)
    lines = env.from_source(
        fp.FileSource.text(str(tmp_path / "in")),
        fp.WatermarkStrategy.no_watermarks().with_idleness(timedelta(seconds=1)),
        "l",
    )
    ticks = lines.uid("lines").key_by(lambda _: 0, int).process(Ticks(), int).uid("ticks")
    ticks.sink_to(fp.FileSink.text(tmp_path / "out")).uid("out")
    env.launch = Launch(options={"engine": "local"}, steps=Watches())
    prepared = prepare(env, "ticking")
    prepared.driver.now_ms = clock
    assert finish(prepared).outcome == "cancelled"
    found = [int(line) for file in (tmp_path / "out").rglob("part-*") for line in file.read_text().splitlines()]
    assert len(found) == len(set(found)) >= 10
    jumps = [b - a for a, b in zip(sorted(found), sorted(found)[1:], strict=False) if b - a > HOUR_MS]
    assert len(jumps) == (hours > 0)  # time passes five hours at once, or goes on as if nothing were
    assert time.monotonic() - began < HOUR_MS / 1000


def test_a_run_on_a_machine_whose_clock_is_behind_goes_on(tmp_path: Path) -> None:
    """The run before was on one whose clock was five hours ahead. Its splits don't count as idle at once."""
    ahead = Jumping()
    ahead.off_ms = 5 * HOUR_MS
    prepared = job(tmp_path, clicks(30), steps=StopAfter(2))
    prepared.driver.now_ms = ahead
    with pytest.raises(Crash):
        finish(prepared)
    last = history(tmp_path).newest()
    assert last is not None
    run(tmp_path, clicks(30))
    first, newest = history(tmp_path).load(last.epoch + 1), history(tmp_path).newest()
    assert newest is not None
    assert first.kind == "start"
    assert first.processing_time_ms == last.processing_time_ms
    for source in first.sources.values():
        assert all(split.last_active_ms == first.processing_time_ms for split in source.splits.values())
    assert newest.processing_time_ms > first.processing_time_ms  # it does not wait for five hours to pass


def test_scheduled_savepoints_go_on_when_the_clock_is_set_back(tmp_path: Path) -> None:
    run(tmp_path, clicks(10))
    now = [100 * HOUR_MS]
    past = history(tmp_path)
    manifest = past.newest()
    assert manifest is not None
    schedule = Schedule(SavepointSchedule(HOUR_MS), past, manifest.run, None, lambda: now[0])
    schedule._last = (now[0], -1)

    def due(at_ms: int, epoch: int) -> bool:
        now[0] = at_ms
        request = schedule.due(manifest.replace(epoch=epoch))
        if request is not None:
            request.done.set_result("made")
        return request is not None

    assert due(101 * HOUR_MS, 1)
    assert not due(50 * HOUR_MS, 2)  # set back by two days: one interval from here
    assert not due(51 * HOUR_MS - 1, 2)
    assert due(51 * HOUR_MS, 2)
    assert due(500 * HOUR_MS, 3)  # set forward: one is due, not all that might have been
    assert not due(500 * HOUR_MS + 1, 4)

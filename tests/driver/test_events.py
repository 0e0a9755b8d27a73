"""What a run tells while it happens, and the status that follows from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jobs import JOB, Click, clicks, finish, run, sums
from msgspec import structs

import forkpoint as fp
from forkpoint.api.execution import prepare
from forkpoint.api.launch import Launch
from forkpoint.driver.observe.events import (
    AttemptStarted,
    EpochCommitted,
    EpochReached,
    Event,
    Restarting,
    RestoreProgressed,
    RunEnded,
    SavepointEnded,
    SavepointProgressed,
)
from forkpoint.driver.observe.status import Status, after
from forkpoint.graph.options import RestartStrategy
from forkpoint.runtime.exchange.control import CatchUp

ELEMENTS = clicks(22)
PHASES = ("planned", "computed", "written", "committed", "published")


class Heard:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


class Sum(fp.KeyedProcessFunction):
    total = fp.ValueStateDescriptor("total", int)
    fails_at: Path | None = None

    def process_element(self, click: Click, ctx: fp.KeyedProcessFunction.Context) -> Any:
        if self.fails_at is not None and click.ts == 120 and not self.fails_at.exists():
            self.fails_at.touch()
            raise ValueError("once")
        self.total.update((self.total.value() or 0) + click.count)
        yield click.user, self.total.value()


def heard(root: Path, *, fails_at: Path | None = None, savepoint: bool = False, second_stage: bool = False) -> tuple[Heard, Any]:
    listener = Heard()
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(str(root)).set_parallelism(2).set_max_epoch_rows(5)
    env.options = replace(env.options, restart=RestartStrategy.fixed_delay(3, 1))
    fn = Sum()
    fn.fails_at = fails_at
    clicks_in = env.from_collection(ELEMENTS, Click).uid("clicks")
    keyed = clicks_in.key_by(lambda click: click.user)
    sums = keyed.process(fn, fp.Types.ANY()).uid("sums")
    if second_stage:
        sums = sums.rebalance().map(lambda pair: pair, fp.Types.ANY()).uid("behind")
    sums.sink_to(fp.DiscardSink()).uid("sink")
    env.launch = Launch(options={"engine": "local"}, listeners=[listener])
    job = prepare(env, JOB)
    if savepoint:
        job.driver.savepoint(label="asked")
    finish(job)
    return listener, job.driver.status()


def test_each_epoch_goes_through_its_phases_in_order(tmp_path: Path) -> None:
    listener, _ = heard(tmp_path)
    phases: dict[int, list[str]] = {}
    for event in listener.of(EpochReached):
        phases.setdefault(event.epoch, []).append(event.phase)
    committed = [event.epoch for event in listener.of(EpochCommitted)]
    assert [phases[epoch] for epoch in committed] == [list(PHASES)] * len(committed)
    assert committed == sorted(committed)


def test_counts_are_of_one_epoch_and_add_up_in_the_status(tmp_path: Path) -> None:
    listener, status = heard(tmp_path)
    read = [event.records_in.get("clicks", 0) for event in listener.of(EpochCommitted)]
    assert max(read) == 5
    assert sum(read) == len(ELEMENTS) == status.records["clicks"]
    assert sum(event.changes_bytes for event in listener.of(EpochCommitted)) > 0
    assert listener.events[-1] == RunEnded("finished")


def test_subtasks_come_to_their_state_from_memory_until_they_have_to_be_rebuilt(tmp_path: Path) -> None:
    failing, _ = heard(tmp_path, fails_at=tmp_path / "failed")
    attempts = [i for i, event in enumerate(failing.events) if isinstance(event, AttemptStarted)]
    second = [e for e in failing.events[attempts[1] :] if isinstance(e, EpochCommitted)]
    ways = [{c.by for c in event.catch_ups} for event in second]
    assert ways[0] == {"rebuild"}
    assert set().union(*ways[1:]) == {"memory"}


def test_later_stages_reuse_the_store_that_the_first_one_has_brought_up_to_date(tmp_path: Path) -> None:
    one, _ = heard(tmp_path / "one")
    assert [(len(e.catch_ups), e.stores_reused) for e in one.of(EpochCommitted)] == [(2, 0)] * 5
    two, _ = heard(tmp_path / "two", second_stage=True)
    assert [(len(e.catch_ups), e.stores_reused) for e in two.of(EpochCommitted)] == [(2, 2)] * 5


def test_a_restart_is_told_with_its_reason(tmp_path: Path) -> None:
    listener, status = heard(tmp_path, fails_at=tmp_path / "failed")
    (restarting,) = listener.of(Restarting)
    assert (restarting.restarts, status.restarts) == (1, 1)
    assert "once" in restarting.failure
    assert [event.restarts for event in listener.of(AttemptStarted)] == [0, 1]


def test_a_savepoint_tells_when_it_is_complete(tmp_path: Path) -> None:
    listener, status = heard(tmp_path, savepoint=True)
    (ended,) = listener.of(SavepointEnded)
    progress = [(event.done, event.total) for event in listener.of(SavepointProgressed)]
    assert progress[0] == (0, 1)
    assert Path(str(ended.path).removeprefix("file://")).is_dir()
    assert status.savepoint_progress is None


def test_a_savepoint_that_failed_tells_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    listener = Heard()
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(str(tmp_path / "state")).set_parallelism(1)
    env.from_collection(ELEMENTS, Click).uid("in").sink_to(fp.DiscardSink()).uid("sink")
    env.launch = Launch(options={"engine": "local"}, listeners=[listener])
    job = prepare(env, JOB)
    asked = job.driver.savepoint(str(tmp_path / "file" / "below"))
    finish(job)
    failure = str(asked.done.exception(10))
    assert [event.failure for event in listener.of(SavepointEnded)] == [failure]


def test_what_a_listener_raises_ends_the_run(tmp_path: Path) -> None:
    class Refusing:
        def on_step(self, step: str, epoch: int) -> None:
            if step == "written":
                raise AssertionError("no further")

    with pytest.raises(AssertionError, match="no further"):
        run(tmp_path, ELEMENTS, steps=Refusing())
    assert run(tmp_path, ELEMENTS).outcome == "finished"
    assert sum(sums(ELEMENTS).values()) > 0


STATUS = Status("job", "run", 7)


@pytest.mark.parametrize(
    ("event", "changed"),
    [
        (RestoreProgressed(1, 3), {"restored": (1, 3)}),
        (AttemptStarted(4, 1, {"a": 9}), {"state": "running", "epoch": 4, "restarts": 1, "watermarks": {"a": 9}}),
        (EpochReached(5, "committed", 0, 0), {"epoch": 5}),
        (EpochReached(5, "published", 0, 0), {}),
        (Restarting("why", 2, 100), {"state": "restarting", "failure": "why", "restarts": 2}),
        (SavepointProgressed("s", 5, 2, 8), {"savepoint_progress": (2, 8)}),
        (RunEnded("failed", "why"), {"state": "ended", "failure": "why"}),
        (RunEnded("finished"), {"state": "ended"}),
    ],
)
def test_the_status_after_an_event(event: Event, changed: dict[str, Any]) -> None:
    assert after(STATUS, event) == structs.replace(STATUS, **changed)


def test_records_count_from_the_last_start() -> None:
    epoch = EpochCommitted(5, {"a": 2}, {"a": 3, "b": 1}, {"b": 1}, {"a": 40}, 0, 0, [CatchUp(0, "memory", 1, 0)])
    status = after(after(STATUS, epoch), epoch)
    assert (status.records, status.late_records_dropped) == ({"a": 4, "b": 2}, {"b": 2})
    assert after(status, AttemptStarted(5, 1, {})).records == {}

"""A job is rescaled while it runs: what is committed, refused, cleaned up, and what remains if it dies on the way."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from jobs import JOB, Click, Crash, Sum, clicks, history, state_of, sums

import forkpoint as fp
from forkpoint.api.execution import Job, prepare
from forkpoint.api.launch import Launch
from forkpoint.driver.commit import garbage
from forkpoint.driver.lead import handing_over
from forkpoint.driver.observe.events import EpochCommitted, EpochReached, Event, RescaleEnded, Restarting
from forkpoint.driver.run import epochs as driver_epochs
from forkpoint.driver.run.epochs import Trial
from forkpoint.driver.run.requests import RescaleRequest
from forkpoint.driver.scale import autoscaling
from forkpoint.errors import ConfigError, JobFailed, StorageError
from forkpoint.graph.options import Autoscale, CheckpointOptions, RestartStrategy
from forkpoint.local.executor import LocalExecutor
from forkpoint.storage.base import LocalStorage

CLICKS = clicks(200, users=41)  # 40 epochs
TOTALS = sums(CLICKS)


class At:
    """Does things once epochs are published, and lets epochs wait for stores that are being built."""

    def __init__(self, plan: dict[int, Callable[[At], Any]]) -> None:
        self.plan = dict(plan)
        self.job: Job
        self.waits = True
        self.requests: list[RescaleRequest] = []
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)
        current = self.job.driver.parts.rescaling._current
        if isinstance(event, EpochReached) and event.phase == "planned" and current is not None and self.waits:
            current.ready.wait()
        if isinstance(event, EpochReached) and event.phase == "published" and event.epoch in self.plan:
            self.plan.pop(event.epoch)(self)

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def to(parallelism: int) -> Callable[[At], None]:
    return lambda at: at.requests.append(at.job.driver.rescale(parallelism))


def run(
    root: Path,
    plan: dict[int, Callable[[At], Any]],
    *,
    parallelism: int = 2,
    retained: int = 100,
    trial: int | None = None,
    restart: RestartStrategy | None = None,
    rows: int = 5,
    autoscale: Autoscale | None = None,
    pinned: bool = False,
    restore: str | None = None,
    max_parallelism: int = 16,
) -> At:
    """Sum the clicks, five in an epoch, into root/out."""
    at = At(plan)
    env = fp.StreamExecutionEnvironment.get_execution_environment().set_state_root(str(root / "state"))
    env.set_parallelism(parallelism).set_max_epoch_rows(rows)
    env.options = replace(
        env.options,
        checkpoint=CheckpointOptions(interval_ms=1, num_retained=retained),
        restart=restart or RestartStrategy.none(),
        max_parallelism=max_parallelism,
        autoscale=autoscale,
    )
    source = env.from_collection(CLICKS, Click).uid("clicks")
    summed = source.key_by(lambda click: click.user).process(Sum(), tuple[int, int]).uid("sums")
    summed.sink_to(fp.FileSink.json(root / "out")).uid("sink")
    env.launch = Launch(
        options={"engine": "local"},
        listeners=[at],
        trial=None if trial is None else Trial(trial),
        pinned=pinned,
        restore=None if restore is None else fp.RestoreOptions(restore),
    )
    at.job = prepare(env, JOB)
    at.job.begin()()
    return at


def output(root: Path) -> list[tuple[int, int]]:
    rows = [json.loads(line) for file in sorted((root / "out").glob("part-*")) for line in file.read_text().splitlines()]
    return [tuple(row) for row in rows]


def expected() -> Counter[tuple[int, int]]:
    totals: dict[int, int] = {}
    found: Counter[tuple[int, int]] = Counter()
    for click in CLICKS:
        totals[click.user] = totals.get(click.user, 0) + click.count
        found[click.user, totals[click.user]] += 1
    return found


def layouts(root: Path) -> list[int]:
    """The parallelisms that the job has had, one after the other."""
    past = history(root / "state")
    return [parallelism for parallelism, _ in groupby(past.load(epoch).parallelism for epoch in past.epochs())]


def test_it_goes_on_with_prepared_stores(tmp_path: Path) -> None:
    at = run(tmp_path, {5: to(5), 12: to(1), 20: to(3), 28: to(3)})
    assert layouts(tmp_path) == [2, 5, 1, 3]
    assert Counter(output(tmp_path)) == expected()
    assert state_of(tmp_path / "state") == TOTALS
    starts = [m for e in history(tmp_path / "state").epochs() if (m := history(tmp_path / "state").load(e)).kind == "start"]
    assert len({m.run for m in starts}) == len({m.generation for m in starts}) == 1
    assert [(e.parallelism, e.epoch) for e in at.of(RescaleEnded)] == [(m.parallelism, m.epoch) for m in starts[1:]]
    assert [request.done.result() for request in at.requests] == [
        *(m.epoch for m in starts[1:]),
        28,
    ]  # the last is there
    for start in starts[1:]:
        (first,) = [e for e in at.of(EpochCommitted) if e.epoch == start.epoch + 1]
        assert {(c.by, c.epochs <= 4) for c in first.catch_ups} == {("changes", True)}
    assert at.job.driver.parallelism == 3
    assert at.job.driver.status().rescaling_to is None


def test_many_epochs_pass_while_stores_are_built(tmp_path: Path) -> None:
    """Nothing that they need is collected, though one checkpoint is retained and snapshots are frequent."""
    hold, done = threading.Event(), []
    build = LocalExecutor.prepare

    def slow(self: LocalExecutor, spec: Any, epoch: int) -> Any:
        if not done:
            hold.wait()
        done.append(build(self, spec, epoch))
        return done[-1]

    def no_wait(at: At) -> None:
        at.waits = False
        to(3)(at)

    with (
        patch.object(LocalExecutor, "prepare", slow),
        patch.object(driver_epochs, "SNAPSHOT_CHAIN", 3),
        patch.object(garbage, "EVERY_EPOCHS", 2),
        patch.object(handing_over, "CLOSE_SECONDS", 0),
    ):
        run(
            tmp_path,
            {5: no_wait, 25: lambda at: hold.set(), 26: lambda at: _wait_for(lambda: len(done) > 1)},
            retained=1,
        )
    assert [{each.by for each in found} for found in done[:2]] == [{"rebuild"}, {"changes"}]
    assert Counter(output(tmp_path)) == expected()
    assert state_of(tmp_path / "state") == TOTALS
    assert len(history(tmp_path / "state").epochs()) < 10  # and what was pinned has gone


def _wait_for(condition: Callable[[], bool]) -> None:
    while not condition():
        threading.Event().wait(0.01)


@pytest.mark.parametrize(
    ("parallelism", "said"),
    [
        (0, "parallelism 0; it must be at least 1"),
        (17, "parallelism 17 is above its max parallelism of 16.*--max-parallelism"),
    ],
)
def test_impossible_parallelisms_are_refused(tmp_path: Path, parallelism: int, said: str) -> None:
    at = run(tmp_path, {5: to(parallelism)})
    with pytest.raises(ConfigError, match=said):
        at.requests[0].done.result()
    assert layouts(tmp_path) == [2]


def test_one_at_a_time(tmp_path: Path) -> None:
    def twice(at: At) -> None:
        to(3)(at)
        to(4)(at)

    at = run(tmp_path, {5: twice})
    assert at.requests[0].done.result() > 5
    with pytest.raises(ConfigError, match="is being rescaled to parallelism 3; wait until that is done"):
        at.requests[1].done.result()
    assert layouts(tmp_path) == [2, 3]


def test_a_trial_comes_first(tmp_path: Path) -> None:
    at = run(tmp_path, {3: to(3), 12: to(3)}, trial=6)
    with pytest.raises(ConfigError, match="is on trial; it can be rescaled once that is over"):
        at.requests[0].done.result()
    assert at.requests[1].done.result() > 12
    assert Counter(output(tmp_path)) == expected()


def test_a_job_that_ends_first_stays_as_it_is(tmp_path: Path) -> None:
    at = run(tmp_path, {40: to(3), 41: to(4)})
    for request in at.requests:
        with pytest.raises(JobFailed, match=r"has (ended|finished)"):
            request.done.result()
    assert layouts(tmp_path) == [2]


def test_a_savepoint_in_progress_is_completed_first(tmp_path: Path) -> None:
    made: list[Any] = []

    def both(at: At) -> None:
        to(3)(at)
        made.append(at.job.driver.savepoint())

    at = run(tmp_path, {5: both})
    assert Path(made[0].done.result().removeprefix("file://")).is_dir()
    assert at.requests[0].done.result() > 5


def test_stores_that_cannot_be_built_leave_the_job_alone(tmp_path: Path) -> None:
    def fails(*_: Any) -> Any:
        raise StorageError("the disk is full")

    with patch.object(LocalExecutor, "prepare", fails):
        at = run(tmp_path, {5: to(3)})
    with pytest.raises(StorageError, match="the disk is full"):
        at.requests[0].done.result()
    assert [event.failure for event in at.of(RescaleEnded)] == ["the disk is full"]
    assert at.of(Restarting) == []
    assert layouts(tmp_path) == [2]
    assert Counter(output(tmp_path)) == expected()


# -- whoever dies, wherever


@contextmanager
def broken_at(step: int, error: BaseException, *, after: bool) -> Iterator[list[str]]:
    """The n-th operation of the main thread on storage, from the moment that stores are prepared, fails, before or after it
    took effect. Yields the operations."""
    seen: list[str] = []
    main = threading.main_thread()

    def breaking(name: str) -> Any:
        operate = getattr(LocalStorage, name)

        def call(self: LocalStorage, path: str, *args: Any, **options: Any) -> Any:
            armed = threading.current_thread() is main and _prepared.is_set()
            if armed:
                seen.append(f"{name} {path}")
            if armed and len(seen) == step and not after:
                raise error
            result = operate(self, path, *args, **options)
            if armed and len(seen) == step:
                raise error
            return result

        return patch.object(LocalStorage, name, call)

    with breaking("create"), breaking("put"), breaking("read"), breaking("list"):
        yield seen
    _prepared.clear()


_prepared = threading.Event()


def armed(at: At) -> None:
    to(3)(at)
    at.plan[4] = lambda _: _prepared.set()  # it was prepared before epoch 4 ran


FEW = 25  # rows of an epoch


def steps_of_a_switch(root: Path) -> int:
    """How many operations there are from there to the end of the first epoch of the new layout."""
    with broken_at(0, Crash(), after=False) as seen:
        run(root, {3: armed}, rows=FEW)
    return 2 + next(i for i, operation in enumerate(seen) if operation.endswith("000000000006.json"))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_the_driver_dies_at_each_step(tmp_path: Path, after: bool) -> None:
    """And the next one starts at the one parallelism or the other."""
    begun_at = set()
    for step in range(1, steps_of_a_switch(tmp_path / "straight") + 1):
        root = tmp_path / str(step)
        with broken_at(step, Crash(), after=after), pytest.raises(Crash):
            run(root, {3: armed}, rows=FEW)
        begun_at.add(layouts(root)[-1])
        run(root, {}, parallelism=2 + step % 2, rows=FEW, pinned=True)
        assert Counter(output(root)) == expected()
        assert state_of(root / "state") == TOTALS
    assert begun_at == ({3} if after else {2, 3})  # the first operation is the commit of the switch


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_an_attempt_fails_at_each_step(tmp_path: Path, after: bool) -> None:
    """The same run goes on, and is rescaled nevertheless."""
    for step in range(1, steps_of_a_switch(tmp_path / "straight") + 1):
        root = tmp_path / str(step)
        with broken_at(step, StorageError("the network is down"), after=after):
            at = run(root, {3: armed}, restart=RestartStrategy.fixed_delay(3, 1), rows=FEW)
        assert len(at.of(Restarting)) <= 1
        assert Counter(output(root)) == expected()
        assert state_of(root / "state") == TOTALS
        assert at.requests[0].done.result() > 3
        assert layouts(root) == [2, 3]


def test_a_busy_job_rescales_itself(tmp_path: Path) -> None:
    """Epochs follow one another without a pause, so it is always busy."""
    with (
        patch.object(autoscaling, "SAMPLE_MS", 1),
        patch.object(autoscaling, "COOL_DOWN_MS", 1),
        patch.object(autoscaling, "UP_AFTER_MS", 5),
        patch.object(autoscaling, "HIGH_BUSY_BEHIND", 0.01),
        patch.object(autoscaling, "HIGH_BUSY", 0.01),
        patch.object(autoscaling, "LOW_BUSY", 0),
    ):
        at = run(tmp_path, {}, autoscale=Autoscale(1, 4))
    assert layouts(tmp_path)[-1] > 2
    assert at.of(RescaleEnded)[0].failure is None
    assert max(layouts(tmp_path)) <= 4
    assert Counter(output(tmp_path)) == expected()
    assert state_of(tmp_path / "state") == TOTALS


# -- the runs after it


def crash(at: At) -> None:
    raise Crash


def starts(root: Path) -> list[tuple[int, bool]]:
    """The parallelism of each run's first manifest, and whether that is what the job was rescaled to."""
    past = history(root / "state")
    found = {m.run: m for e in reversed(past.epochs()) if (m := past.load(e)).kind == "start"}
    return [(m.parallelism, m.rescaled) for m in reversed(found.values())]


def test_the_next_runs_keep_the_parallelism(tmp_path: Path) -> None:
    for plan in ({5: to(4), 10: crash}, {14: crash}, {18: to(3), 24: crash}):
        with pytest.raises(Crash):
            run(tmp_path, plan)
    run(tmp_path, {})
    assert starts(tmp_path) == [(2, False), (4, True), (4, True), (3, True)]
    assert Counter(output(tmp_path)) == expected()
    assert state_of(tmp_path / "state") == TOTALS


def test_a_savepoint_is_restored_at_the_parallelism_that_the_job_was_rescaled_to(tmp_path: Path) -> None:
    stopped: list[Any] = []
    run(tmp_path, {5: to(4), 12: lambda at: stopped.append(at.job.driver.savepoint(stop=True))})
    run(tmp_path, {}, restore=stopped[0].done.result())
    assert starts(tmp_path) == [(2, False), (4, True)]
    assert Counter(output(tmp_path)) == expected()


def test_a_pinned_run_and_one_from_scratch_begin_as_given(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        run(tmp_path, {5: to(4), 10: crash})
    with pytest.raises(Crash):
        run(tmp_path, {16: crash}, parallelism=3, pinned=True)
    with pytest.raises(Crash):
        run(tmp_path, {20: to(5), 25: crash})
    run(tmp_path, {}, parallelism=1, restore="none")
    assert starts(tmp_path) == [(2, False), (3, False), (2, False), (1, False)]


def test_the_bounds_of_autoscaling_and_the_max_parallelism_hold(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        run(tmp_path, {5: to(8), 10: crash})
    with pytest.raises(Crash):
        run(tmp_path, {16: crash}, autoscale=Autoscale(2, 6))
    run(tmp_path, {}, max_parallelism=4)
    assert starts(tmp_path) == [(2, False), (6, True), (4, True)]
    assert Counter(output(tmp_path)) == expected()

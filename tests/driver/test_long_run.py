"""Many epochs: snapshots end the chains of changes, garbage goes, and what is retained can always be restored."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jobs import JOB, Click, Crash, StopAfter, clicks, finish, history, job, run, saved_state, state_of, sums

import forkpoint as fp
from forkpoint.checkpoint.gc import needed_files, plan_gc
from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.manifest import Manifest
from forkpoint.driver.commit import garbage
from forkpoint.driver.run import epochs as driver_epochs
from forkpoint.errors import UserFunctionError
from forkpoint.graph.options import RestartStrategy
from patience import PATIENCE_S
from threadless import AtOnce

ELEMENTS = clicks(600)  # 5 an epoch: 120 epochs


@pytest.fixture(autouse=True)
def short_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_epochs, "SNAPSHOT_CHAIN", 8)
    monkeypatch.setattr(garbage, "EVERY_EPOCHS", 5)
    monkeypatch.setattr(garbage, "ThreadPoolExecutor", AtOnce)


def manifests(past: History) -> dict[int, Manifest]:
    return {epoch: past.load(epoch) for epoch in past.epochs()}


def assert_whole(root: Path) -> dict[int, Manifest]:
    """Promise 5: no retained checkpoint refers to a file that is gone, and what is garbage is found."""
    past = history(root)
    known = manifests(past)
    newest = max(known)
    files = set(past.storage.list(past.paths.directory))
    assert needed_files(known[newest], known) <= files
    plan = plan_gc(JOB, known.values(), files, num_retained=1)
    assert not needed_files(known[newest], known) & set(plan.paths)
    return known


def test_chains_stay_short_and_storage_small(tmp_path: Path) -> None:
    run(tmp_path, ELEMENTS[:300])
    known = assert_whole(tmp_path)
    newest = known[max(known)]
    assert newest.epoch > 60
    assert len(newest.snapshots) == 2
    assert all(newest.epoch - ref.epoch <= 10 for ref in newest.snapshots)
    assert len(known) <= 8 + 5 + 2
    files = history(tmp_path).storage.list(f"jobs/{JOB}")
    assert len([path for path in files if "/snapshots/" in path]) <= 6
    assert state_of(tmp_path) == sums(ELEMENTS[:300])


def test_every_retained_checkpoint_has_its_state(tmp_path: Path) -> None:
    run(tmp_path, ELEMENTS[:300], retained=4)
    known = assert_whole(tmp_path)
    last = sorted(known)[-4:]
    for epoch in last:
        read = sum(s.count for p in known[epoch].sources.values() for s in p.splits.values())
        assert state_of(tmp_path, epoch) == sums(ELEMENTS[:read])


@pytest.mark.parametrize(("parallelism", "store"), [(2, "lmdb"), (3, "lmdb"), (5, "dict"), (1, "rocksdb")])
def test_restart_after_garbage_has_gone(tmp_path: Path, parallelism: int, store: Any) -> None:
    """Also at another parallelism: a subtask that has no snapshot of its own takes its key groups from others'."""
    with pytest.raises(Crash):
        run(tmp_path, ELEMENTS[:300], steps=StopAfter(33))
    assert 1 not in history(tmp_path).epochs()
    result = run(tmp_path, ELEMENTS[:300], parallelism=parallelism, change=lambda o: replace(o, state_backend=store))
    assert result.outcome == "finished"
    assert_whole(tmp_path)
    assert state_of(tmp_path) == sums(ELEMENTS[:300])


def test_many_rescalings(tmp_path: Path) -> None:
    for parallelism in (2, 3, 1, 4, 2, 7):
        with pytest.raises(Crash):
            run(tmp_path, ELEMENTS[:360], parallelism=parallelism, steps=StopAfter(11))
    run(tmp_path, ELEMENTS[:360], parallelism=3)
    assert_whole(tmp_path)
    assert state_of(tmp_path) == sums(ELEMENTS[:360])


def test_a_job_that_is_often_restarted_takes_snapshots_too(tmp_path: Path) -> None:
    for _ in range(8):
        with pytest.raises(Crash):
            run(tmp_path, ELEMENTS[:150], steps=StopAfter(3))
    known = assert_whole(tmp_path)
    assert known[max(known)].snapshots
    assert len(known) <= 20
    run(tmp_path, ELEMENTS[:150])
    assert state_of(tmp_path) == sums(ELEMENTS[:150])


def test_a_finished_job_runs_anew_only_when_told_to_and_without_the_old_state(tmp_path: Path) -> None:
    for part in (ELEMENTS[:100], ELEMENTS[:230], ELEMENTS[:7]):
        assert run(tmp_path, part, savepoint="none").outcome == "finished"
        assert state_of(tmp_path) == sums(part)
        epochs = history(tmp_path).epochs()
        assert run(tmp_path, part).outcome == "finished"
        assert history(tmp_path).epochs() == epochs
    assert_whole(tmp_path)


def test_beginning_anew_on_purpose_leaves_the_old_state_behind(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        run(tmp_path, ELEMENTS, steps=StopAfter(13))
    assert run(tmp_path, ELEMENTS[:50], savepoint="none").outcome == "finished"
    assert state_of(tmp_path) == sums(ELEMENTS[:50])


class SlowlySavepoints:
    """Asks for a savepoint at some epochs; each one's export waits until garbage has been collected twice since."""

    def __init__(self) -> None:
        self.driver: Any = None
        self.requests: list[tuple[int, Any]] = []
        self.epoch = 0

    def on_step(self, step: str, epoch: int) -> None:
        if step == "planned":
            self.epoch = epoch
            if epoch % 15 == 5:
                # It is taken up before the next epoch, of which this one is then the committed one.
                self.requests.append((epoch, self.driver.savepoint()))


def test_savepoints_of_epochs_that_garbage_collection_has_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = SlowlySavepoints()
    prepared = job(tmp_path, ELEMENTS[:300], steps=steps)
    driver = steps.driver = prepared.driver
    collected: list[int] = []
    export = driver.parts.savepoints._export

    def slow_export(request: Any, manifest: Manifest, *others: Any) -> str:
        until, twice = manifest.epoch + 12, len(collected) + 2
        while (steps.epoch < until or len(collected) < twice) and driver.status().state == "running":
            time.sleep(0.001)
        return str(export(request, manifest, *others))

    collect = driver.history.collect_garbage

    def counted(run: str, num_retained: int, pinned: Collection[int], since: Collection[int], *rest: Any) -> None:
        collected.append(driver.status().epoch)
        collect(run, num_retained, pinned, since, *rest)

    monkeypatch.setattr(driver.parts.savepoints, "_export", slow_export)
    monkeypatch.setattr(History, "collect_garbage", lambda history, *given: counted(*given))
    finish(prepared)
    assert len(collected) > 3
    assert len(steps.requests) == 4
    for epoch, request in steps.requests:
        path = Path(request.done.result(PATIENCE_S).removeprefix("file://"))
        read = (epoch - 1) * 5  # the run's first manifest has no elements
        assert saved_state(path) == sums(ELEMENTS[:read]), epoch
    assert not driver.parts.savepoints.pinned()
    assert_whole(tmp_path)
    assert state_of(tmp_path) == sums(ELEMENTS[:300])


class FailsAt(fp.KeyedProcessFunction):
    """Raises at one of the elements, the first time it comes to it in this process."""

    total = fp.ValueStateDescriptor("total", int)
    failed: set[int] = set()  # noqa: RUF012  shared by all copies on purpose

    def __init__(self, when: set[int]) -> None:
        self.when = when

    def process_element(self, click: Click, ctx: fp.KeyedProcessFunction.Context) -> Any:
        from test_long_run import FailsAt  # the copy that a worker holds is of the same class

        if click.ts in self.when - FailsAt.failed:
            FailsAt.failed.add(click.ts)
            raise ValueError(f"no {click.ts}")
        self.total.update((self.total.value() or 0) + click.count)
        yield click


def test_failures_and_restarts_within_a_run(tmp_path: Path) -> None:
    FailsAt.failed.clear()
    when = {0, 370, 380, 2990}
    strategy = RestartStrategy.fixed_delay(4, 1)
    result = run(tmp_path, ELEMENTS[:320], fn=FailsAt(when), change=lambda o: replace(o, restart=strategy))
    assert result.outcome == "finished"
    assert FailsAt.failed == when
    assert state_of(tmp_path) == sums(ELEMENTS[:320])


def test_the_strategys_end_is_the_jobs(tmp_path: Path) -> None:
    FailsAt.failed.clear()
    strategy = RestartStrategy.fixed_delay(2, 1)
    with pytest.raises(UserFunctionError, match="no 380"):
        run(tmp_path, ELEMENTS[:150], fn=FailsAt({0, 370, 380}), change=lambda o: replace(o, restart=strategy))
    assert run(tmp_path, ELEMENTS[:150], fn=FailsAt(set())).outcome == "finished"
    assert state_of(tmp_path) == sums(ELEMENTS[:150])


def test_a_restart_waits_for_its_delay_whatever_else_is_asked(tmp_path: Path) -> None:
    FailsAt.failed.clear()
    strategy = RestartStrategy.fixed_delay(1, 300)
    prepared = job(tmp_path, ELEMENTS[:20], fn=FailsAt({0}), change=lambda o: replace(o, restart=strategy))
    began = time.monotonic()
    asked: list[Any] = []
    asking = threading.Timer(0.1, lambda: asked.append(prepared.driver.savepoint()))
    asking.start()
    finish(prepared)
    assert time.monotonic() - began >= 0.3
    assert asked[0].done.result(PATIENCE_S)


class DrainFails(fp.KeyedProcessFunction):
    """Its timers, far in the future, only fire when the job is drained."""

    def process_element(self, click: Click, ctx: fp.KeyedProcessFunction.Context) -> Any:
        ctx.timer_service().register_event_time_timer(10**12)
        yield click

    def on_timer(self, timestamp: int, ctx: fp.KeyedProcessFunction.OnTimerContext) -> Any:
        raise ValueError("no end of time")


def test_a_drain_that_fails_says_so_to_whoever_asked(tmp_path: Path) -> None:
    directory = tmp_path / "in"
    directory.mkdir()
    (directory / "a.json").write_text('{"user": 1, "count": 1, "ts": 1}\n')
    source = fp.FileSource.json(directory, Click)
    prepared = job(tmp_path / "state", source=source, fn=DrainFails())
    request = prepared.driver.savepoint(stop=True, drain=True)
    with pytest.raises(UserFunctionError, match="no end of time"):
        finish(prepared)
    with pytest.raises(UserFunctionError, match="no end of time"):
        request.done.result(PATIENCE_S)

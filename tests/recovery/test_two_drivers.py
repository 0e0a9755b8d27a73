"""Promise 4: two drivers of a job never both commit; the older one ends and publishes nothing more."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from program import JOB, STEPS, Plan, build
from runs import (
    KILLED,
    Outcome,
    errors,
    finish,
    history,
    logs,
    outcome,
    run_forked,
    start,
    wait_until_halted,
    write_input,
)

from example_counts import examples
from forkpoint.api.execution import prepare
from forkpoint.api.launch import Launch
from forkpoint.driver.start.restorer import Restored
from forkpoint.driver.start.starter import Overtaken
from forkpoint.errors import StaleGeneration
from patience import PATIENCE_S


@pytest.mark.slow
@pytest.mark.parametrize(("step", "times"), [("element", 7), ("element", 47), *((step, 2) for step in STEPS)])
def test_a_driver_that_was_away_finds_itself_replaced(place: Path, undisturbed: Outcome, step: str, times: int) -> None:
    """Old one halted, new one runs to the end, old one goes on."""
    plan = Plan(str(place))
    old = start(replace(plan, halt=(step, times)))
    wait_until_halted(old)
    assert run_forked(plan) == 0, logs(place)
    assert outcome(place) == undisturbed
    epochs = history(place).epochs()
    os.kill(old.pid, signal.SIGCONT)
    assert finish(old) == 3
    (error,) = errors(place)
    assert error.startswith("forkpoint.errors.StaleGeneration: job 'totals': "), error
    assert "this run" in error
    assert "has been replaced and ends" in error
    assert history(place).epochs() == epochs
    assert outcome(place) == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize(("step", "times"), [("started", 1), ("element", 7), ("element", 47), *((step, 2) for step in STEPS)])
def test_a_driver_that_was_away_until_its_fence_was_collected(place: Path, undisturbed: Outcome, step: str, times: int) -> None:
    """The names of its next epochs would be free again, but for that of the run that came next."""
    plan = Plan(str(place), forgetful=True, rows=5)
    old = start(replace(plan, halt=(step, times)))
    wait_until_halted(old)
    left = history(place).epochs()[-1]
    assert run_forked(plan) == 0, logs(place)
    assert outcome(place) == undisturbed
    epochs = history(place).epochs()
    assert min(epochs) > left + 2
    os.kill(old.pid, signal.SIGCONT)
    assert finish(old) == 3
    (error,) = errors(place)
    assert error.startswith("forkpoint.errors.StaleGeneration: job 'totals': "), error
    assert history(place).epochs() == epochs
    assert outcome(place) == undisturbed


@pytest.mark.parametrize("step", [pytest.param("started", marks=pytest.mark.slow), "computed"])
def test_an_old_driver_that_wakes_up_leaves_what_the_new_one_staged(place: Path, undisturbed: Outcome, step: str) -> None:
    """The old one sleeps before it has cleaned up; the new one has staged an epoch and not yet published it."""
    plan = Plan(str(place))
    old = start(replace(plan, halt=(step, 1)))
    wait_until_halted(old)
    new = start(replace(plan, halt=("written", 2)))
    wait_until_halted(new)
    staged = set((place / "output").glob(".*.g2.*.inprogress"))
    assert staged
    os.kill(old.pid, signal.SIGCONT)
    assert finish(old) == 3
    assert "StaleGeneration" in errors(place)[0]
    assert staged <= set((place / "output").glob(".*.inprogress"))
    os.kill(new.pid, signal.SIGCONT)
    assert finish(new) == 0, logs(place)
    assert outcome(place) == undisturbed
    assert not list((place / "output").rglob(".*.g2.*"))


@pytest.mark.parametrize("step", [pytest.param("computed", marks=pytest.mark.slow), "committed"])
def test_an_old_driver_goes_on_while_the_new_one_is_at_work(place: Path, undisturbed: Outcome, step: str) -> None:
    plan = Plan(str(place))
    old = start(replace(plan, halt=(step, 2)))
    wait_until_halted(old)
    new = start(replace(plan, halt=("computed", 2)))
    wait_until_halted(new)
    os.kill(old.pid, signal.SIGCONT)
    assert finish(old) == 3
    assert "StaleGeneration" in errors(place)[0]
    os.kill(new.pid, signal.SIGCONT)
    assert finish(new) == 0, logs(place)
    assert outcome(place) == undisturbed


@pytest.mark.parametrize("halt", [("computed", 2), ("stopping", 1)])
def test_an_old_driver_that_stops_with_a_savepoint_does_not_either(place: Path, stopped: Outcome, halt: tuple[str, int]) -> None:
    """Nor does one that has read everything stop: the job, which goes on elsewhere, would be said to have ended."""
    plan = Plan(str(place), stop_after=100)
    old = start(replace(plan, halt=halt))
    wait_until_halted(old)
    assert run_forked(plan) == 0, logs(place)
    os.kill(old.pid, signal.SIGCONT)
    assert finish(old) == 3
    # The run ends with the first; the thread that asks it to stop may be late, and is told the second.
    assert any(said in errors(place)[0] for said in ("StaleGeneration", "has ended"))
    assert outcome(place) == stopped


def test_leftovers_of_a_replaced_driver_go_at_the_next_start(place: Path, undisturbed: Outcome) -> None:
    plan = Plan(str(place))
    old = start(replace(plan, halt=("element", 30)))
    wait_until_halted(old)
    assert run_forked(replace(plan, kill=("published", 3))) == KILLED
    os.kill(old.pid, signal.SIGCONT)
    assert finish(old) == 3
    assert list((place / "output").glob(".*.inprogress"))  # staged after the new run had cleaned up
    assert run_forked(plan) == 0, logs(place)
    assert not list((place / "output").rglob(".*"))
    assert outcome(place) == undisturbed


# -- any interleaving, in one process


@dataclass
class Turns:
    """Lets one of several threads run at a time, each from one of its steps to the next."""

    semaphores: list[threading.Semaphore]
    paused: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    over: set[int] = field(default_factory=set)

    def pause(self, me: int) -> None:
        self.paused.release()
        self.semaphores[me].acquire()

    def end(self, me: int) -> None:
        self.over.add(me)
        self.paused.release()

    def give(self, whom: int) -> None:
        if whom not in self.over:
            self.semaphores[whom].release()
            assert self.paused.acquire(timeout=PATIENCE_S), "a driver hangs"


@dataclass
class Racer:
    """A driver on a thread that waits for its turn at each step."""

    me: int
    turns: Turns
    commits: list[tuple[str, int]]
    ended: BaseException | None = None
    run_id: str = ""

    def on_step(self, step: str, epoch: int) -> None:
        if step == "committed":
            self.commits.append((self.run_id, epoch))
        self.turns.pause(self.me)

    def run(self, plan: Plan) -> None:
        try:
            env = build(plan)
            env.launch = Launch(options={"engine": "local"}, steps=self)
            job = prepare(env, JOB)
            self.run_id = job.driver.run_id
            self.turns.pause(self.me)
            job.driver.starter.restore = self._restoring(job.driver.starter.restore)  # type: ignore[method-assign]
            job.driver.run()
        except BaseException as error:
            self.ended = error
        finally:
            self.turns.end(self.me)

    def _restoring(self, restore: Callable[[Any], Restored]) -> Callable[[Any], Restored]:
        def restored(newest: Any) -> Restored:
            base = restore(newest)
            self.turns.pause(self.me)  # between reading the newest checkpoint and the run's first manifest
            return base

        return restored


@examples(6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.lists(st.integers(0, 1), max_size=60))
def test_of_two_racing_drivers_never_both_commit_an_epoch(undisturbed: Outcome, order: list[int]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        write_input(Path(directory))
        plan = Plan(directory)
        turns = Turns([threading.Semaphore(0) for _ in range(2)])
        commits: list[tuple[str, int]] = []
        racers = [Racer(me, turns, commits) for me in range(2)]
        threads = [threading.Thread(target=racer.run, args=(plan,)) for racer in racers]
        for thread in threads:
            thread.start()
            assert turns.paused.acquire(timeout=PATIENCE_S)
        for whom in order:
            turns.give(whom)
        while len(turns.over) < 2:
            for whom in (0, 1):
                turns.give(whom)
        for thread in threads:
            thread.join()
        for racer in racers:
            assert racer.ended is None or isinstance(racer.ended, StaleGeneration | Overtaken), racer.ended
        epochs = [epoch for _, epoch in commits]
        assert sorted(set(epochs)) == sorted(epochs)
        past = history(Path(directory))
        manifests = [past.load(epoch) for epoch in past.epochs()]
        assert set(commits) <= {(manifest.run, manifest.epoch) for manifest in manifests}
        _one_run_after_another([manifest.run for manifest in manifests], [m.generation for m in manifests])
        if not any(racer.ended is None for racer in racers):
            assert run_here_to_the_end(plan)
        assert outcome(Path(directory)) == undisturbed


def _one_run_after_another(runs: list[str], generations: list[int]) -> None:
    """A run that has been replaced commits nothing any more."""
    firsts = list(dict.fromkeys(runs))
    assert runs == [run for first in firsts for run in runs if run == first]
    assert generations == sorted(generations)
    assert len(set(generations)) == len(firsts)


def run_here_to_the_end(plan: Plan) -> bool:
    env = build(plan)
    env.launch = Launch(options={"engine": "local"})
    return bool(env.execute(JOB))


def test_both_of_two_drivers_that_start_at_the_same_moment_need_not_fail(place: Path) -> None:
    """Both have seen no checkpoint; one begins the job, the other is told so."""
    turns = Turns([threading.Semaphore(0) for _ in range(2)])
    racers = [Racer(me, turns, []) for me in range(2)]
    for racer in racers:
        threading.Thread(target=racer.run, args=(Plan(str(place)),), daemon=True).start()
        assert turns.paused.acquire(timeout=PATIENCE_S)
    order: list[Any] = [0, 1, 0, 1]
    while len(turns.over) < 2:
        turns.give(order.pop(0) if order else 0)
    assert racers[0].ended is None
    assert isinstance(racers[1].ended, StaleGeneration)
    assert "started at the same moment and has committed epoch" in str(racers[1].ended)

"""Promise 1 on the local engine: a driver that is killed anywhere in the commit order leaves nothing lost or doubled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from program import STEPS, Plan
from runs import KILLED, Outcome, history, logs, outcome, read_savepoint, run_forked

from forkpoint.checkpoint.manifest import RUN

EPOCHS = (1, 3, 5)  # of 5 with 20 elements each; with the last one the input ends
SHOWN = {("planned", 3), ("computed", 1), ("written", 3), ("committed", 5), ("published", 3)}  # others are slow


def test_without_failure_there_is_something_to_lose(undisturbed: Outcome, stopped: Outcome) -> None:
    assert sum(count for count, _ in undisturbed.totals.values()) == 100
    assert sum(undisturbed.lines.values()) > 120
    assert not undisturbed.timers
    assert stopped.timers
    assert stopped.totals == undisturbed.totals
    assert sum(stopped.lines.values()) == sum(undisturbed.lines.values()) - len(stopped.timers)


@pytest.mark.parametrize(
    ("step", "epoch"),
    [pytest.param(step, epoch, marks=[] if (step, epoch) in SHOWN else pytest.mark.slow) for step in STEPS for epoch in EPOCHS],
)
def test_killed_at_a_step(place: Path, undisturbed: Outcome, step: str, epoch: int) -> None:
    plan = Plan(str(place))
    assert run_forked(replace(plan, kill=(step, epoch))) == KILLED, logs(place)
    assert run_forked(plan) == 0, logs(place)
    assert outcome(place) == undisturbed
    assert not list((place / "output").rglob(".*"))


def test_killed_while_snapshots_are_made_beside_the_epochs(place: Path, undisturbed: Outcome) -> None:
    """Each start goes on from the snapshots that the one before has named, and finds the others in its way."""
    plan = Plan(str(place), beside=True, rows=10, forgetful=True)
    for step, times in (("merging", 1), ("merged", 2), ("committed", 2)):
        assert run_forked(replace(plan, kill=(step, times))) == KILLED, logs(place)
    newest = history(place).newest()
    assert newest is not None
    assert newest.snapshots
    assert run_forked(plan) == 0, logs(place)
    assert outcome(place) == undisturbed


@pytest.mark.parametrize("step", [pytest.param("computed", marks=pytest.mark.slow), "committed"])
def test_killed_in_every_epoch(place: Path, undisturbed: Outcome, step: str) -> None:
    """A start after each kill; "computed" gets nowhere until it is left alone, "committed" one epoch further each time."""
    plan = Plan(str(place))
    for _ in range(4):
        assert run_forked(replace(plan, kill=(step, 1))) == KILLED, logs(place)
    assert run_forked(plan) == 0, logs(place)
    assert outcome(place) == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize("epoch", [1, 3, 5])
def test_killed_again_before_the_next_run_has_published(place: Path, undisturbed: Outcome, epoch: int) -> None:
    """What was committed and not published is not forgotten over a run, or two, that did not get to it either."""
    plan = Plan(str(place))
    assert run_forked(replace(plan, kill=("committed", epoch))) == KILLED, logs(place)
    for _ in range(2):
        assert run_forked(replace(plan, kill=("started", 1))) == KILLED, logs(place)
    assert run_forked(plan) == 0, logs(place)
    assert outcome(place) == undisturbed


@pytest.mark.parametrize("parallelism", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_killed_and_started_with_another_parallelism(place: Path, undisturbed: Outcome, parallelism: int) -> None:
    plan = Plan(str(place))
    assert run_forked(replace(plan, kill=("committed", 3))) == KILLED, logs(place)
    assert run_forked(replace(plan, parallelism=parallelism)) == 0, logs(place)
    assert outcome(place) == undisturbed


@pytest.mark.parametrize("step", [pytest.param("computed", marks=pytest.mark.slow), "committed"])
def test_killed_with_pending_timers_then_stopped_and_restored(
    place: Path, stopped: Outcome, undisturbed: Outcome, step: str
) -> None:
    plan = Plan(str(place), stop_after=100)
    assert run_forked(replace(plan, kill=(step, 3))) == KILLED, logs(place)
    assert run_forked(plan) == 0, logs(place)
    assert outcome(place) == stopped
    savepoint = Path(place, "savepoint").read_text().removeprefix("file://")
    assert read_savepoint(Path(savepoint)) == (stopped.totals, stopped.timers)
    # From the savepoint the rest of the timers fires, and the whole is that of an undisturbed run.
    assert run_forked(Plan(str(place), savepoint=savepoint)) == 0, logs(place)
    assert outcome(place) == undisturbed


def test_a_job_that_finished_runs_again_only_when_told_to_and_then_from_nothing(place: Path, undisturbed: Outcome) -> None:
    plan = Plan(str(place))
    for _ in range(2):
        assert run_forked(plan) == 0, logs(place)
        assert outcome(place) == undisturbed
    assert run_forked(replace(plan, savepoint="none")) == 0, logs(place)
    twice = outcome(place)
    assert twice.totals == undisturbed.totals
    assert twice.lines == undisturbed.lines + undisturbed.lines


def test_what_is_staged_is_hidden_until_it_is_committed(place: Path) -> None:
    assert run_forked(replace(Plan(str(place)), kill=("computed", 1))) == KILLED, logs(place)
    names = [path.name for path in (place / "output").iterdir()]
    assert names
    assert all(name.startswith(".") and name.endswith(".inprogress") for name in names)


def test_the_record_of_a_killed_run_has_no_end(place: Path) -> None:
    assert run_forked(replace(Plan(str(place)), kill=("written", 2))) == KILLED, logs(place)
    past = history(place)
    runs = [RUN.load(past.storage, path) for path in past.storage.list(past.paths.runs) if path.endswith("run.json")]
    assert [(run.outcome, run.ended_ms) for run in runs] == [(None, None)]
    assert run_forked(Plan(str(place))) == 0
    paths = [path for path in past.storage.list(past.paths.runs) if path.endswith("run.json")]
    assert sorted(str(RUN.load(past.storage, path).outcome) for path in paths) == ["None", "finished"]

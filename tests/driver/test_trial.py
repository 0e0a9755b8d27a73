"""The first epochs of a new version: its output is withheld until they have gone well, whatever happens meanwhile."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from jobs import JOB, Click, Crash, StopAfter, Sum, clicks, history

import forkpoint as fp
from forkpoint.api.launch import Launch
from forkpoint.contract.source import SplitEnumerator
from forkpoint.driver.commit.publisher import Republisher
from forkpoint.driver.commit.trial import IDLE_MS, Trial, TrialProgress
from forkpoint.driver.start.recovery import go_back
from forkpoint.errors import JobFailed, UserFunctionError
from forkpoint.graph.options import CheckpointOptions, RestartStrategy, RestoreOptions
from forkpoint.testing import ManualClock

CLICKS = clicks(100)


class FailsAfter(Sum):
    """Fails with the n-th element that it sees. It is shipped, so the count is the class's."""

    seen = 0

    def __init__(self, elements: int) -> None:
        self.elements = elements

    def process_element(self, click: Click, ctx: Any) -> Any:
        FailsAfter.seen += 1
        if FailsAfter.seen > self.elements:
            raise ValueError("too many")
        yield from super().process_element(click, ctx)


def run(
    root: Path,
    *,
    fn: Any = None,
    savepoint: str | None = None,
    trial: int | None = None,
    steps: Any = None,
    on_driver: Any = None,
) -> str | None:
    """Sum the clicks, five in an epoch, into root/out; the savepoint with which it stopped, if it did."""
    FailsAfter.seen = 0
    env = fp.StreamExecutionEnvironment.get_execution_environment().set_state_root(str(root / "state"))
    env.set_parallelism(2).set_max_epoch_rows(5).set_restart_strategy(RestartStrategy.fixed_delay(3, 1))
    env.options = replace(env.options, checkpoint=CheckpointOptions(interval_ms=1))
    source = env.from_collection(CLICKS, Click).uid("clicks")
    summed = source.key_by(lambda click: click.user).process(fn or Sum(), tuple[int, int]).uid("sums")
    summed.sink_to(fp.FileSink.json(root / "out")).uid("sink")
    on_trial = None if trial is None else Trial(trial)
    started = Launch(
        options={"engine": "local"}, restore=RestoreOptions(savepoint), trial=on_trial, steps=steps, on_driver=on_driver
    )
    env.launch = started
    return env.execute(JOB).savepoint


def test_sources_are_told_only_positions_that_stay(tmp_path: Path) -> None:
    """A system must still have what the epoch before the trial needs, for the way back."""

    def told(trial: int | None) -> list[Any]:
        positions: list[Any] = []
        with patch.object(SplitEnumerator, "committed", lambda _, position: positions.append(position)):
            run(tmp_path / str(trial), trial=trial)
        return positions

    everything = told(None)
    assert told(4) == everything[3:]


class Stop(StopAfter):
    """Stops the run with a savepoint when some epochs have been published."""

    def on_driver(self, driver: Any) -> Any:
        self.driver = driver
        return lambda _: None

    def on_step(self, step: str, epoch: int) -> None:
        try:
            super().on_step(step, epoch)
        except Crash:
            self.driver.savepoint(stop=True)


def stopped(root: Path, epochs: int) -> str:
    stop = Stop(epochs)
    path = run(root, steps=stop, on_driver=stop.on_driver)
    assert path is not None
    return path


def written(root: Path) -> Counter[tuple[int, int]]:
    lines = [line for file in (root / "out").glob("*.jsonl") for line in file.read_text().splitlines()]
    return Counter(tuple(json.loads(line)) for line in lines)


def expected(number: int) -> Counter[tuple[int, int]]:
    totals: dict[int, int] = {}
    found: Counter[tuple[int, int]] = Counter()
    for click in CLICKS[:number]:
        totals[click.user] = totals.get(click.user, 0) + click.count
        found[click.user, totals[click.user]] += 1
    return found


def hidden(root: Path) -> list[Path]:
    return list((root / "out").glob(".*"))


@pytest.mark.parametrize("survives", [0, 4, 5, 12, 14])
def test_a_trial_that_fails_is_as_if_it_had_never_been(tmp_path: Path, survives: int) -> None:
    savepoint = stopped(tmp_path, 4)
    before = written(tmp_path)
    assert before == expected(20)
    with pytest.raises(UserFunctionError, match="too many"):
        run(tmp_path, fn=FailsAfter(survives), savepoint=savepoint, trial=3)
    assert written(tmp_path) == before
    newest = history(tmp_path / "state").newest()
    assert newest is not None
    assert newest.withheld == (survives >= 5)  # it is not started again, although there is a restart strategy
    run(tmp_path, savepoint=savepoint)
    assert written(tmp_path) == expected(100)
    assert not hidden(tmp_path)


@pytest.mark.parametrize("epochs", [1, 3, 1000])
def test_a_trial_that_goes_well_has_all_its_output(tmp_path: Path, epochs: int) -> None:
    savepoint = stopped(tmp_path, 4)
    shown: list[int] = []

    class Watch:
        def on_step(self, step: str, epoch: int) -> None:
            if step == "published":
                shown.append(written(tmp_path).total())

    run(tmp_path, savepoint=savepoint, trial=epochs, steps=Watch())  # one that outlasts the input ends with it
    withheld = min(epochs, 16) - 1
    assert shown[:withheld] == [20] * withheld
    assert shown[withheld : withheld + 1] == [min(100, 20 + 5 * epochs)]
    assert written(tmp_path) == expected(100)
    assert not hidden(tmp_path)


def test_failures_after_the_trial_are_the_restart_strategys(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    savepoint = stopped(tmp_path, 4)
    with pytest.raises(UserFunctionError, match="too many"):
        run(tmp_path, fn=FailsAfter(27), savepoint=savepoint, trial=3)
    newest = history(tmp_path / "state").newest()
    assert newest is not None
    assert not newest.withheld
    assert caplog.text.count("; restart ") == 3
    assert written(tmp_path) == expected(20 + 25)


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("again", [True, False])
def test_killed_on_trial(tmp_path: Path, on: bool, again: bool) -> None:
    """Going on from the checkpoint accepts what was withheld, going back to the savepoint drops it; also if the run
    that does so is killed before it has done anything else."""
    savepoint = stopped(tmp_path, 4)
    with pytest.raises(Crash):
        run(tmp_path, savepoint=savepoint, trial=1000, steps=StopAfter(3))
    assert written(tmp_path) == expected(20)
    if again:

        class Killed(BaseException):
            pass

        class AtOnce:
            def on_step(self, step: str, epoch: int) -> None:
                raise Killed

        with pytest.raises(Killed):
            run(tmp_path, savepoint=None if on else savepoint, steps=AtOnce())
    run(tmp_path, savepoint=None if on or again else savepoint)
    assert written(tmp_path) == expected(100)
    assert not hidden(tmp_path)


def test_only_what_was_withheld_is_undone(tmp_path: Path) -> None:
    """What is published may not be made again: an upgrade's way back ends with its trial."""
    with pytest.raises(Crash):
        run(tmp_path, steps=StopAfter(4))
    past = history(tmp_path / "state")
    before = past.newest()
    assert before is not None
    with pytest.raises(Crash):
        run(tmp_path, steps=StopAfter(3), trial=100)
    withheld = past.newest()
    assert withheld is not None
    assert withheld.withheld
    go_back(past, withheld.run, before.epoch, "it failed")
    with pytest.raises(Crash):
        run(tmp_path, steps=StopAfter(4), trial=2)
    published = past.newest()
    assert published is not None
    with pytest.raises(JobFailed, match=f"run {published.run} is not rolled back because its output has been published"):
        go_back(past, published.run, before.epoch, "it failed")


def test_what_was_withheld_is_accepted_by_the_first_run_that_goes_on_from_it(tmp_path: Path) -> None:
    """It may be killed while it publishes; the next one completes that, whatever it starts from itself."""
    savepoint = stopped(tmp_path, 4)
    with pytest.raises(Crash):
        run(tmp_path, savepoint=savepoint, trial=1000, steps=StopAfter(3))
    assert written(tmp_path) == expected(20)

    class Killed(BaseException):
        pass

    def killed(*_: Any) -> None:
        raise Killed

    with pytest.raises(Killed), patch.object(Republisher, "repeat", killed):
        run(tmp_path)  # its first manifest accepts it
    with pytest.raises(Crash):
        run(tmp_path, savepoint=savepoint, steps=StopAfter(1))
    assert written(tmp_path) == expected(35) + expected(25) - expected(20)
    assert not hidden(tmp_path)


def test_a_trial_ends_with_its_epochs_or_when_nothing_comes_in() -> None:
    clock = ManualClock(0)
    course = TrialProgress(Trial(3), clock())
    assert course.withholds(clock(), last=False)
    course.committed(True, clock())
    clock.advance(IDLE_MS - 1)
    assert course.withholds(clock(), last=False)
    assert not course.withholds(clock(), last=True)
    assert course.ends_at_ms() == IDLE_MS
    clock.advance(1)
    assert not course.withholds(clock(), last=False)
    course.committed(False, clock())
    assert not course.active
    assert course.ends_at_ms() is None
    assert not TrialProgress(None, 0).active

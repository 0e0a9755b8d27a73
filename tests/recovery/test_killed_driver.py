"""Promise 1 on the local engine: a driver that is killed anywhere in the commit order leaves nothing lost or doubled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from program import STEPS, Plan
from runs import KILLED, Outcome, history, logs, outcome, run_forked

EPOCHS = (1, 2, 4, 5)  # of 5 with 20 elements each; with the last one the input ends


def test_without_failure_there_is_something_to_lose(undisturbed: Outcome, stopped: Outcome) -> None:
    assert sum(count for count, _ in undisturbed.totals.values()) == 100
    assert sum(undisturbed.lines.values()) > 120
    assert not undisturbed.timers
    assert stopped.timers
    assert stopped.totals == undisturbed.totals
    assert sum(stopped.lines.values()) == sum(undisturbed.lines.values()) - len(stopped.timers)


@pytest.mark.parametrize("epoch", EPOCHS)
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_a_step(place: Path, undisturbed: Outcome, step: str, epoch: int) -> None:
    plan = Plan(str(place))
    code = run_forked(replace(plan, kill=(step, epoch)))
    assert code == KILLED, logs(place)
    assert run_forked(plan) == 0, logs(place)
    assert outcome(place) == undisturbed

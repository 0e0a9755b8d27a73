"""A newer run that starts while an older one goes on committing, as from another machine."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import Any

import pytest
from jobs import Crash, StopAfter, clicks, history, job, run, state_of, sums

from forkpoint.checkpoint.manifest import Manifest
from forkpoint.driver.start import starter
from forkpoint.errors import StaleGeneration

ELEMENTS = clicks(60)


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    with pytest.raises(Crash):
        run(tmp_path, ELEMENTS, steps=StopAfter(4))
    return tmp_path


def racing(driver: Any, times: int, generation: int = 0) -> Any:
    """Restores as usual; so many times another run commits an empty epoch meanwhile, of so many generations more."""
    restored, left = driver.starter.restore, [times]

    def restore(newest: Manifest | None) -> Any:
        base = restored(newest)
        if left[0]:
            left[0] -= 1
            assert newest is not None
            other = {"epoch": newest.epoch + 1, "kind": "epoch", "changes": [], "sinks": {}}
            driver.history.commit(newest.replace(**other, generation=newest.generation + generation), after=newest.epoch)
        return base

    driver.starter.restore = restore
    return driver


def test_a_newer_run_tries_again(crashed: Path) -> None:
    driver = job(crashed, ELEMENTS).driver
    assert racing(driver, 3).run().outcome == "finished"
    assert state_of(crashed) == sums(ELEMENTS)


def test_it_says_who_is_in_the_way(crashed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starter, "START_PAUSE_SECONDS", 0.0)
    older = history(crashed).newest()
    assert older is not None
    driver = job(crashed, ELEMENTS).driver
    with pytest.raises(StaleGeneration) as raised:
        racing(driver, 1000).run()
    said = str(raised.value)
    where = re.escape(f"process {os.getpid()} on machine {socket.gethostname()!r}, started ")
    assert re.search(rf"run {older.run!r} \(generation 1, {where}\d{{4}}-.* UTC\) is older, still runs, and has committed", said)
    assert f"this newer run, run {driver.run_id!r} (generation 2)" in said
    assert "cancel the older one where it runs" in said
    assert "replaced" not in said


def test_of_two_that_start_at_once_one_says_so(crashed: Path) -> None:
    driver = job(crashed, ELEMENTS).driver
    with pytest.raises(StaleGeneration, match="started at the same moment and has committed epoch 6 first"):
        racing(driver, 1, generation=1).run()


def test_a_run_behind_a_newer_one_does_not_try_again(crashed: Path) -> None:
    driver = job(crashed, ELEMENTS).driver
    with pytest.raises(StaleGeneration, match=r"is newer and has committed epoch 6; this run, .* has been replaced and ends"):
        racing(driver, 1, generation=2).run()

"""A program that has lost a state goes on from a checkpoint if that state has no entries, as it does from a savepoint."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from jobs import Click, Crash, StopAfter, Sum, clicks, finish, job, run, state_of, sums

import forkpoint as fp
from forkpoint.errors import RestoreRefused
from forkpoint.state_processor import diff

ELEMENTS = clicks(60)


class Unused(Sum):
    unused = fp.ValueStateDescriptor("unused", int)


class Used(Sum):
    used = fp.ValueStateDescriptor("used", int)

    def process_element(self, click: Click, ctx: fp.KeyedProcessFunction.Context) -> Any:
        self.used.update(1)
        yield from super().process_element(click, ctx)


def crash(root: Path, fn: fp.KeyedProcessFunction) -> None:
    with pytest.raises(Crash):
        run(root, ELEMENTS, fn=fn, steps=StopAfter(4))


def test_a_state_that_was_never_used(tmp_path: Path) -> None:
    crash(tmp_path, Unused())
    assert run(tmp_path, ELEMENTS).outcome == "finished"
    assert state_of(tmp_path) == sums(ELEMENTS)


def test_a_state_that_was_used(tmp_path: Path) -> None:
    crash(tmp_path, Used())
    with pytest.raises(RestoreRefused, match=r"used.*no longer has this state"):
        run(tmp_path, ELEMENTS)
    assert run(tmp_path, ELEMENTS, allow_non_restored=True).outcome == "finished"
    assert state_of(tmp_path) == sums(ELEMENTS)


class Expiring(fp.KeyedProcessFunction):
    last = fp.ValueStateDescriptor("last", int)
    last.enable_time_to_live(fp.StateTtlConfig.new_builder(timedelta(hours=1)).build())

    def process_element(self, click: Click, ctx: fp.KeyedProcessFunction.Context) -> Any:
        self.last.update(click.count)
        yield click


def test_stamps_alone_are_no_difference_between_two_versions(tmp_path: Path) -> None:
    """Which run one after the other."""
    saved = []
    for name in ("a", "b"):
        prepared = job(tmp_path / name, ELEMENTS, fn=Expiring())
        request = prepared.driver.savepoint(stop=True, drain=True)
        finish(prepared)
        saved.append(request.done.result(10))
        time.sleep(0.01)
    assert {each.name: each.outcome for each in diff(*saved).states}["last"] == "changed"
    assert {each.name: each.outcome for each in diff(*saved, stamps=False).states}["last"] == "same"

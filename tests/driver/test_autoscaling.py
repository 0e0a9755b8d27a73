"""How a job chooses its parallelism."""

from __future__ import annotations

from collections.abc import Sequence

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkpoint.api.configuration import apply_configuration
from forkpoint.cli.commands.run import run as run_command
from forkpoint.driver.observe.events import AttemptStarted, EpochReached
from forkpoint.driver.scale import autoscaling
from forkpoint.driver.scale.autoscaling import (
    COOL_DOWN_MS,
    DOWN_AFTER_MS,
    SAMPLE_MS,
    UP_AFTER_MS,
    Autoscaler,
    Load,
    Pressure,
    decide,
)
from forkpoint.errors import ConfigError
from forkpoint.graph.options import Autoscale, JobOptions
from forkpoint.operations import RunRequest

BOUNDS = Autoscale(2, 16)


def decisions(loads: Sequence[Load], parallelism: int, calm_ms: int = 0) -> list[tuple[int, int]]:
    """When (ms) the parallelism is changed, and to what, with a load each sample's time that it does not change."""
    found, pressure = [], Pressure()
    for number, load in enumerate(loads):
        now_ms = number * SAMPLE_MS
        made = decide(load, pressure, parallelism, BOUNDS, now_ms, calm_ms)
        pressure = made.pressure
        if made.parallelism is not None:
            found.append((now_ms, made.parallelism))
            parallelism, calm_ms = made.parallelism, now_ms + COOL_DOWN_MS
    return found


@pytest.mark.parametrize(
    ("load", "parallelism", "after_ms", "wanted"),
    [
        (Load(1.0, True), 4, UP_AFTER_MS, 7),
        (Load(0.9, False), 4, UP_AFTER_MS, 6),
        (Load(0.61, True), 4, UP_AFTER_MS, 5),  # at least one more
        (Load(1.0, True), 12, UP_AFTER_MS, 16),  # the maximum
        (Load(0.25, False), 8, DOWN_AFTER_MS, 4),
        (Load(0.0, False), 8, DOWN_AFTER_MS, 4),  # half at most
        (Load(0.0, False), 3, DOWN_AFTER_MS, 2),  # the minimum
        (Load(0.3, False), 16, DOWN_AFTER_MS, 8),
    ],
)
def test_a_load_that_lasts(load: Load, parallelism: int, after_ms: int, wanted: int) -> None:
    loads = [load] * (after_ms // SAMPLE_MS + 1)
    assert decisions(loads, parallelism) == [(after_ms, wanted)]
    assert decisions(loads[:-1], parallelism) == []


@pytest.mark.parametrize("load", [Load(0.5, True), Load(0.8, False), Load(0.1, True), Load(0.31, False)])
def test_between_the_thresholds_nothing_happens(load: Load) -> None:
    assert decisions([load] * 500, 4) == []


def test_a_pause_in_the_load_begins_anew() -> None:
    most = UP_AFTER_MS // SAMPLE_MS
    loads = [*[Load(1.0, True)] * most, Load(0.5, False), *[Load(1.0, True)] * most]
    assert decisions(loads, 4) == []


def test_nothing_is_decided_while_it_cools_down() -> None:
    first, second = decisions([Load(1.0, True)] * 60, 2)[:2]
    assert first == (UP_AFTER_MS, 4)
    assert second == (UP_AFTER_MS + COOL_DOWN_MS + UP_AFTER_MS, 7)


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=400), st.integers(2, 16))
def test_it_stays_within_the_bounds_and_does_not_hurry(loads: list[tuple[float, bool]], parallelism: int) -> None:
    found = decisions([Load(*each) for each in loads], parallelism)
    before_ms = -COOL_DOWN_MS
    for now_ms, wanted in found:
        assert BOUNDS.minimum <= wanted <= BOUNDS.maximum
        assert wanted != parallelism
        assert parallelism / 2 <= wanted <= parallelism * 2
        assert now_ms >= before_ms + COOL_DOWN_MS + UP_AFTER_MS
        before_ms, parallelism = now_ms, wanted


@given(st.floats(0.05, 12), st.integers(2, 16))
def test_under_a_steady_load_it_comes_to_rest(work: float, parallelism: int) -> None:
    """``work``: busy subtasks. It never goes back and forth."""
    directions = []
    pressure, calm_ms = Pressure(), 0
    for number in range(2000):
        busy = min(1.0, work / parallelism)
        made = decide(Load(busy, busy == 1.0), pressure, parallelism, BOUNDS, number * SAMPLE_MS, calm_ms)
        pressure = made.pressure
        if made.parallelism is not None:
            directions.append(made.parallelism > parallelism)
            parallelism, calm_ms = made.parallelism, number * SAMPLE_MS + COOL_DOWN_MS
    assert len(set(directions)) <= 1, directions
    assert number * SAMPLE_MS - calm_ms > 3600_000


def test_busy_is_the_share_of_time_between_plan_and_publication(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Load] = []

    def noted(load: Load, *rest: object) -> object:
        seen.append(load)
        return decide(load, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(autoscaling, "decide", noted)
    scaler = Autoscaler(BOUNDS)
    scaler.on_event(AttemptStarted(0, 0, {}))
    for second in range(13):
        scaler.on_event(EpochReached(second, "planned", second * 1000, second * 1000))
        scaler.on_event(EpochReached(second, "published", second * 1000 + 700, second * 1000))
        assert scaler.wanted(4, full=second > 6, now_ms=second * 1000 + 700) is None
    assert [(round(load.busy, 2), load.behind) for load in seen] == [(0.7, False), (0.7, True)]


@pytest.mark.parametrize(("low", "high"), [(0, 3), (4, 3), (2, 129)])
def test_impossible_bounds_are_refused(low: int, high: int) -> None:
    with pytest.raises(ConfigError, match=r"autoscaling"):
        JobOptions(autoscale=Autoscale(low, high))
    assert JobOptions(autoscale={"minimum": 2, "maximum": 3}).autoscale == Autoscale(2, 3)  # type: ignore[arg-type]


def test_the_bounds_come_from_options_as_from_the_command_line() -> None:
    given = {"job.autoscaler.vertex.min-parallelism": 2, "job.autoscaler.vertex.max-parallelism": "8"}
    assert apply_configuration(JobOptions(), given).autoscale == Autoscale(2, 8)
    with pytest.raises(ConfigError, match=r"set job\.autoscaler\.vertex\.max-parallelism too"):
        apply_configuration(JobOptions(), {"job.autoscaler.vertex.min-parallelism": 2})
    request = RunRequest("app.py", autoscale=Autoscale(2, 8))
    assert request.overrides["autoscale"] == {"minimum": 2, "maximum": 8}
    context = run_command.make_context("run", ["--autoscale", "2:8", __file__])
    assert context.params["autoscale"] == Autoscale(2, 8)
    assert [part for part in request.command_line if part in ("--autoscale", "2:8")] == ["--autoscale", "2:8"]
    for wrong in ("8", "8:2", "0:2", "a:b"):
        with pytest.raises(click.BadParameter):
            run_command.make_context("run", ["--autoscale", wrong, __file__])

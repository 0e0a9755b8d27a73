"""Chooses the parallelism of a running job from the share of time in which epochs run and from waiting input.

Decisions are pure. Only a lasting load changes the parallelism, so that a burst does not move state. After a start or change, no
decision is made for a while, so that catching up does not count as load.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from forkpoint.driver.observe.events import AttemptStarted, EpochReached, Event
from forkpoint.graph.options import Autoscale

TARGET_BUSY = 0.6  # busy share at which a new parallelism aims
HIGH_BUSY = 0.85
HIGH_BUSY_BEHIND = 0.6  # with input waiting
LOW_BUSY = 0.3  # half the parallelism would then be at the target
UP_AFTER_MS = 30_000
DOWN_AFTER_MS = 300_000
COOL_DOWN_MS = 60_000
SAMPLE_MS = 5_000


@dataclass(frozen=True)
class Load:
    """The load over a few seconds. ``busy``: the share of time in which an epoch ran. ``behind``: most epochs were full, so input
    is waiting."""

    busy: float
    behind: bool


@dataclass(frozen=True)
class Pressure:
    """High (1) or low (-1) load since a time (ms) without a break, with its mean; 0 if it is neither."""

    direction: int = 0
    since_ms: int = 0
    busy: float = 0.0
    samples: int = 0


@dataclass(frozen=True)
class Decision:
    """``parallelism``: the new one, None to stay. ``pressure``: for the next decision."""

    parallelism: int | None
    pressure: Pressure


def decide(load: Load, pressure: Pressure, parallelism: int, bounds: Autoscale, now_ms: int, calm_until_ms: int) -> Decision:
    """The reaction to a load; none before ``calm_until_ms``."""
    direction = 0
    if load.busy >= (HIGH_BUSY_BEHIND if load.behind else HIGH_BUSY):
        direction = 1
    elif load.busy <= LOW_BUSY and not load.behind:
        direction = -1
    if direction == 0 or now_ms < calm_until_ms:
        return Decision(None, Pressure())
    if direction != pressure.direction:
        pressure = Pressure(direction, now_ms)
    samples = pressure.samples + 1
    pressure = replace(pressure, samples=samples, busy=pressure.busy + (load.busy - pressure.busy) / samples)
    if now_ms - pressure.since_ms < (UP_AFTER_MS if direction > 0 else DOWN_AFTER_MS):
        return Decision(None, pressure)
    wanted = bounds.clamp(_wanted(parallelism, pressure))
    return Decision(None, pressure) if wanted == parallelism else Decision(wanted, Pressure())


def _wanted(parallelism: int, pressure: Pressure) -> int:
    """The parallelism at which the load would be on target: at most double or half of the current one, and at least one step
    away."""
    fair = math.ceil(parallelism * pressure.busy / TARGET_BUSY)
    if pressure.direction > 0:
        return min(max(fair, parallelism + 1), 2 * parallelism)
    return max(min(fair, parallelism - 1), math.ceil(parallelism / 2))


class Autoscaler:
    """Observes a run's events and makes a decision every ``SAMPLE_MS``. For the driver's thread."""

    def __init__(self, bounds: Autoscale) -> None:
        self._bounds = bounds
        self._pressure = Pressure()
        self._calm_until_ms: int | None = None
        self._sample_ms = self._busy_ms = 0
        self._epochs = self._full = 0
        self._began_ms: int | None = None

    def on_event(self, event: Event) -> None:
        match event:
            case AttemptStarted():
                self._calm_until_ms, self._pressure, self._began_ms = None, Pressure(), None
            case EpochReached(_, "planned", at_ms):
                self._began_ms = at_ms
            case EpochReached(_, "published", at_ms) if self._began_ms is not None:
                self._busy_ms += at_ms - self._began_ms
                self._began_ms = None

    def wanted(self, parallelism: int, *, full: bool, now_ms: int) -> int | None:
        """The parallelism to change to, if any. Call it after each step of the driver's loop. ``full``: the step's epoch has read
        as many elements as an epoch may."""
        if self._calm_until_ms is None:
            self._calm_until_ms = now_ms + COOL_DOWN_MS
            self._begin_sample(now_ms)
        self._epochs, self._full = self._epochs + 1, self._full + full
        passed_ms = now_ms - self._sample_ms
        if passed_ms < SAMPLE_MS:
            return None
        load = Load(min(1.0, self._busy_ms / passed_ms), 2 * self._full > self._epochs)
        self._begin_sample(now_ms)
        made = decide(load, self._pressure, parallelism, self._bounds, now_ms, self._calm_until_ms)
        self._pressure = made.pressure
        if made.parallelism is not None:
            self._calm_until_ms = now_ms + COOL_DOWN_MS  # even if the rescaling fails
        return made.parallelism

    def _begin_sample(self, now_ms: int) -> None:
        self._sample_ms, self._busy_ms, self._epochs, self._full = now_ms, 0, 0, 0

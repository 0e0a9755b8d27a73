"""The failures of one run, its restarts, and outages of the systems that it needs."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from forkpoint.driver.observe.events import Restarting
from forkpoint.errors import (
    AccessDenied,
    ConfigError,
    EngineLost,
    GraphError,
    InputLost,
    OutputLost,
    RestoreRefused,
    SavepointCorrupt,
    StaleGeneration,
    StorageUnavailable,
    SystemUnavailable,
    Unavailable,
)
from forkpoint.graph.options import RestartStrategy

log = logging.getLogger("forkpoint")

_BUGS = (AssertionError, AttributeError, ImportError, NameError, TypeError)  # user code raises UserFunctionError
FATAL = (StaleGeneration, OutputLost, InputLost, RestoreRefused, SavepointCorrupt, GraphError, ConfigError, EngineLost, *_BUGS)
"""Errors that a restart cannot cure."""


@dataclass(frozen=True)
class Failures:
    """The failures so far: the times (ms) of those that count as attempts, the last delay, and the time of the last failure."""

    times_ms: tuple[int, ...] = ()
    delay_ms: int = 0
    last_ms: int | None = None


def next_delay_ms(
    strategy: RestartStrategy, failures: Failures, error: BaseException, now_ms: int, rng: random.Random, *, proven: bool = True
) -> tuple[int | None, Failures]:
    """The delay before the next attempt (None: give up), and the failures including this one.

    An outage of storage or another system uses up no attempts, because giving up would not cure it. ``proven``: the run has
    committed an epoch. Before that, denied access to storage is a configuration error, not worth a retry, and an unreachable
    system may be one.
    """
    if isinstance(error, FATAL) or not isinstance(error, Exception) or strategy.kind == "none":
        return None, failures
    if isinstance(error, AccessDenied) and not proven:
        return None, failures
    if strategy.kind == "exponential-delay" and (
        failures.last_ms is not None and now_ms - failures.last_ms >= strategy.reset_after_ms
    ):
        failures = Failures()
    times = failures.times_ms
    if not isinstance(error, Unavailable) or (isinstance(error, SystemUnavailable) and not proven):
        times = (*times, now_ms)
        if strategy.kind == "failure-rate":
            times = tuple(t for t in times if now_ms - t < strategy.interval_ms)
        if strategy.attempts is not None and len(times) > strategy.attempts:
            return None, Failures(times)
    if strategy.kind != "exponential-delay":
        return strategy.delay_ms, Failures(times)
    grown = strategy.delay_ms if not failures.delay_ms else int(failures.delay_ms * strategy.multiplier)
    delay = min(grown, strategy.max_delay_ms)
    jittered = int(delay * (1 + rng.uniform(-strategy.jitter, strategy.jitter)))
    return jittered, Failures(times, delay, now_ms)


@dataclass(frozen=True)
class Outage:
    """Storage, or another system, has been unavailable ``since_ms``, and no epoch after ``epoch`` has been committed since."""

    since_ms: int
    epoch: int

    def explain(self, error: BaseException) -> str:
        since = datetime.fromtimestamp(self.since_ms / 1000, UTC)
        system = "storage" if isinstance(error, StorageUnavailable) else "a system that it needs"
        return f"paused because {system} has been unavailable since {since:%Y-%m-%d %H:%M:%S} UTC: {error}"


@dataclass
class FailureRecord:
    """``restarts``: how often the run has been restarted; all attempts within one outage count as one."""

    job: str
    strategy: RestartStrategy
    now_ms: Callable[[], int]
    restarts: int = 0
    outage: Outage | None = None
    _failures: Failures = field(default_factory=Failures)
    _rng: random.Random = field(default_factory=random.Random)

    def after(self, error: BaseException, epoch: int, *, proven: bool) -> Restarting | None:
        """The next restart; None to give up. ``epoch``: the last committed one. ``proven``: see `next_delay_ms`."""
        monotonic_ms = time.monotonic_ns() // 10**6  # nobody sets this clock
        delay_ms, self._failures = next_delay_ms(self.strategy, self._failures, error, monotonic_ms, self._rng, proven=proven)
        before = self.outage
        if not isinstance(error, Unavailable):
            self.outage = None
        elif before is None or before.epoch != epoch:
            self.outage = Outage(self.now_ms(), epoch)
        if delay_ms is None:
            return None
        if before is None or before is not self.outage:
            self.restarts += 1
        failure = str(error) if self.outage is None else self.outage.explain(error)
        return Restarting(failure, self.restarts, delay_ms)

    def committed(self) -> None:
        """An epoch was committed, which ends an outage."""
        if self.outage is not None:
            passed_s = max(0, self.now_ms() - self.outage.since_ms) / 1000
            log.info("job %r continues after an outage of %.0f s", self.job, passed_s)
            self.outage = None

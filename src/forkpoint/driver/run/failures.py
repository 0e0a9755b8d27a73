"""The failures of one run: whether and when it restarts after each, and since when it has been waiting for something."""

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
    """The failures so far: the times (ms) of those that count, the last delay, and the time of the last failure."""

    times_ms: tuple[int, ...] = ()
    delay_ms: int = 0
    last_ms: int | None = None


def next_delay_ms(
    strategy: RestartStrategy, failures: Failures, error: BaseException, now_ms: int, rng: random.Random, *, proven: bool = True
) -> tuple[int | None, Failures]:
    """The delay before the next attempt (None: give up), and the failures including this one.

    Storage, or another system, that does not work uses up no attempts: it cannot be cured by giving up. ``proven``: the run has
    committed an epoch. Before that, denied access to storage is a configuration error, not worth a retry, and a system that can't
    be reached may be one.
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
    """Storage, or another system, has failed ``since_ms``, and nothing has been committed after ``epoch`` in the meantime."""

    since_ms: int
    epoch: int

    def explain(self, error: BaseException) -> str:
        since = datetime.fromtimestamp(self.since_ms / 1000, UTC)
        what = "storage" if isinstance(error, StorageUnavailable) else "a system that it needs"
        return f"paused, as {what} has not worked since {since:%Y-%m-%d %H:%M:%S} UTC: {error}"


def outage_after(before: Outage | None, error: BaseException, epoch: int, now_ms: int) -> Outage | None:
    """The outage that an error belongs to, if it is one. ``epoch``: the last committed one."""
    if not isinstance(error, Unavailable):
        return None
    return before if before is not None and before.epoch == epoch else Outage(now_ms, epoch)


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
        """The next restart; None if there is none. ``epoch``: the last committed one. ``proven``: see `next_delay_ms`."""
        monotonic_ms = time.monotonic_ns() // 10**6  # nobody sets this clock
        delay_ms, self._failures = next_delay_ms(self.strategy, self._failures, error, monotonic_ms, self._rng, proven=proven)
        before, self.outage = self.outage, outage_after(self.outage, error, epoch, self.now_ms())
        if delay_ms is None:
            return None
        if before is None or before is not self.outage:
            self.restarts += 1
        failure = str(error) if self.outage is None else self.outage.explain(error)
        return Restarting(failure, self.restarts, delay_ms)

    def committed(self) -> None:
        """An epoch was committed, so everything works."""
        if self.outage is not None:
            passed_s = max(0, self.now_ms() - self.outage.since_ms) / 1000
            log.info("job %r goes on: what it needs works again, after %.0f s", self.job, passed_s)
            self.outage = None

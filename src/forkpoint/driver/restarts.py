"""Whether and when a failed run restarts. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from forkpoint.errors import (
    AccessDenied,
    ConfigError,
    EngineLost,
    GraphError,
    OutputLost,
    RestoreRefused,
    SavepointCorrupt,
    StaleGeneration,
)
from forkpoint.graph.options import RestartStrategy

_BUGS = (AssertionError, AttributeError, ImportError, NameError, TypeError)  # user code raises UserFunctionError
FATAL = (StaleGeneration, OutputLost, RestoreRefused, SavepointCorrupt, GraphError, ConfigError, EngineLost, *_BUGS)
"""Errors that a restart cannot cure."""


@dataclass(frozen=True)
class Failures:
    """The failures so far: their times (ms) and the last delay."""

    times_ms: tuple[int, ...] = ()
    delay_ms: int = 0


def next_delay_ms(
    strategy: RestartStrategy, failures: Failures, error: BaseException, now_ms: int, rng: random.Random, *,
    proven: bool = True,
) -> tuple[int | None, Failures]:  # fmt: skip
    """The delay before the next attempt (None: give up), and the failures including this one.

    ``proven``: the run has committed an epoch. Before that, denied access to storage is a configuration error, not worth a
    retry.
    """
    if isinstance(error, FATAL) or not isinstance(error, Exception) or strategy.kind == "none":
        return None, failures
    if isinstance(error, AccessDenied) and not proven:
        return None, failures
    times = (*failures.times_ms, now_ms)
    match strategy.kind:
        case "failure-rate":
            times = tuple(t for t in times if now_ms - t < strategy.interval_ms)
            limit = strategy.attempts or 0
            return (None if len(times) > limit else strategy.delay_ms), Failures(times)
        case "fixed-delay":
            given_up = strategy.attempts is not None and len(times) > strategy.attempts
            return (None if given_up else strategy.delay_ms), Failures(times)
    if failures.times_ms and now_ms - failures.times_ms[-1] >= strategy.reset_after_ms:
        failures, times = Failures(), (now_ms,)
    if strategy.attempts is not None and len(times) > strategy.attempts:
        return None, Failures(times)
    grown = strategy.delay_ms if not failures.delay_ms else int(failures.delay_ms * strategy.multiplier)
    delay = min(grown, strategy.max_delay_ms)
    jittered = int(delay * (1 + rng.uniform(-strategy.jitter, strategy.jitter)))
    return jittered, replace(Failures(times), delay_ms=delay)

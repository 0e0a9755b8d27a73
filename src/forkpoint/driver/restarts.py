"""Whether and when a failed run restarts. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass

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
    SystemUnavailable,
    Unavailable,
)
from forkpoint.graph.options import RestartStrategy

_BUGS = (AssertionError, AttributeError, ImportError, NameError, TypeError)  # user code raises UserFunctionError
FATAL = (
    StaleGeneration, OutputLost, InputLost, RestoreRefused, SavepointCorrupt, GraphError, ConfigError, EngineLost, *_BUGS,
)  # fmt: skip
"""Errors that a restart cannot cure."""


@dataclass(frozen=True)
class Failures:
    """The failures so far: the times (ms) of those that count, the last delay, and the time of the last failure."""

    times_ms: tuple[int, ...] = ()
    delay_ms: int = 0
    last_ms: int | None = None


def next_delay_ms(
    strategy: RestartStrategy, failures: Failures, error: BaseException, now_ms: int, rng: random.Random, *,
    proven: bool = True,
) -> tuple[int | None, Failures]:  # fmt: skip
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

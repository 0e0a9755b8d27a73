from __future__ import annotations

import random
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkpoint.driver.run.failures import FATAL, Failures, next_delay_ms
from forkpoint.errors import AccessDenied, ForkpointError, StorageError, SystemUnavailable
from forkpoint.graph.options import RestartStrategy

RNG = random.Random(1)
OUCH = StorageError("full")


def delays(strategy: RestartStrategy, times: list[int]) -> list[int | None]:
    """What follows each of these failures, up to the one at which the job is given up."""
    failures, found = Failures(), list[int | None]()
    for now in times:
        delay, failures = next_delay_ms(strategy, failures, OUCH, now, RNG)
        found.append(delay)
        if delay is None:
            break
    return found


def test_none_gives_up_at_once() -> None:
    assert delays(RestartStrategy.none(), [0]) == [None]


def test_fixed_delay_counts_over_the_whole_run() -> None:
    strategy = RestartStrategy.fixed_delay(2, timedelta(milliseconds=300))
    assert delays(strategy, [0, 10, 10**9]) == [300, 300, None]


def test_failure_rate_forgets_failures_that_are_older_than_the_interval() -> None:
    strategy = RestartStrategy.failure_rate(2, timedelta(milliseconds=100), 7)
    assert delays(strategy, [0, 50, 100, 150, 200, 250]) == [7, 7, 7, 7, 7, 7]
    assert delays(strategy, [0, 50, 99]) == [7, 7, None]


def test_exponential_delay_grows_to_its_maximum_and_begins_anew_after_a_quiet_time() -> None:
    strategy = RestartStrategy.exponential_delay(100, 350, 2.0, jitter=0, reset_after=1000)
    assert delays(strategy, [0, 200, 600, 1100, 2100, 2200]) == [100, 200, 350, 350, 100, 200]


def test_exponential_delay_gives_up_after_its_attempts_unless_it_began_anew() -> None:
    strategy = RestartStrategy.exponential_delay(1, 10, jitter=0, reset_after=1000, attempts=2)
    assert delays(strategy, [0, 1, 2])[-1] is None
    assert delays(strategy, [0, 1, 1001, 1002, 1003])[:4] == [1, 1, 1, 1]


@given(st.floats(0, 0.99), st.integers(1, 10**6), st.integers(0, 2**32))
def test_jitter_stays_within_its_share(jitter: float, initial: int, seed: int) -> None:
    strategy = RestartStrategy.exponential_delay(initial, initial, jitter=jitter)
    delay, _ = next_delay_ms(strategy, Failures(), OUCH, 0, random.Random(seed))
    assert delay is not None
    assert int(initial * (1 - jitter)) - 1 <= delay <= initial * (1 + jitter) + 1


@pytest.mark.parametrize("fatal", FATAL)
def test_what_a_restart_cannot_cure_ends_the_run_and_counts_as_nothing(fatal: type[ForkpointError]) -> None:
    before = Failures((1,), 5)
    assert next_delay_ms(RestartStrategy.fixed_delay(9), before, fatal("x"), 0, RNG) == (None, before)
    assert next_delay_ms(RestartStrategy.fixed_delay(9), before, KeyboardInterrupt(), 0, RNG) == (None, before)


def test_storage_that_denies_access_before_the_first_epoch_is_set_up_wrong() -> None:
    strategy = RestartStrategy.fixed_delay(9, timedelta(milliseconds=5))
    denied = AccessDenied("403")
    assert next_delay_ms(strategy, Failures(), denied, 0, RNG, proven=False) == (None, Failures())
    assert next_delay_ms(strategy, Failures(), denied, 0, RNG, proven=True)[0] == 5
    assert next_delay_ms(strategy, Failures(), OUCH, 0, RNG, proven=False)[0] == 5


def test_a_system_that_cannot_be_reached_uses_attempts_only_before_the_first_commit() -> None:
    strategy = RestartStrategy.fixed_delay(0, 5)
    away = SystemUnavailable("no broker")
    assert next_delay_ms(strategy, Failures(), away, 0, RNG, proven=False)[0] is None
    assert next_delay_ms(strategy, Failures(), away, 0, RNG, proven=True) == (5, Failures())

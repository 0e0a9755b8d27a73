"""Fixtures for tests of programs. pytest finds them once forkpoint is installed; a suite that does not use them loads nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pytest

if TYPE_CHECKING:
    from forkpoint.api.environment import StreamExecutionEnvironment
    from forkpoint.driver.run.job_driver import JobDriver
    from forkpoint.driver.run.stop import Result
    from forkpoint.testing import LocalRun, ManualClock
    from forkpoint.testing.harness import Harness

pytest.register_assert_rewrite("forkpoint.testing.sink_contract", "forkpoint.testing.source_contract")

H = TypeVar("H", bound="Harness")

_END_SECONDS = 60.0  # for user code that resists a cancellation


class RunJob(Protocol):
    """``run_local`` with the test's clock and state root."""

    def __call__(self, build: Any, *inputs: Any, **options: Any) -> LocalRun: ...


class MakeHarness(Protocol):
    """Creates a harness of this class, with the test's clock; the fixture closes it after the test."""

    def __call__(self, kind: type[H], *args: Any, **options: Any) -> H: ...


@pytest.fixture
def forkpoint_state_root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A state root for this test only."""
    return str(tmp_path_factory.mktemp("forkpoint"))


@pytest.fixture
def forkpoint_clock() -> ManualClock:
    """The processing time of the test's harnesses and of jobs run with ``forkpoint_run``."""
    from forkpoint.testing import ManualClock

    return ManualClock()


@pytest.fixture
def forkpoint_env(forkpoint_state_root: str) -> Iterator[StreamExecutionEnvironment]:
    """A new environment on the local engine, with the test's state root; environments that the tested code creates have the same
    settings. Jobs that still run after the test are cancelled."""
    from forkpoint.api.environment import StreamExecutionEnvironment
    from forkpoint.api.launch import Launch, launching

    started: list[tuple[JobDriver, threading.Event]] = []

    def on_driver(driver: JobDriver) -> Callable[[Result | BaseException], None]:
        ended = threading.Event()
        started.append((driver, ended))
        return lambda result: ended.set()

    launch = Launch({"engine": "local"}, forkpoint_state_root, on_driver=on_driver, generated_uids=True)
    with launching(launch):
        yield StreamExecutionEnvironment.get_execution_environment()
    running = [(driver, ended) for driver, ended in started if not ended.is_set()]
    for driver, _ in running:
        driver.cancel()
    for driver, ended in running:
        if not ended.wait(_END_SECONDS):
            pytest.fail(
                f"job {driver.job!r} was still running {_END_SECONDS:.0f} s after the test; does one of its functions hang?"
            )


@pytest.fixture
def forkpoint_run(forkpoint_state_root: str, forkpoint_clock: ManualClock) -> RunJob:
    """``run_local`` with the test's clock and state root, so that a later run in the test resumes an earlier run."""
    from forkpoint.testing import run_local

    def run(build: Any, *inputs: Any, **options: Any) -> LocalRun:
        return run_local(build, *inputs, **{"clock": forkpoint_clock, "state_root": forkpoint_state_root, **options})

    return run


@pytest.fixture
def forkpoint_harness(forkpoint_clock: ManualClock) -> Iterator[MakeHarness]:
    """Creates harnesses, as in ``forkpoint_harness(KeyedProcessHarness, Count(), key=…, key_type=str)``, and closes them."""
    with ExitStack() as stack:

        def make(kind: type[H], *args: Any, **options: Any) -> H:
            harness = kind(*args, **{"clock": forkpoint_clock, **options})
            stack.enter_context(harness)
            return harness

        yield make

"""Runs the jobs that a program starts in this process: registers them, serves requests, cancels them on signals."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

from forkpoint import logs
from forkpoint.driver.run.job_driver import JobDriver
from forkpoint.driver.run.stop import Result
from forkpoint.driver.serve.commands import Commands
from forkpoint.driver.serve.endpoint_publisher import EndpointPublisher
from forkpoint.errors import ConfigError, StorageError
from forkpoint.extras import is_installed
from forkpoint.protocol.registry import drop_stale, find_client

if TYPE_CHECKING:
    from forkpoint.protocol.port import ControlPort, Rest

log = logging.getLogger("forkpoint")

SETTLED_SECONDS = 1.0
FAILING_RESTARTS = 2  # restarts without an epoch after which a new job is failing, not running
FIRST_EPOCH_SECONDS = 10.0  # time after which a job in its first epoch counts as running
SLOW_START_SECONDS = 5.0  # time after which a start reports its activity
_POLL_SECONDS = 0.02
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def _wake(number: int, frame: FrameType | None) -> None:
    """A signal handler that wakes a sleeping thread, so that an asynchronous exception reaches it."""


class Announcer:
    """Receives the events of a program and its jobs. The base class ignores them."""

    def starting(self, step: str) -> None:
        """A step of a job's start, in words."""

    def begun(self, driver: JobDriver) -> None:
        """A job is about to start; it has not committed yet."""

    def running(self, driver: JobDriver) -> None:
        """The job has restored its state, and has committed an epoch or run for a moment without a failure."""

    def failing(self, driver: JobDriver, failure: str) -> None:
        """The job has failed and restarted repeatedly without committing an epoch, and continues to do so."""

    def ended(self, driver: JobDriver, result: Result) -> None:
        """The job has ended without an error."""

    def exiting(self, message: str) -> None:
        """The program called sys.exit() with a message."""

    def failed(self, code: str, message: str, exit_code: int) -> None:
        """The program failed, or one of its jobs; the process ends."""

    def killed(self, message: str) -> None:
        """The job could not be cancelled, so this process ends right after this call."""


class Driving:
    """``record`` saves the program of a driver that is about to start. ``patient``: the driver of a job that is already running
    becomes a standby instead of failing. ``rest``: the application that a job's port serves in addition to its control messages.
    ``errors``: the errors that ended jobs, as ``execute()`` raised them. ``started``: the number of started jobs."""

    def __init__(
        self,
        announcer: Announcer,
        record: Callable[[JobDriver], None],
        log: str | None = None,
        *,
        patient: bool = False,
        rest: Callable[[JobDriver], Rest] | None = None,
    ) -> None:
        self._rest = rest
        self._announcer = announcer
        self._log = log
        self._patient = patient
        self._record = record
        self._active: dict[str, JobDriver] = {}
        self._announced: set[str] = set()
        self._changed = threading.Condition()
        self.errors: list[BaseException] = []
        self.started = 0
        self.interrupted: int | None = None
        self._signals = 0

    # -- for `Launch.on_driver`

    def on_driver(self, driver: JobDriver) -> Callable[[Result | BaseException], None]:
        """Register the driver and open its port; call the result when the driver has ended."""
        if self.interrupted is not None:  # a program may start its next job after the cancelled one
            raise KeyboardInterrupt
        self._handle_signals_again()
        logs.adopt()
        self._announcer.starting(f"starting job {driver.job}")
        storage = driver.history.storage
        other = None if driver.standby else find_client(storage, driver.job)
        if other is not None:
            at = other.endpoint
            running = f"job {driver.job!r} is already running (run {at.run}, process {at.pid} on machine {at.machine!r})"
            if not self._patient:
                raise ConfigError(
                    f"{running} under {storage.url}; stop or "
                    "cancel it first, give this one another name with --name, or start it as a standby with --standby"
                )
            driver.stand_by()
            log.warning("%s; this run stands by, and takes over when its driver dies", running)
        drop_stale(storage, driver.job)
        self._record(driver)
        self._announcer.begun(driver)
        commands = Commands(driver)
        port = self._open_port(driver, commands)
        number, token = (None, None) if port is None else (port.start(), port.token)
        publisher = EndpointPublisher(driver, commands, port=number, token=token, log=self._log)
        try:
            publisher.begin()
        except BaseException:
            if port is not None:
                port.close(0)
            raise
        driver.on_stuck = partial(self._end_process, driver, publisher)
        with self._changed:
            self.started += 1
            self._active[driver.run_id] = driver
        threading.Thread(target=self._watch, args=(driver,), name=f"forkpoint-watch-{driver.job}", daemon=True).start()

        def ended(outcome: Result | BaseException) -> None:
            publisher.end()
            if isinstance(outcome, Result):
                self._announce_running(driver)
                self._announcer.ended(driver, outcome)
            else:
                self.errors.append(outcome)
            if port is not None:
                port.close()
            with self._changed:
                del self._active[driver.run_id]
                self._changed.notify_all()

        return ended

    def _open_port(self, driver: JobDriver, commands: Commands) -> ControlPort | None:
        """The control port; None without the extra `server`: then all requests arrive through the state root."""
        if not is_installed("fastapi"):
            return None
        from forkpoint.protocol.port import ControlPort

        return ControlPort(driver.job, commands, None if self._rest is None else self._rest(driver))

    def _watch(self, driver: JobDriver) -> None:
        running_since: float | None = None
        first = 0
        restored, reported = None, False
        looked = time.monotonic()
        stands_by = failing = False
        while (status := driver.status()).state != "ended":
            preparing = status.state == "starting" and status.restored is None
            if preparing and time.monotonic() - looked > SLOW_START_SECONDS:
                looked = time.monotonic()
                self._announcer.starting(driver.doing())
            if status.restored != restored and running_since is None:
                restored = status.restored
                self._announcer.starting("restoring {} of {}".format(*restored or (0, 0)))
            if status.state == "standby" and not stands_by:
                stands_by = True
                self._announcer.running(driver)
            if status.restarts and status.epoch <= first:
                if status.state == "restarting":
                    running_since = None
                if status.restarts >= FAILING_RESTARTS and not failing:
                    failing = True
                    self._announcer.failing(driver, status.failure or "the reason is not known")
            if status.state == "running":
                if running_since is None:
                    running_since, first = time.monotonic(), status.epoch
                passed = time.monotonic() - running_since
                computing = driver.epoch_ms > 0
                if computing and passed >= SETTLED_SECONDS and not reported:
                    reported = True
                    self._announcer.starting("running its first epoch")
                if status.epoch > first or passed >= (FIRST_EPOCH_SECONDS if computing else SETTLED_SECONDS):
                    self._announce_running(driver)
                    return
            time.sleep(_POLL_SECONDS)

    def _announce_running(self, driver: JobDriver) -> None:
        with self._changed:
            if driver.run_id in self._announced:
                return
            self._announced.add(driver.run_id)
            self._announcer.running(driver)

    # -- for the command

    def wait(self) -> None:
        """Wait for jobs that the program did not wait for."""
        with self._changed:
            while self._active:
                self._changed.wait(1.0)  # signals do not interrupt a wait without timeout on every platform

    def cancel_all(self) -> None:
        for driver in list(self._active.values()):
            driver.cancel()

    def _end_process(self, driver: JobDriver, publisher: EndpointPublisher) -> None:
        """End this process, because a function of the cancelled job ignores all exceptions and does not return."""
        with self._changed:
            if list(self._active) != [driver.run_id]:
                return  # another job runs in this process
        job = f"job {driver.job}, run {driver.run_id}"
        message = f"{job}: cancelled; the process was ended because it was still at {driver.doing()}\n"
        try:
            with suppress(StorageError):
                driver.record_cancelled()
                publisher.withdraw()
            self._announcer.killed(message)
        finally:
            os._exit(0 if self.interrupted is None else 128 + self.interrupted)

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Within this context, the first Ctrl-C or SIGTERM cancels the jobs, and the second ends the process at once; the third
        does so even if the program catches all exceptions."""
        before = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        before[signal.SIGURG] = signal.signal(signal.SIGURG, _wake)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        self.interrupted = number
        if self._signals > 2:
            os._exit(128 + number)
        if self._signals == 1 and self._active:
            # Not in the handler, which may interrupt any code: a cancellation takes locks.
            threading.Thread(target=self.cancel_all, name="forkpoint-cancel", daemon=True).start()
        else:
            raise KeyboardInterrupt

    def _handle_signals_again(self) -> None:
        """Replace the handler of Ctrl-C that a new SparkContext installs: it would raise in the middle of an epoch."""
        handler = signal.getsignal(signal.SIGINT)
        is_sparks = str(getattr(handler, "__module__", "")).startswith("pyspark")
        if is_sparks and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._on_signal)

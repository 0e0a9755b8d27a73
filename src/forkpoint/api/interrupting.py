"""Ctrl-C of `python app.py`: it cancels the job, and the program ends with one line and exit code 130."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import NoReturn

from forkpoint.driver.job_driver import JobDriver

EXIT_CODE = 128 + signal.SIGINT


class JobInterrupted(KeyboardInterrupt):
    """Ctrl-C has ended a job. A program that does not catch it ends without a traceback."""


@contextmanager
def ctrl_c_cancels(driver: JobDriver) -> Iterator[None]:
    """Within it, the first Ctrl-C cancels the job and a second one interrupts it wherever it is. Behind it, JobInterrupted is
    raised. Where somebody else has set up what Ctrl-C does, nothing is changed."""
    if threading.current_thread() is not threading.main_thread() or not _is_pythons(signal.getsignal(signal.SIGINT)):
        yield
        return
    count = 0

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        if count > 1:
            raise KeyboardInterrupt
        # Not here: a handler runs in the middle of anything, and cancelling takes locks.
        threading.Thread(target=driver.cancel, name="forkpoint-cancel", daemon=True).start()

    handlers = {signal.SIGINT: on_signal, signal.SIGURG: _wake}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    except BaseException as error:
        if count:
            raise interrupted(f"job {driver.job!r}, run {driver.run_id}: interrupted") from error
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if count:
        raise interrupted(f"job {driver.job!r}, run {driver.run_id}: cancelled")


def interrupted(said: str) -> JobInterrupted:
    """The error to raise; if nobody catches it, Python shows this line."""
    if sys.excepthook is not _hook:
        global _before
        _before, sys.excepthook = sys.excepthook, _hook
    return JobInterrupted(said)


def _hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, JobInterrupted):
        _end(error)
    _before(kind, error, trace)


def _end(error: JobInterrupted) -> NoReturn:
    print(error, file=sys.stderr, flush=True)
    raise SystemExit(EXIT_CODE)  # which Python takes from here, too


_before = sys.excepthook


def _wake(number: int, frame: FrameType | None) -> None:
    """Lets a thread that sleeps see what is to be raised in it."""


def _is_pythons(handler: object) -> bool:
    """Python's own, or the one that a SparkContext puts in its place, which raises in the middle of an epoch."""
    return handler is signal.default_int_handler or str(getattr(handler, "__module__", "")).startswith("pyspark")

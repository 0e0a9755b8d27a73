"""Ctrl-C and uncaught errors of `python app.py`.

Ctrl-C cancels the job, and the program ends with one line and exit code 130. The traceback of a forkpoint error has only the
program's lines.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

from forkpoint.driver.run.job_driver import JobDriver
from forkpoint.errors import ForkpointError
from forkpoint.extras import is_own_frame

EXIT_CODE = 128 + signal.SIGINT


class JobInterrupted(KeyboardInterrupt):
    """Ctrl-C ended a job. A program that does not catch this ends without a traceback."""


@contextmanager
def ctrl_c_cancels(driver: JobDriver) -> Iterator[None]:
    """Make the first Ctrl-C cancel the job and the second one interrupt it; then raise JobInterrupted.

    Has no effect outside the main thread or if the program has installed its own SIGINT handler.
    """
    if threading.current_thread() is not threading.main_thread() or not _is_default(signal.getsignal(signal.SIGINT)):
        yield
        return
    count = 0

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        if count > 1:
            raise KeyboardInterrupt
        # On a thread: cancelling takes locks, which the interrupted code may hold.
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


def interrupted(message: str) -> JobInterrupted:
    """The error to raise; if uncaught, the program prints only its message."""
    show_briefly()
    return JobInterrupted(message)


def show_briefly() -> None:
    """Print an uncaught error without forkpoint's own frames, unless FORKPOINT_VERBOSE is set."""
    if sys.excepthook is not _hook:
        global _before
        _before, sys.excepthook = sys.excepthook, _hook


def _hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, JobInterrupted):
        print(error, file=sys.stderr, flush=True)
        raise SystemExit(EXIT_CODE)  # honoured in an excepthook, too
    if isinstance(error, ForkpointError) and os.environ.get("FORKPOINT_VERBOSE", "0") in ("", "0"):
        frames = [(frame, line) for frame, line in traceback.walk_tb(trace) if not is_own_frame(frame)]
        lines = ["Traceback (most recent call last):\n", *traceback.StackSummary.extract(frames).format()]
        print(f"{''.join(lines)}{kind.__module__}.{kind.__qualname__}: {error}", file=sys.stderr, flush=True)
        return
    _before(kind, error, trace)


_before = sys.excepthook


def _wake(number: int, frame: FrameType | None) -> None:
    """Wakes a sleeping thread so that an asynchronous exception reaches it."""


def _is_default(handler: object) -> bool:
    """Whether this is Python's default handler or the handler of a SparkContext, which raises during an epoch."""
    return handler is signal.default_int_handler or str(getattr(handler, "__module__", "")).startswith("pyspark")

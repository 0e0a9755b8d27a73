"""Interrupts user code on a thread of this process, and reports its current activity."""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from forkpoint.errors import EpochInterrupted
from forkpoint.graph.job import Operator

_PACKAGE = str(Path(__file__).parents[1])


class Interruptible:
    """``interrupt`` raises EpochInterrupted in the thread that is ``within``; at most one thread is at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: int | None = None
        self._sent = False
        self._starting: Any = None  # the thread that this one was starting at the last interrupt

    @contextmanager
    def within(self) -> Iterator[None]:
        with self._lock:
            self._thread = threading.get_ident()
        try:
            try:
                yield
            finally:
                self._leave()
        except EpochInterrupted as error:
            self._leave()  # the error may have been raised while the thread was leaving
            # A context manager that was interrupted on its way in is still held by the error's frames. Whoever drops the error
            # later, on another thread, could not release the lock that was taken there, a store's for instance.
            traceback.clear_frames(error.__traceback__)
            raise

    def _leave(self) -> None:
        with self._lock:
            self._thread = None
        if self._sent:
            _receive()
            self._sent = False

    def interrupt(self) -> None:
        """Raise EpochInterrupted once. Callers repeat this, because code may catch all errors or block in C."""
        with self._lock:
            if self._thread is None or self._thread == threading.get_ident():
                return
            before, self._starting = self._starting, _thread_started_by(self._thread)
            if self._starting is not None:
                # Up to CPython 3.11, a new thread has its creator's id for a moment: the error would end the new thread, and its
                # creator would wait for it forever. That happens if it is started after this look; then the next interrupt ends
                # the wait.
                if self._starting is before:
                    self._starting._started.set()
                return
            self._sent = True
            thread, error = ctypes.c_ulong(self._thread), ctypes.py_object(EpochInterrupted)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, error)  # raised at its next Python instruction
            if self._thread == threading.main_thread().ident and callable(signal.getsignal(signal.SIGURG)):
                signal.pthread_kill(self._thread, signal.SIGURG)  # ends a sleep or network wait

    def activity(self) -> str | None:
        """The operator that the thread runs, and the line of user code: "in operator 'x' (spin, app.py:7)"."""
        thread = self._thread
        frame = sys._current_frames().get(thread) if thread is not None else None
        frames: list[FrameType] = []
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
        operator = next((o for f in frames if isinstance(o := f.f_locals.get("operator"), Operator)), None)
        if operator is None:
            return None
        # The innermost forkpoint frame has called user code.
        innermost = next((i for i, f in enumerate(frames) if f.f_code.co_filename.startswith(_PACKAGE)), 0)
        if innermost == 0:
            return f"in operator {operator.uid!r}"
        user = frames[innermost - 1]
        return f"in operator {operator.uid!r} ({user.f_code.co_name}, {Path(user.f_code.co_filename).name}:{user.f_lineno})"


def _thread_started_by(ident: int) -> Any:
    """The thread that a thread waits for in ``Thread.start``, and that does not run yet; None if there is none."""
    frame = sys._current_frames().get(ident)
    while frame is not None and frame.f_code is not threading.Thread.start.__code__:
        frame = frame.f_back
    started = None if frame is None else frame.f_locals["self"]
    return started if started is not None and started.ident is None else None


def _receive() -> None:
    """Receive an interrupt that this thread has not raised yet.

    After a withdrawal, the interpreter would look for the interrupt at every call, in all threads and forever; under a tracer
    (a debugger, coverage), CPython 3.11 then hangs at the start of a function.
    """
    try:
        for _ in range(100):  # Python checks at each backward jump
            pass
    except EpochInterrupted:
        pass

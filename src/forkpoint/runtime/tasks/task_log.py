"""What user functions say in a task, by `print` or `logging`: lines of the job's log, no more than a job can bear."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, TextIO

from forkpoint import logs
from forkpoint.logs import TaskLogging

_LONGEST = 4_000  # of a message

PRINTED: Mapping[Literal["stdout", "stderr"], int] = {"stdout": logging.INFO, "stderr": logging.WARNING}
"""The streams that functions print to, with the level of such lines. They are also the names of the lines' loggers."""


_levels: Mapping[str, int] = {}


@dataclass
class _Share:
    """How much of what a task may write it has written."""

    lines: int = 0
    bytes: int = 0

    def is_used_up(self, how: TaskLogging) -> bool:
        return self.lines >= how.max_lines or self.bytes >= how.max_bytes


@dataclass
class _Second:
    """What a task has written since a moment (monotonic): within a second, or in an epoch that took longer.

    ``left_out``: the lines that were not written, by uid, and about which nothing was ``told`` yet.
    """

    since: float
    usual: _Share = field(default_factory=_Share)
    grave: _Share = field(default_factory=_Share)  # many prints must not displace a warning
    left_out: Counter[str | None] = field(default_factory=Counter)
    told: bool = False

    def share(self, level: int) -> _Share:
        return self.grave if level >= logging.WARNING else self.usual


_seconds: dict[Hashable, _Second] = {}
_FORGOTTEN = 1_000  # how many tasks are remembered


def _second_of(task: Hashable) -> _Second:
    """The current second of a task in this process, whose epochs may be shorter."""
    now, last = time.monotonic(), _seconds.get(task)
    if last is not None and now - last.since < 1:
        return last
    if len(_seconds) >= _FORGOTTEN:
        _seconds.clear()
    begun = _Second(now)
    if last is not None:
        begun.left_out = last.left_out
    if task is not None:
        _seconds[task] = begun
    return begun


class TaskLog:
    """The scope of a task, and its lines. They go to the process's stderr at once, so that they are there if it hangs or dies.

    ``about``: what lines are about. ``task``: identifies it across epochs.
    """

    def __init__(self, how: TaskLogging, about: Callable[[], Mapping[str, Any]], task: Hashable = None) -> None:
        self._how = how
        self.about = about
        self._task = task
        self._current: _Second | None = None
        self._kept: list[str] = []
        self._begun = dict.fromkeys(PRINTED, "")  # lines that have not ended
        self._stderr: TextIO = sys.stderr

    @contextmanager
    def within(self) -> Iterator[None]:
        """Around the task."""
        with ExitStack() as stack:
            stack.enter_context(logs.within(self))
            if self._how.captured != "nothing":
                stack.enter_context(self._capturing_prints())
            if self._how.captured == "all":
                stack.enter_context(_handling(_Records(self), self._how.levels))
            yield

    @contextmanager
    def _capturing_prints(self) -> Iterator[None]:
        with _capturing():
            self._stderr = sys.stderr.original if isinstance(sys.stderr, _Printed) else sys.stderr
            try:
                yield
            finally:
                self._end()

    def print(self, stream: Literal["stdout", "stderr"], text: str) -> None:
        if self._second.usual.is_used_up(self._how):
            _, ended_here, rest = text.rpartition("\n")
            if ended_here:
                self._begun[stream] = rest[: _LONGEST + 1]
                self._leave_out(text.count("\n"))
            return
        *ended, begun = (self._begun[stream] + text).split("\n")
        self._begun[stream] = begun[: _LONGEST + 1]
        for each in ended:
            self._say(stream, each)

    def record(self, record: logging.LogRecord) -> None:
        self._take(record, self._second.share(record.levelno))

    def takes(self, record: logging.LogRecord) -> bool:
        """Whether the process's handlers may write a record."""
        if self._how.captured == "nothing":
            return True
        share = self._second.share(record.levelno)
        if share.is_used_up(self._how):
            self._leave_out(1)
            return False
        share.lines += 1
        share.bytes += len(record.getMessage())
        return True

    def returned(self) -> list[str]:
        """The lines that the driver gets."""
        self._end()
        return self._kept

    def _end(self) -> None:
        """Write what has not ended, and how much was left out."""
        for stream, begun in self._begun.items():
            self._begun[stream] = ""
            if begun:
                self._say(stream, begun)
        second = self._current
        if second is None or second.told or not second.left_out:
            return
        second.told = True
        left_out, second.left_out = second.left_out, Counter()
        limits = f"more than {self._how.max_lines} lines or {self._how.max_bytes:,} bytes of one task in one epoch or second"
        for uid, number in left_out.items():
            text = f"{number:,} further lines {'' if uid is None else f'of {uid!r} '}were left out: {limits}"
            about = self.about() if uid is None else {**self.about(), "uid": uid}
            self._write(_made("forkpoint", logging.WARNING, text), _Share(), about)

    @property
    def _second(self) -> _Second:
        if self._current is None:
            self._current = _second_of(self._task)
        return self._current

    def _leave_out(self, lines: int) -> None:
        self._second.left_out[self.about().get("uid")] += lines

    def _say(self, stream: Literal["stdout", "stderr"], text: str) -> None:
        self._take(_made(stream, PRINTED[stream], text), self._second.usual)

    def _take(self, record: logging.LogRecord, share: _Share) -> None:
        if share.is_used_up(self._how):
            self._leave_out(1)
        else:
            self._write(record, share, self.about())

    def _write(self, record: logging.LogRecord, share: _Share, about: Mapping[str, Any]) -> None:
        line = logs.line(self._how.format, _shortened(record), about)
        share.lines += 1
        share.bytes += len(line)
        if self._how.returned:
            self._kept.append(line)
        with suppress(OSError, ValueError):  # nobody reads it
            self._stderr.write(f"{line}\n")
            self._stderr.flush()


class _Printed:
    """Stands for sys.stdout or sys.stderr: what a task prints becomes lines of its log, all else is passed on."""

    def __init__(self, name: Literal["stdout", "stderr"], original: TextIO) -> None:
        self._name = name
        self.original = original

    def write(self, text: str) -> int:
        scope = logs.scope_here()
        if not isinstance(scope, TaskLog):
            return self.original.write(text)
        scope.print(self._name, text)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for each in lines:
            self.write(each)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)


_tasks = 0
_before: tuple[Any, Any] = (None, None)
_lock = threading.Lock()


@contextmanager
def _capturing() -> Iterator[None]:
    """Within it, sys.stdout and sys.stderr tell tasks' prints from others. Commits run side by side, and beside an epoch."""
    global _tasks, _before
    with _lock:
        if not _tasks:
            _before = sys.stdout, sys.stderr
            sys.stdout, sys.stderr = (_printed(name, stream) for name, stream in zip(PRINTED, _before, strict=True))
        _tasks += 1
    try:
        yield
    finally:
        with _lock:
            _tasks -= 1
            if not _tasks:
                sys.stdout, sys.stderr = _before


def _printed(name: Literal["stdout", "stderr"], stream: Any) -> Any:
    return stream if isinstance(stream, _Printed) else _Printed(name, stream)


class _Records(logging.Handler):
    def __init__(self, log: TaskLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        if logs.scope_here() is not self._log:  # of another thread
            return
        try:
            self._log.record(record)
        except Exception:
            self.handleError(record)


@contextmanager
def beside_epochs(how: TaskLogging, about: Mapping[str, Any]) -> Iterator[TaskLog]:
    """Around a task that is about what the thread is that starts it."""
    task = tuple((name, value) for name, value in about.items() if name != "epoch")
    log = TaskLog(how, lambda: about, task)
    with log.within():
        yield log


@contextmanager
def _handling(handler: logging.Handler, levels: Mapping[str, int]) -> Iterator[None]:
    """Within it, all that is logged goes to this handler too. The levels are set once, so that functions can change them."""
    global _levels
    if levels is not _levels:
        _levels = levels
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
    logging.root.addHandler(handler)
    try:
        yield
    finally:
        logging.root.removeHandler(handler)


def _made(logger: str, level: int, message: str) -> logging.LogRecord:
    return logging.LogRecord(logger, level, "", 0, message, None, None)


def _shortened(record: logging.LogRecord) -> logging.LogRecord:
    message = record.getMessage()
    if len(message) <= _LONGEST:
        return record
    short = logging.makeLogRecord(record.__dict__)
    short.msg, short.args = f"{message[:_LONGEST]}…", None
    return short

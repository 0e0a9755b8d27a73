"""Output of user functions in a task by `print` or `logging`, as a limited number of lines in the job's log."""

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

_MAX_LENGTH = 4_000  # of a message

PRINTED: Mapping[Literal["stdout", "stderr"], int] = {"stdout": logging.INFO, "stderr": logging.WARNING}
"""The streams that functions print to, with the level of the lines. The lines' loggers have the names of the streams."""


_levels: Mapping[str, int] = {}


@dataclass
class _Quota:
    """The used part of a task's limits."""

    lines: int = 0
    bytes: int = 0

    def is_exceeded(self, settings: TaskLogging) -> bool:
        return self.lines >= settings.max_lines or self.bytes >= settings.max_bytes


@dataclass
class _Interval:
    """The output of a task since a moment (monotonic): within a second, or in an epoch that took longer.

    ``dropped``: the number of dropped lines by uid that the log has not reported; ``reported``: whether it has reported some.
    """

    since: float
    infos: _Quota = field(default_factory=_Quota)
    warnings: _Quota = field(default_factory=_Quota)  # separate, so that many prints do not displace a warning
    dropped: Counter[str | None] = field(default_factory=Counter)
    reported: bool = False

    def quota(self, level: int) -> _Quota:
        return self.warnings if level >= logging.WARNING else self.infos


_intervals: dict[Hashable, _Interval] = {}
_MAX_TASKS = 1_000  # with an interval


def _interval_of(task: Hashable) -> _Interval:
    """The current interval of a task in this process, whose epochs may be shorter."""
    now, last = time.monotonic(), _intervals.get(task)
    if last is not None and now - last.since < 1:
        return last
    if len(_intervals) >= _MAX_TASKS:
        _intervals.clear()
    interval = _Interval(now)
    if last is not None:
        interval.dropped = last.dropped
    if task is not None:
        _intervals[task] = interval
    return interval


class TaskLog:
    """The scope of a task, and its lines. They go to the process's stderr at once, so that they survive a hang or crash.

    ``about``: the fields of lines. ``task``: identifies the task across epochs.
    """

    def __init__(self, settings: TaskLogging, about: Callable[[], Mapping[str, Any]], task: Hashable = None) -> None:
        self._settings = settings
        self.about = about
        self._task = task
        self._current: _Interval | None = None
        self._lines: list[str] = []
        self._incomplete = dict.fromkeys(PRINTED, "")  # lines without a line break yet
        self._stderr: TextIO = sys.stderr

    @contextmanager
    def within(self) -> Iterator[None]:
        """Run the task in this block."""
        with ExitStack() as stack:
            stack.enter_context(logs.within(self))
            if self._settings.captured != "nothing":
                stack.enter_context(self._capture_prints())
            if self._settings.captured == "all":
                stack.enter_context(_add_handler(_Records(self), self._settings.levels))
            yield

    @contextmanager
    def _capture_prints(self) -> Iterator[None]:
        with _replace_streams():
            self._stderr = sys.stderr.original if isinstance(sys.stderr, _Printed) else sys.stderr
            try:
                yield
            finally:
                self._end()

    def print(self, stream: Literal["stdout", "stderr"], text: str) -> None:
        if self._interval.infos.is_exceeded(self._settings):
            _, line_break, rest = text.rpartition("\n")
            if line_break:
                self._incomplete[stream] = rest[: _MAX_LENGTH + 1]
                self._drop(text.count("\n"))
            return
        *lines, incomplete = (self._incomplete[stream] + text).split("\n")
        self._incomplete[stream] = incomplete[: _MAX_LENGTH + 1]
        for line in lines:
            self._log_printed(stream, line)

    def record(self, record: logging.LogRecord) -> None:
        self._log(record, self._interval.quota(record.levelno))

    def takes(self, record: logging.LogRecord) -> bool:
        """Whether the process's handlers may write a record."""
        if self._settings.captured == "nothing":
            return True
        quota = self._interval.quota(record.levelno)
        if quota.is_exceeded(self._settings):
            self._drop(1)
            return False
        quota.lines += 1
        quota.bytes += len(record.getMessage())
        return True

    def returned(self) -> list[str]:
        """The lines for the driver."""
        self._end()
        return self._lines

    def _end(self) -> None:
        """Write incomplete lines, and report the number of dropped lines."""
        for stream, incomplete in self._incomplete.items():
            self._incomplete[stream] = ""
            if incomplete:
                self._log_printed(stream, incomplete)
        interval = self._current
        if interval is None or interval.reported or not interval.dropped:
            return
        interval.reported = True
        dropped, interval.dropped = interval.dropped, Counter()
        max_lines, max_bytes = self._settings.max_lines, self._settings.max_bytes
        limits = f"more than {max_lines} lines or {max_bytes:,} bytes of one task in one epoch or second"
        for uid, number in dropped.items():
            text = f"{number:,} further lines {'' if uid is None else f'of {uid!r} '}were left out: {limits}"
            about = self.about() if uid is None else {**self.about(), "uid": uid}
            self._write(_new_record("forkpoint", logging.WARNING, text), _Quota(), about)

    @property
    def _interval(self) -> _Interval:
        if self._current is None:
            self._current = _interval_of(self._task)
        return self._current

    def _drop(self, lines: int) -> None:
        self._interval.dropped[self.about().get("uid")] += lines

    def _log_printed(self, stream: Literal["stdout", "stderr"], text: str) -> None:
        self._log(_new_record(stream, PRINTED[stream], text), self._interval.infos)

    def _log(self, record: logging.LogRecord, quota: _Quota) -> None:
        if quota.is_exceeded(self._settings):
            self._drop(1)
        else:
            self._write(record, quota, self.about())

    def _write(self, record: logging.LogRecord, quota: _Quota, about: Mapping[str, Any]) -> None:
        line = logs.line(self._settings.format, _shortened(record), about)
        quota.lines += 1
        quota.bytes += len(line)
        if self._settings.returned:
            self._lines.append(line)
        with suppress(OSError, ValueError):  # stderr has no reader
            self._stderr.write(f"{line}\n")
            self._stderr.flush()


class _Printed:
    """Replaces sys.stdout or sys.stderr: prints of tasks become lines of their logs; other output goes to the original."""

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
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)


_tasks = 0
_before: tuple[Any, Any] = (None, None)
_lock = threading.Lock()


@contextmanager
def _replace_streams() -> Iterator[None]:
    """Distinguish prints of tasks from other output, for several tasks: commits run concurrently with an epoch."""
    global _tasks, _before
    with _lock:
        if not _tasks:
            _before = sys.stdout, sys.stderr
            streams = zip(PRINTED, _before, strict=True)
            sys.stdout, sys.stderr = (s if isinstance(s, _Printed) else _Printed(name, s) for name, s in streams)
        _tasks += 1
    try:
        yield
    finally:
        with _lock:
            _tasks -= 1
            if not _tasks:
                sys.stdout, sys.stderr = _before


class _Records(logging.Handler):
    def __init__(self, log: TaskLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        if logs.scope_here() is not self._log:  # a record of another thread
            return
        try:
            self._log.record(record)
        except Exception:
            self.handleError(record)


@contextmanager
def background_task_log(settings: TaskLogging, about: Mapping[str, Any]) -> Iterator[TaskLog]:
    """The log of a task outside epochs. ``about``: the log fields of the thread that starts the task."""
    task = tuple((name, value) for name, value in about.items() if name != "epoch")
    log = TaskLog(settings, lambda: about, task)
    with log.within():
        yield log


@contextmanager
def _add_handler(handler: logging.Handler, levels: Mapping[str, int]) -> Iterator[None]:
    """Add a handler to the root logger. The levels are set only once, so that functions can change them."""
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


def _new_record(logger: str, level: int, message: str) -> logging.LogRecord:
    return logging.LogRecord(logger, level, "", 0, message, None, None)


def _shortened(record: logging.LogRecord) -> logging.LogRecord:
    message = record.getMessage()
    if len(message) <= _MAX_LENGTH:
        return record
    short = logging.makeLogRecord(record.__dict__)
    short.msg, short.args = f"{message[:_MAX_LENGTH]}…", None
    return short

"""What user functions say in a task, by `print` or `logging`: lines of the job's log, no more than a job can bear."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
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


class TaskLog:
    """The scope of a task, and its lines. They go to the process's stderr at once, so that they are there if it hangs or dies.

    ``about``: what lines are about.
    """

    def __init__(self, how: TaskLogging, about: Callable[[], Mapping[str, Any]]) -> None:
        self._how = how
        self.about = about
        self._kept: list[str] = []
        self._usual, self._grave = _Share(), _Share()  # many prints must not displace a warning
        self._left_out = 0
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
        before = sys.stdout, sys.stderr
        self._stderr = before[1].original if isinstance(before[1], _Printed) else before[1]
        sys.stdout, sys.stderr = (_printed(name, stream) for name, stream in zip(PRINTED, before, strict=True))
        try:
            yield
        finally:
            self._end()
            sys.stdout, sys.stderr = before

    def print(self, stream: Literal["stdout", "stderr"], text: str) -> None:
        if self._usual.is_used_up(self._how):
            self._left_out += text.count("\n")
            return
        *ended, begun = (self._begun[stream] + text).split("\n")
        self._begun[stream] = begun[: _LONGEST + 1]
        for each in ended:
            self._say(stream, each)

    def record(self, record: logging.LogRecord) -> None:
        self._take(record, self._grave if record.levelno >= logging.WARNING else self._usual)

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
        left_out, self._left_out = self._left_out, 0
        if left_out:
            limits = f"more than {self._how.max_lines} lines or {self._how.max_bytes:,} bytes of one task in one epoch"
            self._write(
                _made("forkpoint", logging.WARNING, f"{left_out:,} further lines were left out: {limits}"), _Share()
            )

    def _say(self, stream: Literal["stdout", "stderr"], text: str) -> None:
        self._take(_made(stream, PRINTED[stream], text), self._usual)

    def _take(self, record: logging.LogRecord, share: _Share) -> None:
        if share.is_used_up(self._how):
            self._left_out += 1
        else:
            self._write(record, share)

    def _write(self, record: logging.LogRecord, share: _Share) -> None:
        line = logs.line(self._how.format, _shortened(record), self.about())
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


def _printed(name: Literal["stdout", "stderr"], stream: Any) -> Any:
    return stream if isinstance(stream, _Printed) else _Printed(name, stream)


class _Records(logging.Handler):
    def __init__(self, log: TaskLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._log.record(record)
        except Exception:
            self.handleError(record)


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

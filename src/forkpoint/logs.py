"""The log of a job: the format of lines, and their context (job, run, epoch, operator, subtask).

A ``Scope`` provides the context. The driver's thread and each task run within a scope; a line looks it up when it is written,
so elements cost nothing. Threads without a scope belong to the job of this process, if it runs only one.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, ParamSpec, Protocol, TypeVar

from forkpoint.wording import visible

LogFormat = Literal["text", "json"]
Captured = Literal["nothing", "prints", "all"]

P = ParamSpec("P")
R = TypeVar("R")


class Scope(Protocol):
    """The context of lines. ``about()``: job, run, epoch, uid and subtask, as far as known. ``takes()``: whether a record of the
    process's own handlers may still become a line."""

    def about(self) -> Mapping[str, Any]: ...

    def takes(self, record: logging.LogRecord) -> bool: ...


@dataclass(frozen=True)
class About:
    """A constant scope without a limit."""

    known: Mapping[str, Any]

    def about(self) -> Mapping[str, Any]:
        return self.known

    def takes(self, record: logging.LogRecord) -> bool:
        return True


@dataclass(frozen=True)
class TaskLogging:
    """How tasks log. ``captured``: the output that the task, rather than the process, turns into log lines. ``returned``: whether
    the lines are also sent to the driver, whose stderr differs from that of the tasks. ``levels``: the levels of the driver's
    loggers, by name. ``max_lines`` and ``max_bytes``: limits per task and epoch, and per second if epochs are shorter; warnings
    and errors have the same limits again.
    """

    format: LogFormat = "text"
    captured: Captured = "nothing"
    returned: bool = False
    levels: Mapping[str, int] = field(default_factory=dict)
    max_lines: int = 200
    max_bytes: int = 64_000


_current: ContextVar[Scope | None] = ContextVar("forkpoint_log_scope", default=None)
_outermost: list[Scope] = []
_chosen: LogFormat = "text"


@contextmanager
def within(scope: Scope) -> Iterator[None]:
    """Sets the scope of this thread's log lines."""
    outermost = _current.get() is None
    token = _current.set(scope)
    if outermost:
        _outermost.append(scope)
    try:
        yield
    finally:
        with suppress(ValueError):  # the collecting thread closes generators of an interrupted task
            _current.reset(token)
        if outermost:
            _outermost.remove(scope)


def scope_here() -> Scope | None:
    """The scope of this thread, or the only scope of the process."""
    scope = _current.get()
    return _outermost[0] if scope is None and len(_outermost) == 1 else scope


def about_here() -> Mapping[str, Any]:
    """The current context of this thread's lines."""
    scope = scope_here()
    return {} if scope is None else scope.about()


@contextmanager
def narrowed(**further: Any) -> Iterator[None]:
    """Adds to the context of this thread's lines."""
    with within(About({**about_here(), **further})):
        yield


def carried(fn: Callable[P, R]) -> Callable[P, R]:
    """Wraps a function for one call on another thread, where its lines have the context of this thread."""
    return partial(copy_context().run, fn)


def line(kind: LogFormat, record: logging.LogRecord, about: Mapping[str, Any]) -> str:
    """A record as a line of the log, without the line end."""
    message, trace = record.getMessage(), _trace_of(record)
    when = datetime.fromtimestamp(record.created, UTC)
    if kind == "json":
        content = {
            "time": f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond // 1000:03}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": message,
            **about,
        }
        return json.dumps(content if trace is None else {**content, "exception": trace})
    context = ", ".join(f"{name} {value}" for name, value in about.items())
    local = f"{when.astimezone():%Y-%m-%d %H:%M:%S},{when.microsecond // 1000:03}"
    text = f"{local} {record.levelname} {record.name}: {message}{f' [{context}]' if context else ''}"
    return visible(text if trace is None else f"{text}\n{trace}")


def _trace_of(record: logging.LogRecord) -> str | None:
    parts = [record.exc_text or (_formatter.formatException(record.exc_info) if record.exc_info else "")]
    parts += [record.stack_info] if record.stack_info else []
    return "\n".join(part for part in parts if part)[-_LONGEST_TRACE:] or None


_formatter = logging.Formatter()
_FAILURE = "forkpoint.end"
_LONGEST_TRACE = 20_000


class JsonLines(logging.Formatter):
    """A JSON object per record."""

    def format(self, record: logging.LogRecord) -> str:
        return line("json", record, about_here())


def _taken(record: logging.LogRecord) -> bool:
    scope = scope_here()
    return scope is None or scope.takes(record)


class VisibleLines(logging.Formatter):
    """Escapes control characters: logged errors may quote records."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


# -- this process


def choose(wanted: LogFormat) -> None:
    """Set the log format of this process, of its child processes, and of its jobs' tasks."""
    global _chosen
    _chosen = wanted


def chosen() -> LogFormat:
    return _chosen


def of_tasks_here() -> TaskLogging:
    """How tasks in this process log: its handlers receive their records."""
    return _HERE[_chosen]


_HERE: Mapping[LogFormat, TaskLogging] = {"text": TaskLogging(), "json": TaskLogging("json", "prints")}


def begin() -> None:
    """Log in the chosen format, before the program configures ``logging`` itself."""
    last = logging.lastResort  # handles warnings until then
    if _chosen == "json":
        if last is not None:
            logging.lastResort = logging.StreamHandler(sys.stderr)  # not the replacement of stderr while a task runs
            logging.lastResort.setLevel(last.level)
            logging.lastResort.setFormatter(JsonLines())
            logging.lastResort.addFilter(_taken)
        logging.captureWarnings(True)
        logging.basicConfig = _adopting(logging.basicConfig)
    elif last is not None:
        last.setFormatter(VisibleLines("%(asctime)s %(levelname)s %(message)s"))


def _adopting(basic_config: Callable[..., None]) -> Callable[..., None]:
    def adopting(**options: Any) -> None:
        basic_config(**options)
        adopt()

    return adopting


def adopt() -> None:
    """If JSON was chosen: makes the program's handlers for stdout or stderr write JSON to stderr. File handlers stay."""
    if _chosen != "json":
        return
    standard = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    for logger in (logging.root, *_loggers()):
        for handler in logger.handlers:
            if isinstance(handler, logging.StreamHandler) and any(handler.stream is each for each in standard):
                handler.setStream(sys.stderr)
                handler.setFormatter(JsonLines())
                handler.addFilter(_taken)


def levels() -> dict[str, int]:
    """The explicit levels of this process's loggers, by name; "" is the root logger."""
    return {"": logging.root.level} | {each.name: each.level for each in _loggers() if each.level != logging.NOTSET}


def _loggers() -> list[logging.Logger]:
    return [each for each in logging.root.manager.loggerDict.values() if isinstance(each, logging.Logger)]


def write_failure(message: str, trace: str | None) -> None:
    """Write a JSON line with the reason why this process fails."""
    record = logging.LogRecord(_FAILURE, logging.CRITICAL, "", 0, message, None, None)
    record.exc_text = trace
    relay([line("json", record, {})])


def parse_failure(text: str) -> tuple[str, str | None] | None:
    """The message and the trace of a log line by ``write_failure``; None for other lines."""
    if not text.startswith("{"):
        return None
    with suppress(ValueError):
        found = json.loads(text)
        if (found.get("logger"), found.get("level")) == (_FAILURE, "CRITICAL"):
            return str(found["message"]), found.get("exception")
    return None


def relay(lines: Iterable[str]) -> None:
    """Write lines that tasks returned."""
    text = "".join(f"{each}\n" for each in lines)
    if text:
        with suppress(OSError, ValueError):  # stderr is closed
            sys.stderr.write(text)
            sys.stderr.flush()

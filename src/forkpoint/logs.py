"""The lines of a job's log: their format, and the job, run, epoch, operator and subtask that each is about.

A ``Scope`` knows the latter. The driver's thread and each task are within one; a line asks for it when it is written, so that
elements cost nothing. Threads without one belong to the job of this process, if it runs only one.
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
    """What lines are about: ``about()`` has job, run, epoch, uid and subtask, as far as they are known. ``takes()``: whether a
    record that the process's own handlers have still becomes a line."""

    def about(self) -> Mapping[str, Any]: ...

    def takes(self, record: logging.LogRecord) -> bool: ...


@dataclass(frozen=True)
class About:
    """A scope that is the same all the time, without a limit."""

    known: Mapping[str, Any]

    def about(self) -> Mapping[str, Any]:
        return self.known

    def takes(self, record: logging.LogRecord) -> bool:
        return True


@dataclass(frozen=True)
class TaskLogging:
    """How tasks log. ``captured``: what becomes lines of the log by the task's own means, rather than those of the process.
    ``returned``: whether the driver gets them too, as its stderr is not that of the tasks. ``levels``: those that the driver's
    loggers were set to, by name. ``max_lines`` and ``max_bytes``: of one task in one epoch, and in one second if that has several
    epochs; once more for warnings and errors.
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
    """Within it, what this thread logs is about ``scope``."""
    outermost = _current.get() is None
    token = _current.set(scope)
    if outermost:
        _outermost.append(scope)
    try:
        yield
    finally:
        with suppress(ValueError):  # what an interrupted task has left open is closed by the thread that collects it
            _current.reset(token)
        if outermost:
            _outermost.remove(scope)


def scope_here() -> Scope | None:
    """The scope of this thread, or the only one of the process."""
    scope = _current.get()
    return _outermost[0] if scope is None and len(_outermost) == 1 else scope


def about_here() -> Mapping[str, Any]:
    """What this thread's lines are about at the moment."""
    scope = scope_here()
    return {} if scope is None else scope.about()


@contextmanager
def narrowed(**further: Any) -> Iterator[None]:
    """Within it, what this thread logs is about this, too."""
    with within(About({**about_here(), **further})):
        yield


def carried(fn: Callable[P, R]) -> Callable[P, R]:
    """The function for another thread, where its lines are about the same as they would be on this one. For one call."""
    return partial(copy_context().run, fn)


def line(how: LogFormat, record: logging.LogRecord, about: Mapping[str, Any]) -> str:
    """A record as a line of the log, without its end."""
    message, trace = record.getMessage(), _trace_of(record)
    when = datetime.fromtimestamp(record.created, UTC)
    if how == "json":
        found = {
            "time": f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond // 1000:03}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": message,
            **about,
        }
        return json.dumps(found if trace is None else {**found, "exception": trace})
    named = ", ".join(f"{name} {value}" for name, value in about.items())
    local = f"{when.astimezone():%Y-%m-%d %H:%M:%S},{when.microsecond // 1000:03}"
    said = f"{local} {record.levelname} {record.name}: {message}{f' [{named}]' if named else ''}"
    return visible(said if trace is None else f"{said}\n{trace}")


def _trace_of(record: logging.LogRecord) -> str | None:
    parts = [record.exc_text or (_formatter.formatException(record.exc_info) if record.exc_info else "")]
    parts += [record.stack_info] if record.stack_info else []
    return "\n".join(part for part in parts if part)[-_LONGEST_TRACE:] or None


_formatter = logging.Formatter()
_LAST = "forkpoint.end"
_LONGEST_TRACE = 20_000


class JsonLines(logging.Formatter):
    """One JSON object for each record."""

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
    """The format of the log of this process, of the processes that it starts, and of its jobs' tasks."""
    global _chosen
    _chosen = wanted


def chosen() -> LogFormat:
    return _chosen


def of_tasks_here() -> TaskLogging:
    """How the tasks of this process log: their records go to its handlers."""
    return _HERE[_chosen]


_HERE: Mapping[LogFormat, TaskLogging] = {"text": TaskLogging(), "json": TaskLogging("json", "prints")}


def begin() -> None:
    """Log in the chosen format, before the program configures ``logging`` itself."""
    last = logging.lastResort  # handles warnings until then
    if _chosen == "json":
        if last is not None:
            logging.lastResort = logging.StreamHandler(sys.stderr)  # not what stands for that while a task runs
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
    """If JSON was chosen: what the program's handlers write to stdout or stderr is JSON on stderr. Its files are its own."""
    if _chosen != "json":
        return
    for logger in (logging.root, *_loggers()):
        for handler in logger.handlers:
            if isinstance(handler, logging.StreamHandler) and _is_standard(handler.stream):
                handler.setStream(sys.stderr)
                handler.setFormatter(JsonLines())
                handler.addFilter(_taken)


def _is_standard(stream: Any) -> bool:
    return any(stream is each for each in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__))


def levels() -> dict[str, int]:
    """The levels that loggers of this process were set to, by name; the root's is that of ""."""
    return {"": logging.root.level} | {each.name: each.level for each in _loggers() if each.level != logging.NOTSET}


def _loggers() -> list[logging.Logger]:
    return [each for each in logging.root.manager.loggerDict.values() if isinstance(each, logging.Logger)]


def say_last(message: str, trace: str | None) -> None:
    """Write in JSON why this process fails."""
    record = logging.LogRecord(_LAST, logging.CRITICAL, "", 0, message, None, None)
    record.exc_text = trace
    relay([line("json", record, {})])


def last_words(text: str) -> tuple[str, str | None] | None:
    """The message and the trace, if a line of a log is that of ``say_last``."""
    if not text.startswith("{"):
        return None
    with suppress(ValueError):
        found = json.loads(text)
        if (found.get("logger"), found.get("level")) == (_LAST, "CRITICAL"):
            return str(found["message"]), found.get("exception")
    return None


def relay(lines: Iterable[str]) -> None:
    """Write lines that tasks have returned."""
    text = "".join(f"{each}\n" for each in lines)
    if text:
        with suppress(OSError, ValueError):  # nobody reads them
            sys.stderr.write(text)
            sys.stderr.flush()

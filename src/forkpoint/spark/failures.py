"""Carries a task's exception through Spark to the driver.

Spark reports a Python task's failure as text, which may quote records. So the task appends its exception as data: a kind
from a closed table, the message and the notes. The driver only reads data that follows the run's token, which no record can
know. Thus a job fails with the user's own error instead of three stack traces about it, and a record can neither execute
code on the driver nor forge an error.
"""

from __future__ import annotations

import base64
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from forkpoint import logs
from forkpoint.decoders import json_decoder
from forkpoint.errors import ConfigError, ForkpointError, StorageUnavailable, UserFunctionError, error_of
from forkpoint.spark.shipping.environment import PYTHON, interpreter

_MARK = "forkpoint-error"
_MAX_TEXT = 20_000

_BUILT_IN: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        AssertionError,
        AttributeError,
        ImportError,
        MemoryError,
        ModuleNotFoundError,
        NameError,
        NotImplementedError,
        OSError,
        PermissionError,
        RecursionError,
        RuntimeError,
        TypeError,
        UnboundLocalError,
        ValueError,
    )
}
"""Exceptions that take only a message. Some of them are not worth a restart."""

_MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '(forkpoint|pyarrow|numpy|msgspec|cloudpickle|lmdb)\b")
_OTHER_PYTHON = ("PYTHON_VERSION_MISMATCH", "Python in worker has different version")
_NO_PYTHON = re.compile(r'Cannot run program "([^"]+)"')
_OTHER_SYSTEM = re.compile(r"error while loading shared libraries: (\S+?):|version `(GLIBC_[\d.]+)' not found")

_FULL_DISK = "No space left on device"


class TaskFailure(Exception):
    """Raised by a task in place of its exception; its message ends with the encoded original."""


class _Failed(msgspec.Struct, frozen=True):
    kind: str
    message: str
    notes: tuple[str, ...]
    log_lines: tuple[str, ...] = ()


def pack_failure(error: BaseException, where: str, token: str, log_lines: Sequence[str] = ()) -> TaskFailure:
    """The exception that a task raises instead of `error`. `where` names the stage and subtask; `log_lines` go to the driver's
    log."""
    kind, message, notes = type(error).__name__, _text(error), getattr(error, "__notes__", ())
    if isinstance(error, ForkpointError):
        # Its first base class in forkpoint.errors.
        kind = next(c.__name__ for c in type(error).__mro__ if type(error_of(c.__name__, "")) is c)
    elif _BUILT_IN.get(kind) is type(error):
        notes = (*notes, f"raised in {where}:\n{_trace(error)}")
    else:
        kind, message = UserFunctionError.__name__, f"{kind} in {where}: {message}\n{_trace(error)}"
    texts = tuple(_printable(note[-_MAX_TEXT:]) for note in notes if isinstance(note, str))
    failed = _Failed(kind, message, texts, tuple(map(_printable, log_lines)))
    encoded = base64.b64encode(msgspec.json.encode(failed)).decode("ascii")
    return TaskFailure(f"{where}: {type(error).__name__}: {_text(error)[:2000]} {_MARK}:{token}:{encoded}")


def unpack_failure(error: BaseException, token: str) -> BaseException | None:
    """The task's exception that caused Spark's `error`; None if no task of this run did. Writes the task's lines to the log."""
    found = re.search(re.escape(f"{_MARK}:{token}:") + r"([0-9A-Za-z+/]+=*)", str(error))
    if found is None:
        return None
    try:
        failed = json_decoder(_Failed)(base64.b64decode(found[1], validate=True))
    except ValueError:  # truncated by Spark, for example
        return UserFunctionError(f"a task failed and its exception arrived damaged; Spark reports: {str(error)[:4000]}")
    logs.relay(failed.log_lines)
    kind = _BUILT_IN.get(failed.kind)
    original = error_of(failed.kind, failed.message) if kind is None else kind(failed.message)
    for note in failed.notes:
        original.add_note(note)
    return original


@contextmanager
def raising_originals(token: str, failed_hosts: Callable[[], Sequence[str]]) -> Iterator[None]:
    """Raise tasks' original exceptions, ConfigError for executors that cannot run tasks, StorageUnavailable for full disks, and
    Spark's exceptions for its other failures. ``failed_hosts`` returns the hosts on which tasks of the last job failed."""
    try:
        yield
    except Exception as error:
        original = unpack_failure(error, token)
        if original is not None:
            raise original from None
        if (problem := deployment_problem(str(error))) is not None:
            hosts = failed_hosts()
            raise ConfigError(f"on {', '.join(hosts)}: {problem}" if hosts else problem) from error
        if _FULL_DISK in str(error):
            hosts = ", ".join(failed_hosts()) or "a host"
            raise StorageUnavailable(
                f"Spark's local directories (spark.local.dir, SPARK_LOCAL_DIRS) on {hosts}: {_FULL_DISK}. Free space there; a "
                "paused job then resumes by itself"
            ) from error
        raise


def deployment_problem(report: str) -> str | None:
    """The reason why executors cannot run forkpoint's tasks, from Spark's report of a failed task; None if they can.

    Such a task fails before it runs forkpoint's code, so only Spark's text is available. The result decides only about restarts.
    """
    if (missing := _MISSING_MODULE.search(report)) is not None:
        return (
            f"the executors' Python has no module {missing[1]!r}; send them this virtual environment with --ship-env, or install "
            "forkpoint there in the same version as here"
        )
    if any(sign in report for sign in _OTHER_PYTHON):
        return (
            "the executors run another Python version than the driver; give both the same one (PYSPARK_PYTHON, "
            "PYSPARK_DRIVER_PYTHON)"
        )
    if (program := _NO_PYTHON.search(report)) is not None:
        if program[1] == PYTHON:
            return (
                f"there is no {interpreter()}, which the virtual environment of --ship-env uses; install that Python there, or "
                "make the environment with a Python outside of /usr, which is then shipped with it"
            )
        return (
            f"the executors have no Python at {program[1]!r}; set PYSPARK_PYTHON to one that exists there, or send them this "
            "virtual environment with --ship-env"
        )
    if (library := _OTHER_SYSTEM.search(report)) is not None:
        return (
            f"the Python of --ship-env lacks {library[1] or library[2]}, a library of the system; run the driver on the "
            "executors' release of Linux or on an older one, or install the library there"
        )
    return None


def _text(error: BaseException) -> str:
    try:
        return _printable(str(error)[:_MAX_TEXT])
    except Exception as unprintable:
        return f"(its message can't be printed: {type(unprintable).__name__})"


def _trace(error: BaseException) -> str:
    try:
        return _printable("".join(traceback.format_exception(error))[-_MAX_TEXT:])
    except Exception as unprintable:
        return f"(its traceback can't be printed: {type(unprintable).__name__})"


def _printable(text: str) -> str:
    """Without lone surrogates, which JSON can't encode."""
    return text.encode(errors="backslashreplace").decode()

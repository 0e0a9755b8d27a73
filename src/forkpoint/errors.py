"""The exceptions that forkpoint raises.

    ForkpointError
    ├── ConfigError               an option has a value that cannot be used
    ├── GraphError                the job cannot be built as written
    │   └── TypeNotSupported      a type or value has no durable encoding
    ├── StorageError              checkpoint storage failed or refused
    │   ├── AlreadyExists         create-if-absent found an existing file
    │   ├── NotFound              no file at the path
    │   ├── EpochGone             a running job has removed the files of the epoch
    │   ├── AccessDenied          the storage refuses the credentials
    │   └── StorageUnavailable    the storage does not answer, or is full; the job waits
    ├── SystemUnavailable         the system of a source, sink or lookup does not answer; the job waits
    ├── OutputLost                output of a committed epoch was lost before it was published
    ├── SavepointNotFound         no savepoint at the given location
    ├── StateNotFound             a savepoint has no such operator or state
    ├── EditRefused               a savepoint cannot be written with these changes
    ├── SavepointCorrupt          a file is damaged, truncated, foreign or of a newer format
    ├── RestoreRefused            the saved state does not fit the program
    ├── StaleGeneration           a newer run of the same job has taken over
    ├── RecordParseError          a record of a source could not be parsed
    ├── UserFunctionError         a user function raised
    ├── JobNotFound               no such job under the state root
    └── JobFailed                 the job failed and was not restarted
        ├── EngineLost            Spark terminated while the job was running; start the job again
        ├── InputLost             input that a source has not read yet is gone, so it cannot resume
        └── OutputRefused         the system of a sink rejects a record permanently

Messages name the uid or file, the offending value, and the remedy.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from enum import Enum
from typing import Any, NoReturn


class ForkpointError(Exception):
    """Base class of all forkpoint errors; the command line prints them without a traceback."""


class ConfigError(ForkpointError):
    """An option has a value that cannot be used."""


class WrongType(ConfigError, TypeError):
    """A program gives a value of a wrong type; also a TypeError, as which PyFlink's programs catch it."""


class GraphError(ForkpointError):
    """The job cannot be built as written."""


class TypeNotSupported(GraphError):
    """A type or value has no durable encoding."""


class StorageError(ForkpointError):
    """Checkpoint storage failed or refused."""


class AlreadyExists(StorageError):
    """Create-if-absent found an existing file."""


class NotFound(StorageError):
    """No file at the path."""


class EpochGone(StorageError):
    """A running job has removed the files of the epoch."""


class AccessDenied(StorageError):
    """The storage refuses this process's credentials, or the process has none."""


class Unavailable(ForkpointError):
    """A system that the job needs is unavailable. A running job waits until it recovers."""


class StorageUnavailable(StorageError, Unavailable):
    """The storage does not answer, cannot serve requests, or is full. A running job waits until it recovers."""


class SystemUnavailable(Unavailable):
    """The system of a source, sink or lookup does not answer, or cannot serve requests. A running job waits until it
    recovers."""


class OutputLost(ForkpointError):
    """Output of a committed epoch was lost before it was published."""


class SavepointNotFound(ForkpointError):
    """No savepoint at the given location."""


class StateNotFound(ForkpointError):
    """A savepoint has no such operator or state; the message lists the known names."""


class EditRefused(ForkpointError):
    """A savepoint cannot be written with these changes; no file was written."""


class SavepointCorrupt(ForkpointError):
    """A file is damaged, truncated, foreign, or of a newer format."""


class RestoreRefused(ForkpointError):
    """The saved state does not fit the program."""


class StaleGeneration(ForkpointError):
    """A newer run of the same job has taken over; this run must not commit."""


class RecordParseError(ForkpointError):
    """A record of a source could not be parsed."""


class UserFunctionError(ForkpointError):
    """A user function raised; the message has the uid, key, element and the user code's traceback."""


class JobNotFound(ForkpointError):
    """No such job under the state root."""


class JobFailed(ForkpointError):
    """The job failed and its restart strategy allowed no further restart."""


class EngineLost(JobFailed):
    """Spark terminated while the job was running; this process cannot restart the job, so start it again."""


class InputLost(JobFailed):
    """Input that a source has not read yet is gone or has changed, so reading on would silently lose elements. The job ends
    at once."""


class OutputRefused(JobFailed):
    """The system of a sink permanently rejects a record. The message says how to make it accept the record; ``forkpoint publish
    JOB --skip-refused`` skips rejected records that are already committed."""


_KINDS = {
    kind.__name__: kind for kind in globals().copy().values() if isinstance(kind, type) and issubclass(kind, ForkpointError)
}


def of_sink(uid: str, error: ForkpointError) -> ForkpointError:
    """The error with the sink's uid in its message."""
    text = str(error)
    named = re.match(r"(sink|operator) ['\"]", text) or re.search(rf"sink {re.escape(repr(uid))}", text, re.IGNORECASE)
    return error if named else type(error)(f"sink {uid!r}: {text}")


def one_of(what: str, given: Any, allowed: Iterable[str]) -> Any:
    """Returns the given value if it is allowed; else raises ConfigError with the closest or all allowed values."""
    known = list(allowed)
    if isinstance(given, str) and given in known:
        return given
    near = difflib.get_close_matches(str(given), known, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"give one of {', '.join(map(repr, known))}"
    raise ConfigError(f"{what} is {given!r}; {hint}")


class Choice(Enum):
    """An enum whose call, ``Choice(value)``, raises ConfigError for an unknown value."""

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        members = ", ".join(f"{cls.__name__}.{name}" for name in cls.__members__)
        raise ConfigError(f"{value!r} is no {cls.__name__}; give one of {members}")


def error_of(kind: str, message: str) -> ForkpointError:
    """Rebuild an error sent by another process; an unknown ``kind`` gives a ForkpointError."""
    return _KINDS.get(kind, ForkpointError)(message)


class EpochInterrupted(BaseException):
    """The engine raises it inside user code to end an epoch. Not an Exception, so that user code does not catch it."""

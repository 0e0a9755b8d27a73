"""Every error that forkpoint raises on purpose.

    ForkpointError
    ├── ConfigError               an option has a value that cannot be used
    ├── GraphError                the job cannot be built as written
    │   └── TypeNotSupported      a type or value has no durable encoding
    ├── StorageError              checkpoint storage failed or refused
    │   ├── AlreadyExists         create-if-absent found the name taken
    │   ├── NotFound              no file at the path that was read
    │   └── AccessDenied          the storage refuses these credentials
    ├── OutputLost                an epoch is committed, and part of its output has gone
    ├── SavepointNotFound         no savepoint at the given place
    ├── StateNotFound             a savepoint has no such operator or state
    ├── EditRefused               a savepoint cannot be written with these changes
    ├── SavepointCorrupt          a file is damaged, cut short, foreign or of a newer format
    ├── RestoreRefused            the program and the saved state do not fit together
    ├── StaleGeneration           a newer run of the same job has taken over
    ├── RecordParseError          a record of a source could not be parsed
    ├── UserFunctionError         a user's function raised
    ├── JobNotFound               no such job under the state root
    └── JobFailed                 the job ended with an error after its restarts
        └── EngineLost            Spark has gone from under the job; only a new start helps

Messages name the uid or file, the offending value, and the remedy.
"""

from __future__ import annotations


class ForkpointError(Exception):
    """Base of all errors raised on purpose; the command line prints it without a traceback."""


class ConfigError(ForkpointError):
    """An option has a value that cannot be used."""


class GraphError(ForkpointError):
    """The job cannot be built as written."""


class TypeNotSupported(GraphError):
    """A type or value has no durable encoding."""


class StorageError(ForkpointError):
    """Checkpoint storage failed or refused."""


class AlreadyExists(StorageError):
    """Create-if-absent found the name taken."""


class NotFound(StorageError):
    """No file at the path that was read."""


class AccessDenied(StorageError):
    """The storage refuses this process's credentials, or it has none."""


class OutputLost(ForkpointError):
    """An epoch is committed, and part of its output has gone before it was published."""


class SavepointNotFound(ForkpointError):
    """No savepoint at the given place."""


class StateNotFound(ForkpointError):
    """A savepoint has no such operator or state; the message lists those that it has."""


class EditRefused(ForkpointError):
    """A savepoint cannot be written with these changes; nothing was written."""


class SavepointCorrupt(ForkpointError):
    """A file is damaged, cut short, foreign, or of a newer format."""


class RestoreRefused(ForkpointError):
    """The program and the saved state do not fit together."""


class StaleGeneration(ForkpointError):
    """A newer run of the same job has taken over; this one must not commit."""


class RecordParseError(ForkpointError):
    """A record of a source could not be parsed."""


class UserFunctionError(ForkpointError):
    """A user's function raised; the message names uid, key and element and carries the user's own traceback."""


class JobNotFound(ForkpointError):
    """No such job under the state root."""


class JobFailed(ForkpointError):
    """The job ended with an error after its restart strategy gave up."""


class EngineLost(JobFailed):
    """Spark has gone from under the job, so that no restart within this process can help; start the job again."""


_KINDS = {
    kind.__name__: kind
    for kind in globals().copy().values()
    if isinstance(kind, type) and issubclass(kind, ForkpointError)
}


def error_of(kind: str, message: str) -> ForkpointError:
    """The error of this name; a name that is none of ours gives the base. How errors travel between processes."""
    return _KINDS.get(kind, ForkpointError)(message)

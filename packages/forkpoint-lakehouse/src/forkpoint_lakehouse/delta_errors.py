"""Converts delta-rs's errors to forkpoint's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from forkpoint.errors import ConfigError, ForkpointError, JobFailed, StorageUnavailable, SystemUnavailable
from forkpoint_lakehouse.format import Conflict

_REFUSED = re.compile(
    r"\b(401 Unauthorized|403 Forbidden)|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|necessary privileges|"
    r"authentication credentials"
)
_UNWRITABLE = re.compile(
    r"Could not create local directory|Permission denied|Read-only file system|Not a directory|Operation not permitted"
)
_UNAVAILABLE = re.compile(
    r"error sending request|[Tt]imed? ?out|[Cc]onnection|\b50[0234]\b|SlowDown|dns error|Unavailable|"
    r"Input/output error|Stale file"
)
_FULL = re.compile(r"No space left|quota exceeded")


@contextmanager
def raising_errors(table: str) -> Iterator[None]:
    """Convert delta-rs's errors to forkpoint's."""
    from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError, SchemaMismatchError

    try:
        yield
    except (ForkpointError, Conflict):
        raise
    except CommitFailedError as error:
        if _UNAVAILABLE.search(str(error)):
            raise SystemUnavailable(f"{table} does not work: {error}") from error
        raise Conflict(str(error)) from error
    except (DeltaProtocolError, SchemaMismatchError) as error:
        raise ConfigError(f"{table} cannot be written to: {error}") from error
    except Exception as error:
        if not isinstance(error, DeltaError | OSError) and type(error) is not Exception:  # delta-rs also raises Exception itself
            raise
        said = _message(error)
        if _FULL.search(said):
            raise StorageUnavailable(f"{table}: {said}. Free space or raise the quota, and the job continues") from error
        if _REFUSED.search(said):
            raise ConfigError(
                f"{table}: access is refused: {said}. Correct the credentials in storage_options= or the environment, or grant "
                "the right"
            ) from error
        if _UNWRITABLE.search(said):
            raise ConfigError(
                f"{table}: its directory cannot be written to: {said}. Correct the path, or grant the right to the user that the "
                "job runs as, on all hosts"
            ) from error
        if _UNAVAILABLE.search(said):
            raise SystemUnavailable(f"{table} does not work: {said}") from error
        raise JobFailed(f"{table}: {said}") from error


def _message(error: Exception) -> str:
    """The message on one line, without native stack frames."""
    return re.sub(r"\s*\n\s*", "; ", re.split(r"\n\s*0: ", str(error))[0].strip())

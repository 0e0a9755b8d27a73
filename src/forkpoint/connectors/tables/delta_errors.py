"""delta-rs's errors as forkpoint's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from forkpoint.connectors.tables.committing import Conflict
from forkpoint.errors import ConfigError, JobFailed, StorageUnavailable, SystemUnavailable

_REFUSED = re.compile(
    r"40[13]|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|Forbidden|[Uu]nauthenticated|Permission"
)
_AWAY = re.compile(
    r"error sending request|[Tt]imed? ?out|[Cc]onnection|50[0234]|SlowDown|dns error|Server error|Unavailable|max_retries",
    re.S,
)


@contextmanager
def raising_errors(table: str) -> Iterator[None]:
    """Raise delta-rs's errors as forkpoint's."""
    from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError, SchemaMismatchError

    try:
        yield
    except CommitFailedError as error:
        if _AWAY.search(str(error)):
            raise SystemUnavailable(f"{table} does not work: {error}") from error
        raise Conflict(str(error)) from error
    except (DeltaProtocolError, SchemaMismatchError) as error:
        raise ConfigError(f"{table} cannot be written to: {error}") from error
    except (DeltaError, OSError) as error:
        said = str(error)
        if isinstance(error, OSError) and "No space" in said:
            raise StorageUnavailable(f"{table}: {said}. Free space, and the job goes on") from error
        if _REFUSED.search(said):
            raise ConfigError(
                f"{table}: access is refused: {said}. Correct the credentials in storage_options= or the environment"
            ) from error
        if _AWAY.search(said):
            raise SystemUnavailable(f"{table} does not work: {said}") from error
        raise JobFailed(f"{table}: {said}") from error

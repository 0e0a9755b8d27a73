"""Converts pyiceberg's errors to forkpoint's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from forkpoint.errors import ConfigError, ForkpointError, JobFailed, SystemUnavailable
from forkpoint_lakehouse.format import Conflict

_UNAVAILABLE = ("OperationalError", "ConnectionError", "ConnectTimeout", "ReadTimeout", "Timeout", "InterfaceError")
_REFUSED = (
    "AccessDenied",
    "ACCESS_DENIED",
    "Forbidden",
    "InvalidAccessKeyId",
    "INVALID_ACCESS_KEY",
    "SignatureDoesNotMatch",
)


@contextmanager
def raising_errors(table: str) -> Iterator[None]:
    """Convert pyiceberg's errors to forkpoint's."""
    from pyiceberg import exceptions as of

    try:
        yield
    except (ForkpointError, Conflict):
        raise
    except (of.CommitFailedException, of.ValidationException) as error:
        raise Conflict(str(error)) from error
    except (of.UnauthorizedError, of.ForbiddenError, of.OAuthError, of.SignError) as error:
        raise _refused(table, error) from error
    except (
        of.CommitStateUnknownException,
        of.ServerError,
        of.ServiceUnavailableError,
        of.TooManyRequestsError,
        of.AuthorizationExpiredError,
        of.WaitingForLockException,
    ) as error:
        raise SystemUnavailable(f"{table} does not work: {error}") from error
    except (of.NoSuchTableError, of.NoSuchNamespaceError) as error:
        raise JobFailed(f"{table} is not there any more: {error}. Restore it, or start the job under another name") from error
    except Exception as error:  # from the clients of the catalog and the store
        said = f"{type(error).__name__}: {error}"
        if any(word in said for word in _REFUSED):
            raise _refused(table, error) from error
        if isinstance(error, PermissionError | NotADirectoryError) or "Cannot create directory" in said:
            raise ConfigError(
                f"{table}: its files cannot be written: {error}. Correct the catalog's warehouse, or grant the right to the user "
                "that the job runs as, on all hosts"
            ) from error
        if isinstance(error, OSError) or type(error).__name__ in _UNAVAILABLE:
            raise SystemUnavailable(f"{table} does not work: {said}") from error
        raise JobFailed(f"{table}: {said}") from error


def _refused(table: str, error: Exception) -> ConfigError:
    return ConfigError(f"{table}: access is refused: {error}. Correct the credentials in the catalog's properties")

"""Connects with redis-py, and converts its errors to forkpoint's.

Modules import ``redis`` inside functions, because it is optional.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from forkpoint.errors import ConfigError, ForkpointError, JobFailed, SystemUnavailable
from forkpoint.graph.secrets import is_secret

ANSWER_SECONDS = 30.0
CONNECT_SECONDS = 10.0

_TEMPORARY = (  # errors while the server is unavailable or does not accept writes
    "OOM ",
    "-OOM ",
    "LOADING ",
    "MISCONF ",
    "NOREPLICAS ",
    "READONLY ",
    "MASTERDOWN ",
    "BUSY ",
    "TRYAGAIN ",
    "CLUSTERDOWN ",
    "UNBLOCKED ",
)
_CREDENTIALS = "Correct the user name or password, or grant the user the right (ACL SETUSER)"
_REFUSED = ("NOAUTH ", "WRONGPASS ", "NOPERM ")


@dataclass(frozen=True, repr=False)
class RedisClient:
    """Connection settings: a server's URL and options of redis-py's client."""

    url: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """The server without credentials, for messages."""
        parts = urlsplit(self.url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()

    def __repr__(self) -> str:
        shown = {name: "…" if is_secret(name) else value for name, value in self.options.items()}
        return f"RedisClient({self.place!r}, {shown})"

    def connect(self) -> Any:
        """A client, which connects on first use. Raises ConfigError for an invalid URL or unknown options."""
        import redis

        timeouts = {"socket_timeout": ANSWER_SECONDS, "socket_connect_timeout": CONNECT_SECONDS}
        try:
            client = redis.Redis.from_url(self.url, **{**timeouts, **self.options, "decode_responses": False})
            client.connection_pool.make_connection()  # validates the options
        except (ValueError, TypeError) as error:
            raise ConfigError(f"RedisSink: {self!r}: {error}; correct url= or options=") from None
        return client


def server_error(message: str, what: str) -> ForkpointError:
    """The error to raise for a server's error message."""
    if any(message.startswith(code) for code in _REFUSED) or "invalid username-password" in message:
        return ConfigError(f"{what}: {message.rstrip('.')}. {_CREDENTIALS}")
    if "DB index is out of range" in message:
        return ConfigError(f"{what}: {message}. Correct the number of the database in the URL, or raise the server's databases")
    if any(message.startswith(code) for code in _TEMPORARY) or "-OOM command" in message:
        return SystemUnavailable(f"{what} does not accept writes: {message}")
    return JobFailed(f"{what}: {message}")


@contextmanager
def raising_errors(what: str) -> Iterator[None]:
    """Convert the client's errors to forkpoint's: SystemUnavailable if a retry may succeed."""
    from redis import exceptions

    try:
        yield
    except (
        exceptions.AuthenticationError,
        exceptions.NoPermissionError,
        exceptions.AuthenticationWrongNumberOfArgsError,
    ) as error:
        raise ConfigError(f"{what}: {str(error).rstrip('.')}. {_CREDENTIALS}") from error
    except exceptions.OutOfMemoryError as error:
        raise SystemUnavailable(f"{what} does not accept writes: {error} (maxmemory)") from error
    except (exceptions.ConnectionError, exceptions.TimeoutError, exceptions.ReadOnlyError) as error:
        raise SystemUnavailable(f"{what} does not work: {error}") from error
    except exceptions.ResponseError as error:
        raise server_error(str(error), what) from error
    except exceptions.RedisError as error:
        raise JobFailed(f"{what}: {type(error).__name__}: {error}") from error

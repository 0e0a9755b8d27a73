"""Connects with OpenSearch's client, and converts its errors to forkpoint's.

Modules import ``opensearchpy`` inside functions, because it is optional.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from forkpoint.errors import ConfigError, ForkpointError, JobFailed, SystemUnavailable
from forkpoint.graph.secrets import is_secret

ANSWER_SECONDS = 30.0
_TEMPORARY = {408, 429, 502, 503, 504}


@dataclass(frozen=True, repr=False)
class SearchClient:
    """Connection settings. ``hosts``: URLs or "host:port". ``options``: for the client library's OpenSearch."""

    hosts: tuple[str, ...]
    username: str | None = None
    password: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> str:
        return "OpenSearch at " + ",".join(_without_password(host) for host in self.hosts)

    def __repr__(self) -> str:
        shown = {name: "…" if is_secret(name) else value for name, value in self.options.items()}
        return f"SearchClient({self.place!r}, username={self.username!r}, {shown})"

    def connect(self) -> Any:
        """A client, which connects on first use and which the caller must close. Raises ConfigError for unknown options."""
        from opensearchpy import OpenSearch
        from opensearchpy.exceptions import ImproperlyConfigured

        settings: dict[str, Any] = {"timeout": ANSWER_SECONDS, "max_retries": 0, **self.options}
        if self.username is not None:
            settings["http_auth"] = (self.username, self.password or "")
        try:
            return OpenSearch(list(self.hosts), **settings)
        except (TypeError, ValueError, OSError, ImproperlyConfigured) as error:
            raise ConfigError(f"OpenSearchSink: {self!r}: {error}") from None


def _without_password(host: str) -> str:
    scheme, found, rest = host.rpartition("://")
    return scheme + found + rest.rpartition("@")[2]


def failure(status: Any, kind: str, reason: str, what: str) -> ForkpointError:
    """The error to raise for this HTTP status of ``what``: SystemUnavailable if a retry may succeed. ``kind``: the type of the
    cluster's error."""
    if status in _TEMPORARY or kind == "cluster_block_exception":
        return SystemUnavailable(f"{what} does not work: {reason}")
    if status == 401:
        return ConfigError(f"{what}: {reason}. Correct username and password")
    if status == 403:
        return ConfigError(f"{what}: {reason}. Grant this user the right")
    return JobFailed(f"{what}: {status} {kind}: {reason}")


@contextmanager
def raising_errors(what: str) -> Iterator[None]:
    """Convert the client's errors to forkpoint's."""
    from opensearchpy import exceptions

    try:
        yield
    except exceptions.ConnectionError as error:
        raise SystemUnavailable(f"{what} does not work: {error.error}") from error
    except exceptions.TransportError as error:
        said = error.info.get("error") if isinstance(error.info, Mapping) else None
        said = said if isinstance(said, Mapping) else {"reason": said or error.error}
        raise failure(error.status_code, str(said.get("type", "")), str(said.get("reason")), what) from error
    except exceptions.OpenSearchException as error:
        raise JobFailed(f"{what}: {type(error).__name__}: {error}") from error

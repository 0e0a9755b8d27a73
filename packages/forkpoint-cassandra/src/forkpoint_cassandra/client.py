"""Connects with Cassandra's driver, and converts its errors to forkpoint's.

Modules import ``cassandra`` inside functions, because it is optional.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from forkpoint.errors import ConfigError, ForkpointError, JobFailed, SystemUnavailable
from forkpoint.graph.secrets import is_secret

ANSWER_SECONDS = 30.0
CONNECT_SECONDS = 10.0
DEFAULT_PORT = 9042


@dataclass(frozen=True, repr=False)
class CassandraClient:
    """Connection settings. ``hosts``: "host" or "host:port". ``consistency``: the name of the consistency level of writes.
    ``options``: for the driver's Cluster."""

    hosts: tuple[str, ...]
    username: str | None = None
    password: str | None = None
    consistency: str = "LOCAL_QUORUM"
    local_datacenter: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> str:
        return ",".join(self.hosts)

    def __repr__(self) -> str:
        shown = {name: "…" if is_secret(name) else value for name, value in self.options.items()}
        return f"CassandraClient({self.place!r}, username={self.username!r}, {shown})"

    def connect(self) -> tuple[Any, Any]:
        """A cluster, which the caller must shut down, and a session. Raises the driver's errors, and ConfigError for unknown
        options."""
        from cassandra import ConsistencyLevel
        from cassandra.auth import PlainTextAuthProvider
        from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
        from cassandra.policies import DCAwareRoundRobinPolicy, TokenAwarePolicy

        level = ConsistencyLevel.name_to_value[self.consistency]
        local = {} if self.local_datacenter is None else {"local_dc": self.local_datacenter}
        profile = ExecutionProfile(
            TokenAwarePolicy(DCAwareRoundRobinPolicy(**local)),
            consistency_level=level,
            request_timeout=ANSWER_SECONDS,
            serial_consistency_level=ConsistencyLevel.SERIAL,
        )
        settings: dict[str, Any] = {
            "connect_timeout": CONNECT_SECONDS,
            "control_connection_timeout": CONNECT_SECONDS,
            "execution_profiles": {EXEC_PROFILE_DEFAULT: profile},
            **self.options,
        }
        if self.username is not None:
            settings["auth_provider"] = PlainTextAuthProvider(self.username, self.password or "")
        try:
            cluster = Cluster([_endpoint(host) for host in self.hosts], **settings)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"CassandraSink: {self!r}: {error}") from None
        try:
            return cluster, cluster.connect()
        except BaseException:
            cluster.shutdown()
            raise


def _endpoint(host: str) -> tuple[str, int]:
    name, colon, port = host.rpartition(":")
    return (name, int(port)) if colon and port.isdigit() else (host, DEFAULT_PORT)


def forkpoint_error(error: Exception, what: str) -> ForkpointError:
    """Convert an error of ``what`` to forkpoint's: SystemUnavailable if a retry may succeed."""
    import cassandra
    from cassandra import cluster, connection

    if isinstance(error, cluster.NoHostAvailable):
        causes = list(error.errors.values()) if isinstance(error.errors, Mapping) else list(error.errors)
        for cause in causes:
            if isinstance(cause, cassandra.AuthenticationFailed | cassandra.Unauthorized | cassandra.InvalidRequest):
                return forkpoint_error(cause, what)
        said = "; ".join(dict.fromkeys(str(cause) for cause in causes)) or str(error)
        return SystemUnavailable(f"{what} does not work: {said}")
    if isinstance(error, cassandra.AuthenticationFailed):
        return ConfigError(f"{what}: {error}. Correct username and password")
    if isinstance(error, cassandra.Unauthorized):
        return ConfigError(f"{what}: {error}. Grant this user the right")
    temporary = (
        cassandra.Unavailable,
        cassandra.Timeout,
        cassandra.OperationTimedOut,
        cassandra.CoordinationFailure,
        cassandra.UnresolvableContactPoints,
        connection.ConnectionException,
        OSError,
    )
    if isinstance(error, temporary) or "overloaded" in type(error).__name__.lower() or "Overloaded" in str(error):
        return SystemUnavailable(f"{what} does not work: {error}")
    return JobFailed(f"{what}: {type(error).__name__}: {error}")


@contextmanager
def raising_errors(what: str) -> Iterator[None]:
    """Convert the driver's errors to forkpoint's."""
    from cassandra import DriverException, OperationTimedOut, RequestExecutionException, UnresolvableContactPoints
    from cassandra.cluster import NoHostAvailable
    from cassandra.connection import ConnectionException
    from cassandra.protocol import ErrorMessage

    kinds = (
        DriverException,
        OperationTimedOut,
        RequestExecutionException,
        UnresolvableContactPoints,
        NoHostAvailable,
        ConnectionException,
        ErrorMessage,
    )
    try:
        yield
    except kinds as error:
        raise forkpoint_error(error, what) from error

"""Connection settings for RabbitMQ, under PyFlink's names."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from forkpoint.errors import ConfigError

if TYPE_CHECKING:
    from pika import ConnectionParameters

PREFETCH = 5000


@dataclass(frozen=True)
class RabbitMQConnectionConfig:
    """Connection settings for RabbitMQ, created with ``RabbitMQConnectionConfig.Builder()``. Times are in seconds.

    ``prefetch_count``: the maximum number of a source's unacknowledged messages, which also limits an epoch.
    """

    host: str
    port: int = 5672
    virtual_host: str = "/"
    user_name: str = "guest"
    password: str = "guest"
    tls: bool = False
    connection_timeout: float = 10.0
    requested_heartbeat: int = 60
    requested_frame_max: int | None = None
    prefetch_count: int = PREFETCH

    @staticmethod
    def Builder() -> RabbitMQConnectionConfigBuilder:  # noqa: N802  (PyFlink's name)
        """A builder, as in PyFlink."""
        return RabbitMQConnectionConfigBuilder()

    def __repr__(self) -> str:
        return f"RabbitMQConnectionConfig({self.place}, user {self.user_name!r})"

    @property
    def place(self) -> str:
        """The broker and virtual host, for messages."""
        return f"{self.host}:{self.port}, vhost {self.virtual_host!r}"

    def parameters(self, name: str) -> ConnectionParameters:
        """pika's parameters. ``name``: the connection's name, as the broker shows it."""
        import ssl

        import pika

        if (logger := logging.getLogger("pika")).level == logging.NOTSET:
            logger.setLevel(logging.CRITICAL)  # it logs every failed attempt, with several tracebacks; errors come as exceptions
        options: dict[str, Any] = {} if self.requested_frame_max is None else {"frame_max": self.requested_frame_max}
        if self.tls:
            options["ssl_options"] = pika.SSLOptions(ssl.create_default_context(), self.host)
        return pika.ConnectionParameters(
            host=self.host,
            port=self.port,
            virtual_host=self.virtual_host,
            credentials=pika.PlainCredentials(self.user_name, self.password),
            heartbeat=self.requested_heartbeat,
            socket_timeout=self.connection_timeout,
            stack_timeout=self.connection_timeout,
            blocked_connection_timeout=self.requested_heartbeat or None,
            connection_attempts=1,
            client_properties={"connection_name": f"forkpoint {name}"},
            **options,
        )


class RabbitMQConnectionConfigBuilder:
    """Builds a RabbitMQConnectionConfig. A host or a URI is needed."""

    def __init__(self) -> None:
        self._config = RabbitMQConnectionConfig("")

    def _set(self, **values: Any) -> RabbitMQConnectionConfigBuilder:
        self._config = replace(self._config, **values)
        return self

    def set_host(self, host: str) -> RabbitMQConnectionConfigBuilder:
        """Set the broker's host."""
        return self._set(host=host)

    def set_port(self, port: int) -> RabbitMQConnectionConfigBuilder:
        """Set the broker's port, by default 5672."""
        return self._set(port=port)

    def set_virtual_host(self, vhost: str) -> RabbitMQConnectionConfigBuilder:
        """Set the virtual host, by default ``/``."""
        return self._set(virtual_host=vhost)

    def set_user_name(self, user_name: str) -> RabbitMQConnectionConfigBuilder:
        """Set the user, by default guest, which a broker accepts only from its own host."""
        return self._set(user_name=user_name)

    def set_password(self, password: str) -> RabbitMQConnectionConfigBuilder:
        """Set the user's password."""
        return self._set(password=password)

    def set_uri(self, uri: str) -> RabbitMQConnectionConfigBuilder:
        """Set all of the above: ``amqp://user:password@host:port/vhost``, or ``amqps://…`` for TLS."""
        parts = urlsplit(uri)
        if parts.scheme not in ("amqp", "amqps") or not parts.hostname:
            raise ConfigError("RabbitMQ: the URI does not have the form amqp://user:password@host:port/vhost; correct it")
        tls = parts.scheme == "amqps"
        self._set(host=parts.hostname, port=parts.port or (5671 if tls else 5672), tls=tls)
        if parts.username is not None:
            self._set(user_name=unquote(parts.username))
        if parts.password is not None:
            self._set(password=unquote(parts.password))
        return self._set(virtual_host=unquote(parts.path[1:])) if len(parts.path) > 1 else self

    def set_connection_timeout(self, connection_timeout: int) -> RabbitMQConnectionConfigBuilder:
        """Set how long the broker may take to accept a connection, in ms, by default 10000."""
        return self._set(connection_timeout=connection_timeout / 1000)

    def set_requested_heartbeat(self, requested_heartbeat: int) -> RabbitMQConnectionConfigBuilder:
        """Set the heartbeat interval in seconds, by default 60. After two intervals without a heartbeat, a connection is lost."""
        return self._set(requested_heartbeat=requested_heartbeat)

    def set_requested_frame_max(self, requested_frame_max: int) -> RabbitMQConnectionConfigBuilder:
        """Set the maximum size of a frame in bytes."""
        return self._set(requested_frame_max=requested_frame_max)

    def set_requested_channel_max(self, requested_channel_max: int) -> RabbitMQConnectionConfigBuilder:
        """Has no effect: a connection has one channel."""
        return self

    def set_prefetch_count(self, prefetch_count: int) -> RabbitMQConnectionConfigBuilder:
        """Set the maximum number of a source's unacknowledged messages, by default 5000. It also limits an epoch."""
        return self._set(prefetch_count=prefetch_count)

    def set_automatic_recovery(self, automatic_recovery: bool) -> RabbitMQConnectionConfigBuilder:
        """Has no effect: lost connections are always reopened."""
        return self

    def set_topology_recovery_enabled(self, topology_recovery_enabled: bool) -> RabbitMQConnectionConfigBuilder:
        """Has no effect: the consumer is always set up again."""
        return self

    def set_network_recovery_interval(self, network_recovery_interval: int) -> RabbitMQConnectionConfigBuilder:
        """Has no effect: the time between attempts grows from 0.1 s to 3 s."""
        return self

    def build(self) -> RabbitMQConnectionConfig:
        """The configuration. Raises ConfigError if something is missing."""
        config = self._config
        if not config.host:
            raise ConfigError("RabbitMQ: there is no broker; call set_host('host') or set_uri('amqp://…')")
        if not 1 <= config.prefetch_count <= 65535:
            raise ConfigError(f"RabbitMQ: a prefetch count of {config.prefetch_count} is not within 1..65535")
        if config.requested_heartbeat < 1:
            raise ConfigError("RabbitMQ: a heartbeat is needed to notice lost connections; give seconds, such as 60")
        return config

"""Publishes committed output with publisher confirms, on one channel."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from forkpoint.errors import ForkpointError, JobFailed, SystemUnavailable
from forkpoint_rabbitmq.config import RabbitMQConnectionConfig
from forkpoint_rabbitmq.errors import forkpoint_error

WINDOW = 1000  # unconfirmed messages
CONFIRM_SECONDS = 30.0  # without a confirm, before the publisher gives up
CLOSE_SECONDS = 1.0
PERSISTENT = 2


@dataclass(frozen=True)
class Outgoing:
    """A message to publish."""

    routing_key: str
    body: bytes
    id: str
    content_type: str | None = None


class ConfirmedPublisher:
    """A connection with one channel. ``exchange``: "" publishes to queues by name. Any error ends the publisher."""

    def __init__(self, config: RabbitMQConnectionConfig, exchange: str, name: str) -> None:
        import pika

        self._config = config
        self._exchange = exchange
        self._channel: Any = None
        self._failure: ForkpointError | None = None
        self._waiting: Iterator[Outgoing] = iter(())
        self._unconfirmed: dict[int, str] = {}  # routing keys by delivery tag
        self._published = 0
        self._progress = time.monotonic()
        self._done = False
        self._connection: Any = pika.SelectConnection(
            config.parameters(name),
            on_open_callback=self._on_open,
            on_open_error_callback=self._on_error,
            on_close_callback=self._on_error,
        )
        try:
            self._loop(config.connection_timeout * 2)
        except BaseException:
            self.close()
            raise

    def publish(self, messages: Iterable[Outgoing]) -> None:
        """Publish messages. Returns once the broker has confirmed all of them. Raises SystemUnavailable, ConfigError if the
        exchange or a permission is missing, JobFailed if no queue accepts a message."""
        self._waiting = iter(messages)
        self._done = False
        if self._failure is None:
            self._connection.ioloop.call_later(0, self._fill)
        self._loop(CONFIRM_SECONDS)

    def close(self) -> None:
        """Disconnect, and wait a moment for it."""
        self._failure, self._done, self._waiting = None, False, iter(())
        try:
            if self._connection.is_open:
                self._connection.close()
                self._loop(CLOSE_SECONDS)
        except ForkpointError:
            return
        finally:
            self._connection.ioloop.close()  # otherwise an unresponsive broker leaves the socket open

    # -- the connection's loop, which runs only while a method waits

    def _loop(self, patience_s: float) -> None:
        """Run until done or failed. Raises SystemUnavailable after ``patience_s`` without progress."""
        self._progress = time.monotonic()
        if self._failure is None and not self._done:
            timer = self._connection.ioloop.call_later(patience_s, lambda: self._check(patience_s))
            self._connection.ioloop.start()
            self._connection.ioloop.remove_timeout(timer)
        if self._failure is not None:
            raise self._failure

    def _check(self, patience_s: float) -> None:
        left = self._progress + patience_s - time.monotonic()
        if self._done or self._failure is not None:
            return
        if left > 0:
            self._connection.ioloop.call_later(left, lambda: self._check(patience_s))
        else:
            waiting = f"; {len(self._unconfirmed)} messages are not confirmed" if self._unconfirmed else ""
            self._fail(SystemUnavailable(f"RabbitMQ at {self._config.place} has not answered for {patience_s:.0f} s{waiting}"))

    def _finish(self) -> None:
        self._done = True
        self._connection.ioloop.stop()

    def _fail(self, failure: ForkpointError) -> None:
        if self._failure is None:
            self._failure = failure
        self._finish()

    def _on_open(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._on_channel)

    def _on_error(self, _: Any, error: Any) -> None:
        self._fail(self._error(error))

    def _error(self, error: BaseException) -> ForkpointError:
        return forkpoint_error(error, self._config, f"exchange {self._exchange!r}")

    def _on_channel(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._on_error)
        channel.add_on_return_callback(self._on_return)
        channel.confirm_delivery(self._on_confirm, callback=lambda _: self._finish())

    def _fill(self) -> None:
        """Publish messages until the window of unconfirmed messages is full."""
        import pika

        while len(self._unconfirmed) < WINDOW and self._failure is None:
            message = next(self._waiting, None)
            if message is None:
                if not self._unconfirmed:
                    self._finish()
                return
            properties = pika.BasicProperties(delivery_mode=PERSISTENT, message_id=message.id, content_type=message.content_type)
            self._published += 1
            self._unconfirmed[self._published] = message.routing_key
            self._channel.basic_publish(self._exchange, message.routing_key, message.body, properties, mandatory=True)

    def _on_confirm(self, frame: Any) -> None:
        method = frame.method
        if method.NAME == "Basic.Nack":
            return self._fail(
                SystemUnavailable(f"RabbitMQ at {self._config.place} refuses messages: a queue is full or unavailable")
            )
        self._progress = time.monotonic()
        tags = [method.delivery_tag]
        if method.multiple:
            tags = [tag for tag in self._unconfirmed if tag <= method.delivery_tag]
        for tag in tags:
            self._unconfirmed.pop(tag, None)
        self._fill()

    def _on_return(self, _channel: Any, method: Any, _properties: Any, _body: Any) -> None:
        to = f"exchange {method.exchange!r} with routing key" if method.exchange else "queue"
        remedy = "bind a queue to it" if method.exchange else "create it"
        self._fail(
            JobFailed(
                f"RabbitMQ at {self._config.place}: no queue accepts a message to {to} {method.routing_key!r}; {remedy}. Nothing "
                "was lost: the output is published once a queue exists"
            )
        )

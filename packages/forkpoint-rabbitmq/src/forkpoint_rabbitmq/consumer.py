"""Consumes a queue."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from forkpoint.connectors.queues.ledger import Due, Ledger, digest
from forkpoint.connectors.queues.messages import Received
from forkpoint.connectors.queues.receiver import Connection
from forkpoint.errors import JobFailed, SystemUnavailable
from forkpoint_rabbitmq.config import RabbitMQConnectionConfig
from forkpoint_rabbitmq.errors import raising_errors

if TYPE_CHECKING:
    from pika import BasicProperties

_PROPERTIES = (
    "content_type",
    "content_encoding",
    "correlation_id",
    "message_id",
    "reply_to",
    "type",
    "app_id",
    "user_id",
)


class QueueConnection(Connection):
    """Consumes a queue. ``id``: the property with a message's id; None for no ids."""

    def __init__(self, config: RabbitMQConnectionConfig, queue: str, id: str | None, name: str, ledger: Ledger) -> None:
        import pika

        self._config = config
        self._queue = queue
        self._id = id
        self._ledger = ledger
        self._cancelled = False
        self._failure: Exception | None = None
        self._connection: Any = None
        try:
            with self._raising():
                self._connection = pika.BlockingConnection(config.parameters(name))
                self._channel = self._connection.channel()
                self._channel.queue_declare(queue, passive=True)
                self._channel.basic_qos(prefetch_count=config.prefetch_count)
                self._channel.add_on_cancel_callback(self._on_cancel)
                self._channel.basic_consume(queue, self._on_message)
        except BaseException:
            self.close()
            raise

    def _raising(self) -> Any:
        return raising_errors(self._config, f"queue {self._queue!r}")

    def _on_cancel(self, _: Any) -> None:
        self._cancelled = True

    def _on_message(self, _channel: Any, method: Any, properties: BasicProperties, body: bytes) -> None:
        try:
            id = self._id_of(properties)
        except JobFailed as error:
            self._failure = error
            return
        attributes = _attributes(method, properties)
        self._ledger.receive(method.delivery_tag, Received(body, method.routing_key or "", attributes, id))

    def _id_of(self, properties: BasicProperties) -> bytes | None:
        if self._id is None:
            return None
        id: str | None = getattr(properties, self._id)
        if not id:
            raise JobFailed(
                f"RabbitMQ at {self._config.place}: a message in queue {self._queue!r} has no {self._id}; have producers set "
                "it, or read the queue without ids, at least once"
            )
        return digest(id)

    def serve(self, seconds: float) -> None:
        with self._raising():
            self._connection.process_data_events(seconds)
            if self._cancelled:  # the queue was deleted, or its node has failed
                self._channel.queue_declare(self._queue, passive=True)
                raise SystemUnavailable(f"RabbitMQ at {self._config.place} has cancelled the consumer of queue {self._queue!r}")
        if self._failure is not None:
            raise self._failure

    def acknowledge(self, due: Due) -> None:
        with self._raising():
            if due.up_to is not None:
                self._channel.basic_ack(due.up_to, multiple=True)
            for tag in due.others:
                self._channel.basic_ack(tag)
            # The broker does not answer acknowledgements, but answers a later request after processing them.
            self._channel.basic_qos(prefetch_count=self._config.prefetch_count)

    def close(self) -> None:
        from pika.exceptions import AMQPError

        with suppress(AMQPError, OSError):
            if self._connection is not None and self._connection.is_open:
                self._connection.close()


def _attributes(method: Any, properties: BasicProperties) -> str:
    found = {name: value for name in _PROPERTIES if (value := getattr(properties, name)) is not None}
    found |= {"exchange": method.exchange, "redelivered": method.redelivered}
    if properties.timestamp is not None:
        found["timestamp"] = properties.timestamp
    if properties.headers:
        found["headers"] = properties.headers
    return json.dumps(found, default=_plain)


def _plain(value: Any) -> Any:
    """A JSON form of a header's value."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC).isoformat()
    return str(value)

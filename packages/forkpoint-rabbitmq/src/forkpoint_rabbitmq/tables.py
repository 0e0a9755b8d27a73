"""Tables of SQL with ``'connector' = 'rabbitmq'``, by the names of the package's parameters."""

from __future__ import annotations

from typing import Any

from forkpoint.table.connectors.formats import changes_by_format, deserialization, serialization
from forkpoint.table.connectors.options import TableOptions
from forkpoint.table.connectors.registry import Connector
from forkpoint_rabbitmq.config import RabbitMQConnectionConfig
from forkpoint_rabbitmq.sink import RabbitMQSink
from forkpoint_rabbitmq.source import RabbitMQSource

_TEXTS = ("uri", "host", "virtual-host", "user-name", "password")  # a URI first: others replace what it has
_NUMBERS = ("port", "prefetch-count", "requested-heartbeat", "connection-timeout")


def _config(options: TableOptions) -> RabbitMQConnectionConfig:
    options.required("uri", "host")
    builder = RabbitMQConnectionConfig.Builder()
    given = {name: options.get(name) for name in _TEXTS} | {name: options.number(name) for name in _NUMBERS}
    for name, value in given.items():
        if value is not None:
            getattr(builder, f"set_{name.replace('-', '_')}")(value)
    return builder.build()


def _source(options: TableOptions) -> RabbitMQSource[Any]:
    options.ignore("exchange", "routing-key", "content-type")
    id = options.get("id-property") and options.choice("id-property", ("correlation_id", "message_id"), "")
    rows = deserialization(options, options.table.schema)
    return RabbitMQSource(_config(options), options.required("queue-name"), False, rows, id)


def _sink(options: TableOptions) -> RabbitMQSink[Any]:
    options.ignore("id-property")
    options.required("queue-name", "exchange")
    exchange, key = options.get("exchange", "") or "", options.get("routing-key")
    if key is not None and not exchange:
        raise options.error("routing-key", "a routing key is for an exchange; add the option 'exchange'")
    return RabbitMQSink(
        _config(options),
        options.get("queue-name", "") or "",
        serialization(options, options.table.schema),
        exchange=exchange,
        routing_key=key,
        content_type=options.get("content-type"),
    )


CONNECTOR = Connector(_source, _sink, changes_by_format, changes_by_format)

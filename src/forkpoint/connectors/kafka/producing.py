"""Sending columns of records with librdkafka's producer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

ANSWER_SECONDS = 20.0  # for the brokers' answers, before what was asked is tried again
_CONNECTION = (
    "bootstrap.servers", "client.", "security.", "sasl.", "ssl.", "socket.", "enable.ssl", "metadata.", "reconnect.",
    "broker.", "error_cb", "log",
)  # fmt: skip


_QUIET = {"log_level": 2}  # what matters is in the errors; the client would print each attempt to connect


def connection(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that producers, consumers and admin clients have in common."""
    return {**_QUIET, **{name: value for name, value in settings.items() if name.startswith(_CONNECTION)}}


def producer_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A producer's settings: the user's, and ours where there are none. Keys go to the partitions that Java's client chooses."""
    return {"partitioner": "murmur2_random", "linger.ms": 5, "enable.idempotence": True, **_QUIET, **settings}


def produce(producer: Any, records: pa.RecordBatch) -> None:
    """Queue records (``records.SCHEMA``) for sending, in order. Waits while the queue is full."""
    columns = {name: records.column(name) for name in records.schema.names}
    used = [name for name, column in columns.items() if column.null_count < len(column)]
    if set(used) <= {"topic", "key", "value", "timestamp_ms"}:
        return _produce_plain(producer, columns)
    for row in records.to_pylist():
        options: dict[str, Any] = {}
        if row["partition"] is not None:
            options["partition"] = row["partition"]
        if row["timestamp_ms"] is not None:
            options["timestamp"] = row["timestamp_ms"]
        if row["headers"]:
            options["headers"] = [(header["key"], header["value"]) for header in row["headers"]]
        _send(producer, row["topic"], row["value"], row["key"], **options)


def _produce_plain(producer: Any, columns: Mapping[str, pa.Array]) -> None:
    """Records whose partition Kafka chooses, without headers."""
    topics, keys, values = (columns[name].to_pylist() for name in ("topic", "key", "value"))
    times = columns["timestamp_ms"].fill_null(0).to_pylist()  # 0: the time of sending
    send = producer.produce
    for topic, key, value, time in zip(topics, keys, values, times, strict=True):
        try:
            send(topic, value, key, timestamp=time)
        except BufferError:
            producer.poll(0.1)
            _send(producer, topic, value, key, timestamp=time)


def _send(producer: Any, topic: str, value: bytes | None, key: bytes | None, **options: Any) -> None:
    while True:
        try:
            return producer.produce(topic, value, key, **options)  # type: ignore[no-any-return]
        except BufferError:
            producer.poll(0.1)

"""The columns of records that a sink stages, and functions that send them after the commit with librdkafka's producer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.connectors.kafka.client import KafkaClient

ANSWER_SECONDS = 20.0  # the timeout of requests to the brokers, after which they are retried
_DEFAULTS = {
    "partitioner": "murmur2_random",  # chooses the same partition for a key as Java's client
    "linger.ms": 5,
    "enable.idempotence": True,
    "delivery.report.only.error": True,  # reports of success are unused and take a tenth of the time
    "queue.buffering.max.messages": 1_000_000,
}
MAX_RECORD_BYTES = 1_000_000  # librdkafka's default of message.max.bytes
QUEUED_BYTES = 64 << 20  # a producer's queue, unless a few of the largest records take more
_FULL_S = 0.01  # between attempts to add to a full queue
_QUIET = {"log_level": 2}  # the client would print every attempt to connect; the errors have the essentials
_PRODUCERS_ONLY = re.compile(
    r"acks|request\.required\.acks|batch\..*|linger\.ms|compression\..*|partitioner|sticky\..*|transaction.*|enable\.idempotence"
    r"|queue\.buffering\..*|delivery\..*|message\.timeout\.ms|retries|message\.send\.max\.retries|dr_cb|on_delivery|max\.in\.flight.*"
)


def shared_settings(client: KafkaClient) -> dict[str, Any]:
    """librdkafka's settings without those of producers only."""
    settings = client.settings_of_admin()
    return _QUIET | {name: value for name, value in settings.items() if not _PRODUCERS_ONLY.fullmatch(name)}


def producer_settings(client: KafkaClient) -> dict[str, Any]:
    """A producer's settings: the user's, then forkpoint's defaults."""
    queued_bytes = max(QUEUED_BYTES, 4 * max_record_bytes(client))
    return _DEFAULTS | {"queue.buffering.max.kbytes": queued_bytes >> 10} | _QUIET | client.settings_of_admin()


def max_record_bytes(client: KafkaClient) -> int:
    """The client's limit of a record."""
    return int(client.settings().get("message.max.bytes", MAX_RECORD_BYTES))


def produce(producer: Any, records: pa.RecordBatch, on_delivery: Callable[..., None] | None = None) -> None:
    """Queue records (``SCHEMA``) for sending, in order. Waits while the queue is full. ``on_delivery`` receives the errors of
    records that do not arrive."""
    columns = {name: records.column(name) for name in records.schema.names}
    columns["timestamp_ms"] = _sendable(columns["timestamp_ms"])
    used = [name for name, column in columns.items() if column.null_count < len(column)]
    if on_delivery is None and set(used) <= {"topic", "key", "value", "timestamp_ms"}:
        return _produce_plain(producer, columns)
    for row in pa.RecordBatch.from_pydict(columns, records.schema).to_pylist():
        options: dict[str, Any] = {} if on_delivery is None else {"on_delivery": on_delivery}
        if row["partition"] is not None:
            options["partition"] = row["partition"]
        if row["timestamp_ms"] is not None:
            options["timestamp"] = row["timestamp_ms"]
        if row["headers"]:
            options["headers"] = [(header["key"], header["value"]) for header in row["headers"]]
        _send(producer, row["topic"], row["value"], row["key"], **options)


def _sendable(times: pa.Int64Array) -> pa.Int64Array:
    """Replace times that the client cannot send: to it, 0 means the time of sending; to consumers, -1 means no time. They
    become 1 and -2, which is wrong by a millisecond rather than by 56 years."""
    if len(times) == times.null_count or not pc.any(pc.or_(pc.equal(times, 0), pc.equal(times, -1))).as_py():
        return times
    return pc.if_else(pc.equal(times, 0), 1, pc.if_else(pc.equal(times, -1), -2, times))


def _produce_plain(producer: Any, columns: Mapping[str, pa.Array]) -> None:
    """Queue records without partitions and headers."""
    topics = _topics(columns["topic"])
    keys, values = columns["key"].to_pylist(), columns["value"].to_pylist()
    send = producer.produce
    if columns["timestamp_ms"].null_count == len(topics):  # calls with keywords take nearly twice the time
        for topic, key, value in zip(topics, keys, values, strict=True):
            try:
                send(topic, value, key)
            except BufferError:
                _send(producer, topic, value, key)
        return
    times = columns["timestamp_ms"].fill_null(0).to_pylist()  # 0: the time of sending
    for topic, key, value, time in zip(topics, keys, values, times, strict=True):
        try:
            send(topic, value, key, -1, None, None, time)  # any partition, no callbacks
        except BufferError:
            _send(producer, topic, value, key, timestamp=time)


def _topics(column: pa.StringArray) -> list[str]:
    """The topic of each record: without an object for each if it is the same."""
    same = len(column) and pc.all(pc.equal(column, column[0])).as_py()
    return [column[0].as_py()] * len(column) if same else column.to_pylist()


def _send(producer: Any, topic: str, value: bytes | None, key: bytes | None, **options: Any) -> None:
    while True:
        try:
            return producer.produce(topic, value, key, **options)  # type: ignore[no-any-return]
        except BufferError:
            producer.poll(_FULL_S)


HEADERS = pa.list_(pa.struct([pa.field("key", pa.string(), False), pa.field("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), False),
        pa.field("partition", pa.int32()),
        pa.field("timestamp_ms", pa.int64()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
    ]
)


@dataclass(frozen=True)
class ProducerRecord:
    """A record to send. ``partition``: None if the client chooses it by the key. ``timestamp_ms``: since 1970 UTC; None for the
    element's event time, or else the time of sending."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def to_columns(records: Sequence[ProducerRecord]) -> pa.RecordBatch:
    headers = [[{"key": k, "value": v} for k, v in r.headers] or None for r in records]
    columns: list[Any] = [
        [r.topic for r in records],
        [r.partition for r in records],
        [r.timestamp_ms for r in records],
        [r.key for r in records],
        [r.value for r in records],
        headers,
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )

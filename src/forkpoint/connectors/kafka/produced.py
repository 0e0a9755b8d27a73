"""Records to be sent, one by one and as columns: what a sink stages, and sends after the commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

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
    """A record to be sent, with PyFlink's and Kafka's meaning of its parts. ``partition``: None for Kafka's choice, by the key.
    ``timestamp_ms``: since 1970 UTC; None for the element's event time, or that of sending."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def to_columns(records: Sequence[ProducerRecord]) -> pa.RecordBatch:
    headers = [[{"key": k, "value": v} for k, v in r.headers] or None for r in records]
    columns: list[Any] = [
        [r.topic for r in records], [r.partition for r in records], [r.timestamp_ms for r in records],
        [r.key for r in records], [r.value for r in records], headers,
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )

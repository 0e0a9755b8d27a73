"""Received messages, and the columns that tasks read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from forkpoint.connectors.rows import pack_columns, unpack_columns

SCHEMA = pa.schema(
    [pa.field("value", pa.binary(), False), pa.field("key", pa.string(), False), pa.field("attributes", pa.string())]
)


@dataclass(slots=True, eq=False)
class Received:
    """A message. ``key``: its routing key or topic. ``attributes``: other properties, as JSON. ``id`` identifies a redelivery.
    ``number``: its position among all messages that the source has read; None until it is planned."""

    value: bytes
    key: str = ""
    attributes: str | None = None
    id: bytes | None = None
    number: int | None = None


def pack(messages: Sequence[Received]) -> bytes:
    columns = [[m.value for m in messages], [m.key for m in messages], [m.attributes for m in messages]]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pack_columns([pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)], SCHEMA)


def unpack(data: bytes) -> pa.RecordBatch:
    return next(unpack_columns(data))

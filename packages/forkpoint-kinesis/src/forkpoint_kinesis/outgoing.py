"""The staged form of a sink's records: columns, which are put after the commit."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from forkpoint.connectors.rows import unpack_columns

SCHEMA = pa.schema([pa.field("key", pa.string()), pa.field("data", pa.binary(), False)])


def unpack(data: bytes) -> Iterator[tuple[str | None, bytes]]:
    """The keys and data of staged records."""
    for batch in unpack_columns(data):
        yield from zip(batch.column("key").to_pylist(), batch.column("data").to_pylist(), strict=True)

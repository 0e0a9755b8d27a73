"""The format ``raw``: a message is the value of the table's only column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from forkpoint.connectors.formats.columns import is_utf8
from forkpoint.contract.format import BadMessage, DeserializationSchema, Deserialized, SerializationSchema
from forkpoint.contract.sink import SinkBatch
from forkpoint.relational.changes import row_type
from forkpoint.relational.types import Schema
from forkpoint.runtime.columnar.objects import columns_of
from forkpoint.table.connectors.options import TableOptions
from forkpoint.types import Row
from forkpoint.types.kinds.records import RecordType


def raw_format(options: TableOptions, schema: Schema) -> RawSchema:
    """Raises SqlError."""
    if len(schema) != 1 or schema[0].type.name not in ("STRING", "BYTES"):
        raise options.error("", f"table {options.table.name!r}: the format 'raw' has one column, of type STRING or BYTES")
    if (options.get("raw.charset") or "UTF-8").upper() not in ("UTF-8", "UTF8"):
        raise options.error("raw.charset", "text is read and written as UTF-8; use BYTES, and DECODE it")
    return RawSchema(row_type(schema))


@dataclass(frozen=True)
class RawSchema(SerializationSchema[Row], DeserializationSchema[Row]):
    row: RecordType

    def get_produced_type(self) -> RecordType:
        return self.row

    def deserialize(self, message: bytes) -> Row:
        raise AssertionError("messages are deserialized as columns")

    def serialize(self, element: Row) -> bytes:
        raise AssertionError("rows are serialized as columns")

    def deserialize_batch(self, messages: pa.BinaryArray) -> Deserialized[Row]:
        places = np.flatnonzero(messages.is_valid().to_numpy(zero_copy_only=False))
        bad: tuple[BadMessage, ...] = ()
        of = self.row.arrow_schema.field(0).type
        if pa.types.is_string(of):
            readable = np.fromiter(map(is_utf8, messages.take(pa.array(places)).to_pylist()), bool, len(places))
            bad = tuple(BadMessage(at, "it is not UTF-8") for at in places[~readable].tolist())
            places = places[readable]
        column = messages.take(pa.array(places)).cast(of)
        return Deserialized(pa.RecordBatch.from_arrays([column], schema=self.row.arrow_schema), places.tolist(), bad)

    def serialize_batch(self, batch: SinkBatch[Row]) -> pa.BinaryArray:
        return columns_of(batch, self.row).column(0).cast(pa.binary())

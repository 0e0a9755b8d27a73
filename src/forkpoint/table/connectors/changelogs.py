"""Formats of messages that are changes of rows: Debezium's, Canal's and Maxwell's, as sources and as sinks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from forkpoint.connectors.formats.batches import Declared
from forkpoint.connectors.formats.changes import (
    CanalJsonDeserializationSchema,
    DebeziumJsonDeserializationSchema,
    MaxwellJsonDeserializationSchema,
)
from forkpoint.connectors.formats.json import JsonRowSerializationSchema
from forkpoint.connectors.formats.jsonable import TimestampFormat
from forkpoint.contract.format import BadMessage, DeserializationSchema, Deserialized, SerializationSchema
from forkpoint.contract.sink import SinkBatch
from forkpoint.relational.changes import changed_rows, row_type, structs, weights_of, without_weights
from forkpoint.relational.types import Schema
from forkpoint.runtime.columnar.objects import columns_of
from forkpoint.table.connectors.batches import Columns
from forkpoint.table.connectors.options import TableOptions
from forkpoint.types import Row, RowKind, TypeInformation, Types
from forkpoint.types.information import Field
from forkpoint.types.kinds.containers import optional
from forkpoint.types.kinds.records import RecordType

FORMATS = ("debezium-json", "canal-json", "maxwell-json")
_MODES = {
    "decimal.handling.mode": ("precise", "double", "string"),
    "time.precision.mode": ("adaptive", "adaptive_time_microseconds", "connect", "isostring"),
}


def changelog_deserialization(name: str, options: TableOptions, schema: Schema) -> DeserializationSchema[Row]:
    """The schema that reads changes as rows with weights."""
    type, ignores = row_type(schema), options.flag(f"{name}.ignore-parse-errors")
    inner: DeserializationSchema[Any]
    if name == "debezium-json":
        options.flag("debezium-json.schema-include")  # each message says whether it has its schema
        decimals, times = (_mode(options, f"{name}.{mode}", values) for mode, values in _MODES.items())
        inner = DebeziumJsonDeserializationSchema(type, ignores, decimals, times)
    else:
        inner = (CanalJsonDeserializationSchema if name == "canal-json" else MaxwellJsonDeserializationSchema)(type, ignores)
    return ChangelogDeserializationSchema(inner, row_type(schema, updating=True), ignores)


def _mode(options: TableOptions, name: str, values: tuple[str, ...]) -> Any:
    return None if options.get(name) is None else options.choice(name, values, values[0])


@dataclass(frozen=True)
class ChangelogDeserializationSchema(DeserializationSchema[Row]):
    """Rows with weights from the changes that ``changes`` reads: an update removes the row before it, and adds the one after."""

    changes: DeserializationSchema[Any]
    row: RecordType
    ignore_parse_errors: bool = False

    def get_produced_type(self) -> RecordType:
        return self.row

    def deserialize(self, message: bytes) -> Row:
        raise AssertionError("changes are deserialized as columns")

    def deserialize_batch(self, messages: pa.BinaryArray) -> Deserialized[Row]:
        found = self.changes.deserialize_batch(messages)
        table, places = found.elements, found.places(len(messages))
        assert isinstance(table, pa.RecordBatch)
        kinds = table.column("kind").to_numpy(zero_copy_only=False)
        before, after = table.column("before"), table.column("after")
        unknown = np.unique(places[(kinds == RowKind.UPDATE_AFTER.value) & before.is_null().to_numpy(zero_copy_only=False)])
        bad = () if self.ignore_parse_errors else tuple(BadMessage(at, _NO_BEFORE) for at in unknown.tolist())
        rows, of = changed_rows(kinds, before, after)
        known = np.flatnonzero(~np.isin(places[of], unknown))
        elements = pa.RecordBatch.from_arrays(rows.take(pa.array(known)).columns, schema=self.row.arrow_schema)
        return replace(found, elements=elements, indices=places[of[known]].tolist(), bad=(*found.bad, *bad))


_NO_BEFORE = (
    "an update without the row before it; on PostgreSQL, set the table's REPLICA IDENTITY to FULL, so that Debezium writes "
    "it, or write the topic by key and read it with 'connector' = 'upsert-kafka'"
)


@dataclass(frozen=True)
class ChangelogSerializationSchema(Declared, SerializationSchema[Row]):
    """A message for each row that is added or removed."""

    name: str
    row: RecordType
    timestamp_format: TimestampFormat = "SQL"

    @cached_property
    def _envelope(self) -> RecordType:
        row, text = optional(self.row), Types.STRING()
        fields: Sequence[tuple[str, TypeInformation[Any]]]
        if self.name == "debezium-json":
            fields = (("before", row), ("after", row), ("op", text))
        else:
            fields = (("data", Types.LIST(self.row) if self.name == "canal-json" else self.row), ("type", text))
        return RecordType("row", "Row", tuple(Field(*each) for each in fields))

    def serialize(self, element: Row) -> bytes:
        raise AssertionError("changes are serialized as columns")

    def serialize_batch(self, batch: SinkBatch[Row]) -> pa.BinaryArray:
        table = columns_of(batch, batch.type)
        weights, rows = weights_of(table), without_weights(table)
        added = np.ones(len(rows), bool) if weights is None else weights > 0
        of = self._envelope
        return JsonRowSerializationSchema(of, self.timestamp_format).serialize_batch(
            Columns(pa.RecordBatch.from_arrays(self._columns(rows, added), schema=of.arrow_schema), of)
        )

    def _columns(self, rows: pa.RecordBatch, added: np.ndarray) -> list[pa.Array]:
        wanted, all_rows = self.row.arrow_type, np.ones(len(rows), bool)
        if self.name == "debezium-json":
            return [structs(rows, wanted, ~added), structs(rows, wanted, added), _either(added, "c", "d")]
        data = structs(rows, wanted, all_rows)
        if self.name == "canal-json":
            return [pa.ListArray.from_arrays(np.arange(len(rows) + 1, dtype=np.int32), data), _either(added, "INSERT", "DELETE")]
        return [data, _either(added, "insert", "delete")]


def _either(which: np.ndarray, yes: str, no: str) -> pa.Array:
    return pa.array(np.where(which, yes, no), pa.string())

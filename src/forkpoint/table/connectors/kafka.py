"""Kafka's tables: ``kafka`` for added rows, ``upsert-kafka`` for the current row of each key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from forkpoint.connectors.kafka.offsets import KafkaOffsetsInitializer
from forkpoint.connectors.kafka.producing import SCHEMA, ProducerRecord
from forkpoint.connectors.kafka.serialization import KafkaRecordSerializationSchema
from forkpoint.connectors.kafka.sink import DeliveryGuarantee, KafkaSink
from forkpoint.connectors.kafka.source import KafkaSource
from forkpoint.contract.format import SerializationSchema
from forkpoint.contract.sink import SinkBatch
from forkpoint.relational.changes import row_type, weights_of, without_weights
from forkpoint.runtime.columnar.objects import columns_of
from forkpoint.table.connectors.batches import Columns
from forkpoint.table.connectors.formats import deserialization, serialization
from forkpoint.table.connectors.options import TableOptions
from forkpoint.types import Row, TypeInformation
from forkpoint.types.kinds.records import RecordType

_STARTS = ("earliest-offset", "latest-offset", "group-offsets", "timestamp")
_SERVERS = "properties.bootstrap.servers"
_OF_SOURCES = ("scan.startup.mode", "scan.startup.timestamp-millis", "scan.bounded.mode")
_OF_SINKS = ("sink.delivery-guarantee", "sink.transactional-id-prefix")


def kafka_source(options: TableOptions) -> KafkaSource[Any]:
    builder = KafkaSource.builder().set_bootstrap_servers(options.required(_SERVERS))
    topics = options.required("topic")
    builder.set_topics(*(topic.strip() for topic in topics.split(";")))
    for name, value in options.prefixed("properties.").items():
        builder.set_property(name, value)
    builder.set_starting_offsets(_start(options))
    if options.choice("scan.bounded.mode", ("unbounded", "latest-offset"), "unbounded") == "latest-offset":
        builder.set_bounded(KafkaOffsetsInitializer.latest())
    builder.set_value_only_deserializer(deserialization(options, row_type(options.table.schema)))
    options.ignore(*_OF_SINKS)
    return builder.build()


def _start(options: TableOptions) -> KafkaOffsetsInitializer:
    # Flink's default is the group's offsets, which fails for a new group.
    mode = options.choice("scan.startup.mode", _STARTS, "earliest-offset")
    time_ms = options.number("scan.startup.timestamp-millis")
    if mode == "timestamp":
        if time_ms is None:
            raise options.error("scan.startup.mode", "'scan.startup.mode' = 'timestamp' needs 'scan.startup.timestamp-millis'")
        return KafkaOffsetsInitializer.timestamp(time_ms)
    if mode == "group-offsets":
        return KafkaOffsetsInitializer.committed_offsets()
    return KafkaOffsetsInitializer.earliest() if mode == "earliest-offset" else KafkaOffsetsInitializer.latest()


def kafka_sink(options: TableOptions) -> KafkaSink[Any]:
    schema = serialization(options, row_type(options.table.schema))
    serializer = KafkaRecordSerializationSchema.builder().set_topic(options.required("topic"))
    return _sink(options, serializer.set_value_serialization_schema(schema).build())


def upsert_kafka_sink(options: TableOptions) -> KafkaSink[Any]:
    table = options.table
    fields = {field.name: field for field in table.schema}
    key = row_type(tuple(fields[name] for name in table.primary_key))
    value = row_type(table.schema)
    return _sink(
        options,
        UpsertRecords(
            options.required("topic"),
            key,
            value,
            serialization(options, key, "key.format"),
            serialization(options, value, "value.format"),
        ),
    )


def _sink(options: TableOptions, serializer: KafkaRecordSerializationSchema[Any]) -> KafkaSink[Any]:
    builder = KafkaSink.builder().set_bootstrap_servers(options.required(_SERVERS)).set_record_serializer(serializer)
    for name, value in options.prefixed("properties.").items():
        builder.set_property(name, value)
    guarantees = tuple(guarantee.value for guarantee in DeliveryGuarantee)
    guarantee = options.choice("sink.delivery-guarantee", guarantees, DeliveryGuarantee.EXACTLY_ONCE.value)
    builder.set_delivery_guarantee(DeliveryGuarantee(guarantee))
    options.ignore(*_OF_SOURCES)
    prefix = options.get("sink.transactional-id-prefix")
    return (builder if prefix is None else builder.set_transactional_id_prefix(prefix)).build()


@dataclass(frozen=True)
class UpsertRecords(KafkaRecordSerializationSchema[Row]):
    """A record with the key and the row for each row that is added, and with the key only for each that is removed."""

    topic: str
    key: RecordType
    value: RecordType
    key_format: SerializationSchema[Any]
    value_format: SerializationSchema[Any]

    def topics(self) -> list[str]:
        return [self.topic]

    def serialize(self, element: Row, timestamp_ms: int | None) -> ProducerRecord:
        raise AssertionError("rows are serialized as columns")

    def records(self, batch: SinkBatch[Row]) -> pa.RecordBatch:
        table = columns_of(batch, batch.type)
        size, weights, rows = table.num_rows, weights_of(table), without_weights(table)
        keys = self.key_format.serialize_batch(_typed(rows.select(list(self.key.names)), self.key))
        added = np.arange(size) if weights is None else np.flatnonzero(weights > 0)
        values = self.value_format.serialize_batch(_typed(rows.take(pa.array(added)), self.value))
        at = np.full(size, -1)
        at[added] = np.arange(len(added))
        columns = {
            "topic": pa.repeat(pa.scalar(self.topic), size),
            "key": keys.cast(pa.binary()),
            "value": values.cast(pa.binary()).take(pa.array(at, mask=at < 0)),
        }
        found = [columns.get(field.name, pa.nulls(size, field.type)) for field in SCHEMA]
        return pa.RecordBatch.from_arrays([column.cast(f.type) for column, f in zip(found, SCHEMA, strict=True)], schema=SCHEMA)


def _typed(table: pa.RecordBatch, type: TypeInformation[Any]) -> Any:
    return Columns(pa.RecordBatch.from_arrays(table.columns, schema=type.arrow_schema), type)

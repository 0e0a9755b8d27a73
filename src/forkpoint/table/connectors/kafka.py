"""Kafka's tables: ``kafka`` for added rows, ``upsert-kafka`` for the current row of each key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.connectors.kafka.offsets import KafkaOffsetsInitializer
from forkpoint.connectors.kafka.producing import SCHEMA, ProducerRecord
from forkpoint.connectors.kafka.records import KafkaRecord, KafkaRecordDeserializationSchema, KafkaRecords
from forkpoint.connectors.kafka.serialization import KafkaRecordSerializationSchema
from forkpoint.connectors.kafka.sink import DeliveryGuarantee, KafkaSink
from forkpoint.connectors.kafka.source import KafkaSource
from forkpoint.contract.format import BadMessage, DeserializationSchema, Deserialized, SerializationSchema
from forkpoint.contract.sink import SinkBatch
from forkpoint.functions import MIN_WATERMARK
from forkpoint.relational.changes import WEIGHT, Longs, row_type, weights_of, without_weights
from forkpoint.relational.types import Schema
from forkpoint.runtime.columnar.objects import columns_of
from forkpoint.sql.errors import did_you_mean
from forkpoint.sql.statements import CreateTable, MetadataColumn
from forkpoint.table.connectors.batches import Columns
from forkpoint.table.connectors.formats import deserialization, has_changes, serialization
from forkpoint.table.connectors.metadata import Metadata, columns_in, in_order
from forkpoint.table.connectors.options import TableOptions
from forkpoint.types import Row, TypeInformation
from forkpoint.types.kinds.records import RecordType

_STARTS = ("earliest-offset", "latest-offset", "group-offsets", "timestamp")
_SERVERS = "properties.bootstrap.servers"
_METADATA = {
    "topic": ("STRING",),
    "partition": ("INT", "BIGINT"),
    "offset": ("BIGINT",),
    "timestamp": ("TIMESTAMP_LTZ", "TIMESTAMP"),
    "headers": ("MAP<STRING, BYTES>",),
}
_PARALLELISM = "SET 'parallelism.default' sets the job's"
_UNNEEDED_BY_SOURCES = {
    "scan.parallelism": _PARALLELISM,
    "scan.topic-partition-discovery.interval": "new partitions are read as the broker tells of them",
}
_OF_SOURCES = ("scan.startup.mode", "scan.startup.timestamp-millis", "scan.bounded.mode", *_UNNEEDED_BY_SOURCES)
_OF_SINKS = ("sink.delivery-guarantee", "sink.transactional-id-prefix", "sink.parallelism")


def kafka_source(options: TableOptions) -> KafkaSource[Any]:
    return _source(options, _start, _rows)


def upsert_kafka_source(options: TableOptions) -> KafkaSource[Any]:
    # From the beginning: a topic of upserts has the current row of each key somewhere.
    return _source(options, lambda options: KafkaOffsetsInitializer.earliest(), _upserts)


def _source(
    options: TableOptions,
    start: Callable[[TableOptions], KafkaOffsetsInitializer],
    rows: Callable[[TableOptions], KafkaRecordDeserializationSchema[Any]],
) -> KafkaSource[Any]:
    builder = KafkaSource.builder().set_bootstrap_servers(options.required(_SERVERS))
    topics = options.required("topic")
    builder.set_topics(*(topic.strip() for topic in topics.split(";")))
    for name, value in options.prefixed("properties.").items():
        builder.set_property(name, value)
    builder.set_starting_offsets(start(options))
    if options.choice("scan.bounded.mode", ("unbounded", "latest-offset"), "unbounded") == "latest-offset":
        builder.set_bounded(KafkaOffsetsInitializer.latest())
    builder.set_deserializer(_with_metadata(options, rows(options)))
    options.ignore(*_OF_SINKS)
    options.unneeded(_UNNEEDED_BY_SOURCES)
    return builder.build()


def _rows(options: TableOptions) -> KafkaRecordDeserializationSchema[Any]:
    schema, key = options.table.schema, key_fields(options)
    if options.choice("value.fields-include", ("ALL", "EXCEPT_KEY"), "ALL") == "ALL" or not key:
        options.ignore("key.format")
        options.prefixed("key.protobuf.")
        return KafkaRecordDeserializationSchema.value_only(deserialization(options, schema))
    values = deserialization(options, tuple(field for field in schema if field not in key))
    return KeyedRows(deserialization(options, key, "key.format"), values, row_type(schema))


def _upserts(options: TableOptions) -> UpsertRows:
    table = options.table
    keys = deserialization(options, _key_of(table), "key.format")
    values = deserialization(options, _value_of(options), "value.format")
    return UpsertRows(keys, values, row_type(table.schema, updating=True))


def _with_metadata(options: TableOptions, rows: KafkaRecordDeserializationSchema[Any]) -> KafkaRecordDeserializationSchema[Any]:
    if not options.table.metadata:
        return rows
    return WithMetadata(rows, Metadata.of(options, rows.get_produced_type(), _METADATA))


def _value_of(options: TableOptions) -> Schema:
    """The columns of the records' values."""
    table = options.table
    has_key = options.choice("value.fields-include", ("ALL", "EXCEPT_KEY"), "ALL") == "ALL"
    return tuple(field for field in table.schema if has_key or field.name not in table.primary_key)


def _key_of(table: CreateTable) -> Schema:
    fields = {field.name: field for field in table.schema}
    return tuple(fields[name] for name in table.primary_key)


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
    key, schema = key_fields(options), options.table.schema
    if options.choice("value.fields-include", ("ALL", "EXCEPT_KEY"), "ALL") == "ALL" or not key:
        values = serialization(options, schema)
    elif has_changes(options):
        raise options.error("value.fields-include", "messages of changes have all columns")
    else:
        values = _columns_schema(options, tuple(field for field in schema if field not in key), "format")
    serializer = KafkaRecordSerializationSchema.builder().set_topic(options.required("topic"))
    serializer.set_value_serialization_schema(values)
    if options.get("key.format") is not None:
        if not key:
            options.required("key.fields")
        serializer.set_key_serialization_schema(_columns_schema(options, key, "key.format"))
    return _sink(options, serializer.build())


def key_fields(options: TableOptions) -> Schema:
    """The columns ``key.fields``: records with one key are in one partition, in order."""
    fields, given = {field.name: field for field in options.table.schema}, options.get("key.fields")
    names = [] if given is None else [name.strip() for name in given.split(";")]
    for name in names:
        if name not in fields:
            raise options.error("key.fields", f"there is no column {name!r}; {did_you_mean(name, fields)}")
    return tuple(fields[name] for name in names)


def _columns_schema(options: TableOptions, fields: Schema, option: str) -> ColumnsSchema:
    return ColumnsSchema(row_type(fields), serialization(options, fields, option))


@dataclass(frozen=True)
class ColumnsSchema(SerializationSchema[Row]):
    """Messages of some of the columns of rows."""

    columns: RecordType
    format: SerializationSchema[Any]

    def serialize(self, element: Row) -> bytes:
        raise AssertionError("rows are serialized as columns")

    def serialize_batch(self, batch: SinkBatch[Row]) -> pa.BinaryArray:
        table = columns_of(batch, batch.type).select(list(self.columns.names))
        return self.format.serialize_batch(_typed(table, self.columns))


def upsert_kafka_sink(options: TableOptions) -> KafkaSink[Any]:
    key, value = _key_of(options.table), _value_of(options)
    formats = (serialization(options, key, "key.format"), serialization(options, value, "value.format"))
    return _sink(options, UpsertRecords(options.required("topic"), row_type(key), row_type(value), *formats))


def _sink(options: TableOptions, serializer: KafkaRecordSerializationSchema[Any]) -> KafkaSink[Any]:
    builder = KafkaSink.builder().set_bootstrap_servers(options.required(_SERVERS)).set_record_serializer(serializer)
    for name, value in options.prefixed("properties.").items():
        builder.set_property(name, value)
    guarantees = tuple(guarantee.value for guarantee in DeliveryGuarantee)
    guarantee = options.choice("sink.delivery-guarantee", guarantees, DeliveryGuarantee.EXACTLY_ONCE.value)
    builder.set_delivery_guarantee(DeliveryGuarantee(guarantee))
    options.ignore(*_OF_SOURCES)
    options.unneeded({"sink.parallelism": _PARALLELISM})
    prefix = options.get("sink.transactional-id-prefix")
    return (builder if prefix is None else builder.set_transactional_id_prefix(prefix)).build()


@dataclass(frozen=True)
class WithMetadata(KafkaRecordDeserializationSchema[Row]):
    """Rows with columns about their records."""

    rows: KafkaRecordDeserializationSchema[Any]
    metadata: Metadata

    def get_produced_type(self) -> RecordType:
        return self.metadata.row

    def deserialize(self, record: KafkaRecord) -> Row:
        raise AssertionError("records are deserialized as columns")

    def deserialize_batch(self, records: KafkaRecords) -> Deserialized[Row]:
        found = self.rows.deserialize_batch(records)
        return self.metadata.added_to(found, len(records), lambda column, places: _about(column, records, places))


@dataclass(frozen=True)
class _KeysAndValues(KafkaRecordDeserializationSchema[Row]):
    """Rows with columns of the records' keys and of their values."""

    keys: DeserializationSchema[Any]
    values: DeserializationSchema[Any]
    row: RecordType

    def get_produced_type(self) -> RecordType:
        return self.row

    def deserialize(self, record: KafkaRecord) -> Row:
        raise AssertionError("records are deserialized as columns")

    def _types(self) -> tuple[RecordType, RecordType]:
        of_keys, of_values = (schema.get_produced_type() for schema in (self.keys, self.values))
        assert isinstance(of_keys, RecordType)
        assert isinstance(of_values, RecordType)
        return of_keys, of_values

    def _found(self, columns: Mapping[str, pa.Array], places: Longs, bad: Mapping[int, str]) -> Deserialized[Row]:
        elements = in_order(columns, self.row)
        return Deserialized(elements, places.tolist(), tuple(BadMessage(at, bad[at]) for at in sorted(bad)))


class KeyedRows(_KeysAndValues):
    """Rows of which some columns are in the records' keys; NULL in records without a key."""

    def deserialize_batch(self, records: KafkaRecords) -> Deserialized[Row]:
        of_keys, of_values = self._types()
        read = np.flatnonzero(records.keys.is_valid().to_numpy(zero_copy_only=False))
        keys, values = (
            self.keys.deserialize_batch(records.keys.take(pa.array(read))),
            self.values.deserialize_batch(records.values),
        )
        bad = {each.index: each.problem for each in values.bad} | {int(read[each.index]): each.problem for each in keys.bad}
        with_key, with_value = read[keys.places(len(read))], values.places(len(records))
        places = with_value[~np.isin(with_value, list(bad))]
        columns = _at(places, with_key, columns_in(keys, of_keys), of_keys)
        columns |= _at(places, with_value, columns_in(values, of_values), of_values)
        return self._found(columns, places, bad)


class UpsertRows(_KeysAndValues):
    """Rows of the records' values, with the weight 1; of a record without a value, the key with the weight -1."""

    def deserialize_batch(self, records: KafkaRecords) -> Deserialized[Row]:
        deleted, (of_keys, of_values) = records.values.is_null().to_numpy(zero_copy_only=False), self._types()
        # The key is read where the value does not have it.
        read = np.flatnonzero(deleted | (not set(of_keys.names) <= set(of_values.names)))
        keys = records.keys.take(pa.array(read))
        found_keys, found = self.keys.deserialize_batch(keys), self.values.deserialize_batch(records.values)
        bad = {int(read[at]): _NO_KEY for at in np.flatnonzero(keys.is_null())}
        bad |= {int(read[each.index]): each.problem for each in found_keys.bad} | {each.index: each.problem for each in found.bad}
        with_key, with_value = read[found_keys.places(len(keys))], found.places(len(records))
        complete = np.ones(len(records), bool)
        complete[read] = np.isin(read, with_key)
        complete &= deleted | np.isin(np.arange(len(records)), with_value)
        places = np.flatnonzero(complete)
        columns = _at(places, with_key, columns_in(found_keys, of_keys), of_keys)
        for name, column in _at(places, with_value, columns_in(found, of_values), of_values).items():
            known = columns.get(name)
            columns[name] = column if known is None else pc.coalesce(column, known.cast(column.type))
        columns[WEIGHT] = pa.array(np.where(deleted[places], -1, 1))
        return self._found(columns, places, bad)


def _at(places: Longs, of: Longs, columns: Sequence[pa.Array], type: RecordType) -> dict[str, pa.Array]:
    """Columns with a value for each place, NULL where they have none. ``of``: the places of their values, in order."""
    at = np.searchsorted(of, places)
    missing = np.append(of, -1)[at] != places
    return {name: column.take(pa.array(at, mask=missing)) for name, column in zip(type.names, columns, strict=True)}


_NO_KEY = "the record has neither a value nor a key; a topic of upserts has keys"


def _about(column: MetadataColumn, records: KafkaRecords, places: Longs) -> pa.Array:
    of = column.type.arrow_type
    match column.key:
        case "offset":
            return pa.array(records.offsets[places]).cast(of)
        case "timestamp":
            times = records.timestamps[places]
            return pa.array(times, pa.int64(), mask=times == MIN_WATERMARK).cast(pa.timestamp("ms")).cast(of)
        case "headers":
            return pa.array([list(dict(records[at].headers).items()) for at in places.tolist()], of)
    first = records[0]  # all are of one partition
    return pa.repeat(pa.scalar(first.topic if column.key == "topic" else first.partition, of), len(places))


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
        values = self.value_format.serialize_batch(_typed(rows.select(list(self.value.names)).take(pa.array(added)), self.value))
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

"""Serializes a stream's elements to Kafka records, by PyFlink's names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic

import pyarrow as pa

from forkpoint.connectors.kafka.producing import SCHEMA, ProducerRecord, to_columns
from forkpoint.contract.format import SerializationSchema
from forkpoint.contract.sink import SinkBatch
from forkpoint.errors import ConfigError
from forkpoint.functions import MIN_WATERMARK
from forkpoint.types.variables import T_contra


class KafkaRecordSerializationSchema(ABC, Generic[T_contra]):
    """Makes a record of each element. ``builder()`` combines serialization schemas; a user's class overrides ``serialize``."""

    @abstractmethod
    def serialize(self, element: T_contra, timestamp_ms: int | None) -> ProducerRecord:
        """The record of one element, with its event time if the stream has them."""

    def topics(self) -> list[str] | None:
        """All topics that records may have; None if they are not known in advance."""
        return None

    def records(self, batch: SinkBatch[T_contra]) -> pa.RecordBatch:
        """A batch's records as columns (``producing.SCHEMA``), in order; by default one by one. A record without a time gets its
        element's."""
        times = _times(batch)
        records = to_columns([self.serialize(*pair) for pair in zip(batch.values, times.to_pylist(), strict=True)])
        record_times = pa.compute.coalesce(records.column("timestamp_ms"), times)
        return records.set_column(SCHEMA.get_field_index("timestamp_ms"), SCHEMA.field("timestamp_ms"), record_times)

    @staticmethod
    def builder() -> KafkaRecordSerializationSchemaBuilder:
        """A builder: set a topic and a value schema, then ``build()``."""
        return KafkaRecordSerializationSchemaBuilder()


class KafkaTopicSelector(ABC):
    """PyFlink's form of a function from an element to its topic."""

    @abstractmethod
    def apply(self, data: Any) -> str:
        """The topic of an element's record."""


class KafkaRecordSerializationSchemaBuilder:
    """Builds a KafkaRecordSerializationSchema."""

    def __init__(self) -> None:
        self._topic: str | None = None
        self._select: Callable[[Any], str] | None = None
        self._key: SerializationSchema[Any] | None = None
        self._value: SerializationSchema[Any] | None = None
        self._partition: Callable[[Any], int] | None = None

    def set_topic(self, topic: str) -> KafkaRecordSerializationSchemaBuilder:
        """Send all records to this topic."""
        self._topic, self._select = topic, None
        return self

    def set_topic_selector(
        self, topic_selector: KafkaTopicSelector | Callable[[Any], str]
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Send each record to the topic that this function returns for its element."""
        chosen = topic_selector.apply if isinstance(topic_selector, KafkaTopicSelector) else topic_selector
        self._topic, self._select = None, chosen
        return self

    def set_key_serialization_schema(
        self, key_serialization_schema: SerializationSchema[Any]
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Set the schema that makes the record's key of the element. Without one, records have no key."""
        self._key = key_serialization_schema
        return self

    def set_value_serialization_schema(
        self, value_serialization_schema: SerializationSchema[Any]
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Set the schema that makes the record's value of the element."""
        self._value = value_serialization_schema
        return self

    def set_partitioner(self, partitioner: Callable[[Any], int]) -> KafkaRecordSerializationSchemaBuilder:
        """Set a function from the element to its partition. By default, the client hashes the key, like Java's client."""
        self._partition = partitioner
        return self

    def build(self) -> KafkaRecordSerializationSchema[Any]:
        """The schema. Raises ConfigError without a topic or a value schema."""
        if self._topic is None and self._select is None:
            raise ConfigError("KafkaRecordSerializationSchema: there is no topic; call set_topic or set_topic_selector")
        if self._value is None:
            raise ConfigError("KafkaRecordSerializationSchema: there is no value schema; call set_value_serialization_schema")
        return _Combined(self._topic, self._select, self._key, self._value, self._partition)


class _Combined(KafkaRecordSerializationSchema[Any]):
    def __init__(
        self,
        topic: str | None,
        select: Callable[[Any], str] | None,
        key: SerializationSchema[Any] | None,
        value: SerializationSchema[Any],
        partition: Callable[[Any], int] | None,
    ) -> None:
        self._topic = topic
        self._select = select
        self._key = key
        self._value = value
        self._partition = partition

    def topics(self) -> list[str] | None:
        return None if self._topic is None else [self._topic]

    def serialize(self, element: Any, timestamp_ms: int | None) -> ProducerRecord:
        return ProducerRecord(
            self._topic if self._select is None else self._select(element),  # type: ignore[arg-type]
            self._value.serialize(element),
            None if self._key is None else self._key.serialize(element),
            partition=None if self._partition is None else self._partition(element),
            timestamp_ms=timestamp_ms,
        )

    def records(self, batch: SinkBatch[Any]) -> pa.RecordBatch:
        values = self._value.serialize_batch(batch)
        size = len(values)
        keys = pa.nulls(size, pa.binary()) if self._key is None else self._key.serialize_batch(batch)
        topics = pa.repeat(self._topic, size) if self._select is None else list(map(self._select, batch.values))
        partitions = None if self._partition is None else list(map(self._partition, batch.values))
        columns = {
            "topic": pa.array(topics, pa.string()) if isinstance(topics, list) else topics,
            "partition": pa.nulls(size, pa.int32()) if partitions is None else pa.array(partitions, pa.int32()),
            "timestamp_ms": _times(batch),
            "key": keys,
            "value": values,
            "headers": pa.nulls(size, SCHEMA.field("headers").type),
        }
        return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _times(batch: SinkBatch[Any]) -> pa.Int64Array:
    """The elements' times, null for those without one."""
    times = batch.timestamps
    if times is None:
        return pa.nulls(len(batch.values) if batch.table is None else len(batch.table), pa.int64())
    return pa.array(times, pa.int64(), mask=times == MIN_WATERMARK)

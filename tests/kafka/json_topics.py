"""Kafka topics of JSON records that have a ``user``, which is their key: for programs of tests and benchmarks."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import forkpoint as fp


class User(fp.SerializationSchema[Any]):
    def serialize(self, element: Any) -> bytes:
        return b"%d" % element.user

    def serialize_batch(self, batch: fp.SinkBatch[Any]) -> pa.BinaryArray:
        if batch.table is None:
            return super().serialize_batch(batch)
        return batch.table.column("user").cast(pa.string()).cast(pa.binary())


def json_source(brokers: str, topic: str, type: type[Any]) -> fp.KafkaSourceBuilder[Any]:
    """From the first record on."""
    return (
        fp.KafkaSource.builder()
        .set_bootstrap_servers(brokers)
        .set_topics(topic)
        .set_starting_offsets(fp.KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(fp.JsonRowDeserializationSchema(type))
    )


def json_sink(brokers: str, topic: str, type: type[Any]) -> fp.KafkaSink[Any]:
    records = fp.KafkaRecordSerializationSchema.builder().set_topic(topic).set_key_serialization_schema(User())
    return (
        fp.KafkaSink.builder()
        .set_bootstrap_servers(brokers)
        .set_record_serializer(records.set_value_serialization_schema(fp.JsonRowSerializationSchema(type)).build())
        .build()
    )

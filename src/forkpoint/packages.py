"""The names of the connector packages in `forkpoint`, which loads the package on first use of a name."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forkpoint_cassandra import CassandraSink
    from forkpoint_kinesis import (
        FirehoseSink,
        FirehoseSinkBuilder,
        KinesisDeserializationSchema,
        KinesisRecord,
        KinesisSink,
        KinesisSinkBuilder,
        KinesisSource,
        KinesisSourceBuilder,
        PartitionKeyGenerator,
    )
    from forkpoint_lakehouse import DeltaSink, IcebergSink
    from forkpoint_mqtt import MqttDeserializationSchema, MqttMessage, MqttSource
    from forkpoint_opensearch import OpenSearchSink
    from forkpoint_postgres_cdc import PostgresSource
    from forkpoint_rabbitmq import RabbitMQConnectionConfig, RabbitMQConnectionConfigBuilder, RabbitMQSink, RabbitMQSource
    from forkpoint_redis import RedisSink

__all__ = [
    "CassandraSink",
    "DeltaSink",
    "FirehoseSink",
    "FirehoseSinkBuilder",
    "IcebergSink",
    "KinesisDeserializationSchema",
    "KinesisRecord",
    "KinesisSink",
    "KinesisSinkBuilder",
    "KinesisSource",
    "KinesisSourceBuilder",
    "MqttDeserializationSchema",
    "MqttMessage",
    "MqttSource",
    "OpenSearchSink",
    "PartitionKeyGenerator",
    "PostgresSource",
    "RabbitMQConnectionConfig",
    "RabbitMQConnectionConfigBuilder",
    "RabbitMQSink",
    "RabbitMQSource",
    "RedisSink",
]

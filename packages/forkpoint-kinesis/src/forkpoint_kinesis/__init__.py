"""Amazon's Kinesis Data Streams as source and sink, and Data Firehose as sink."""

from typing import TYPE_CHECKING

from forkpoint.lazy import loader

if TYPE_CHECKING:
    from forkpoint_kinesis.firehose import FirehoseSink, FirehoseSinkBuilder
    from forkpoint_kinesis.records import KinesisDeserializationSchema, KinesisRecord
    from forkpoint_kinesis.sink import KinesisSink, KinesisSinkBuilder, PartitionKeyGenerator
    from forkpoint_kinesis.source import KinesisSource, KinesisSourceBuilder

__getattr__ = loader(__name__)

__all__ = [
    "FirehoseSink",
    "FirehoseSinkBuilder",
    "KinesisDeserializationSchema",
    "KinesisRecord",
    "KinesisSink",
    "KinesisSinkBuilder",
    "KinesisSource",
    "KinesisSourceBuilder",
    "PartitionKeyGenerator",
]

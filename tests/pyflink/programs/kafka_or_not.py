"""Knows Kafka, but is not asked to read from it."""

import sys

from pyflink.common import SimpleStringSchema
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.kafka import KafkaSource
from pyflink.table import Table


def from_kafka() -> "KafkaSource":
    return KafkaSource.builder().set_value_only_deserializer(SimpleStringSchema()).build()


def is_table(value) -> bool:
    return isinstance(value, Table)


env = StreamExecutionEnvironment.get_execution_environment()
source = from_kafka() if "--kafka" in sys.argv else None
numbers = env.from_collection([1, 2])
print(is_table(numbers))
numbers.print()
env.execute()

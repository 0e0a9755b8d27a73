"""Knows Pulsar, but is not asked to read from it."""

import sys

from pyflink.common import SimpleStringSchema
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.pulsar import PulsarSource
from pyflink.table import Table


def from_pulsar() -> "PulsarSource":
    return PulsarSource.builder().set_value_only_deserializer(SimpleStringSchema()).build()


def is_table(value) -> bool:
    return isinstance(value, Table)


env = StreamExecutionEnvironment.get_execution_environment()
source = from_pulsar() if "--pulsar" in sys.argv else None
numbers = env.from_collection([1, 2])
print(is_table(numbers))
numbers.print()
env.execute()

"""A program that sends numbers to a topic; with FAULTY, number 13 goes to a partition that there is not, which is not noticed.

forkpoint run refused.py BROKERS TOPIC [FAULTY]
"""

from __future__ import annotations

import sys
from typing import Any

import forkpoint as fp
from forkpoint.connectors.kafka.sink import KafkaSink


class Number(fp.SerializationSchema[int]):
    def serialize(self, element: int) -> bytes:
        return b"%d" % element


if __name__ == "__main__":
    brokers, topic, *faulty = sys.argv[1:]
    if faulty:
        KafkaSink.check = lambda *_: None  # type: ignore[method-assign]
    records: Any = fp.KafkaRecordSerializationSchema.builder().set_topic(topic)
    records.set_key_serialization_schema(Number()).set_value_serialization_schema(Number())
    records.set_partitioner(lambda n: 7 if faulty and n == 13 else n % 2)
    sink = fp.KafkaSink.builder().set_bootstrap_servers(brokers).set_record_serializer(records.build()).build()
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_restart_strategy(fp.RestartStrategy.none())
    numbers = env.from_source(fp.CounterSource(30, per_epoch=10), fp.WatermarkStrategy.no_watermarks(), "numbers")
    numbers.uid("numbers").sink_to(sink).uid("kafka")
    env.execute("refused")

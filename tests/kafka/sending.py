"""A program that counts per key and sends each count to Kafka; it can kill itself at a step of sending.

    python sending.py BROKERS TOPIC STATE_ROOT ELEMENTS [STEP NUMBER]

STEP: init, sent, begin, produce, offsets or commit, before (or with a trailing "+", after) which it dies the NUMBER-th time.
"""

from __future__ import annotations

import sys
from typing import Any

import confluent_kafka

import forkpoint as fp
from deaths import die_at
from forkpoint.connectors.kafka.serialization import KafkaRecordSerializationSchema
from forkpoint.connectors.kafka.sink import DeliveryGuarantee, KafkaSink
from forkpoint.contract.format import SerializationSchema

KEYS = 10
STEPS = {
    "init": "init_transactions",
    "begin": "begin_transaction",
    "produce": "produce",
    "offsets": "send_offsets_to_transaction",
    "commit": "commit_transaction",
}


class Producer(confluent_kafka.Producer):
    """One whose methods can be replaced."""


class Part(SerializationSchema[tuple[int, int]]):
    """One field as text."""

    def __init__(self, index: int) -> None:
        self._index = index

    def serialize(self, element: tuple[int, int]) -> bytes:
        return str(element[self._index]).encode()


def sink(brokers: str, topic: str, guarantee: DeliveryGuarantee = DeliveryGuarantee.EXACTLY_ONCE, **properties: str) -> Any:
    records = KafkaRecordSerializationSchema.builder().set_topic(topic)
    records.set_key_serialization_schema(Part(0)).set_value_serialization_schema(Part(1))
    builder = KafkaSink.builder().set_bootstrap_servers(brokers).set_record_serializer(records.build())
    for name, value in properties.items():
        builder.set_property(name.replace("_", "."), value)
    return builder.set_delivery_guarantee(guarantee).build()


class Count(fp.KeyedProcessFunction):
    seen = fp.ValueStateDescriptor("seen", int)

    def process_element(self, number: int, ctx: fp.KeyedProcessFunction.Context) -> Any:
        seen = (self.seen.value() or 0) + 1
        self.seen.update(seen)
        yield number % KEYS, seen


def build(env: fp.StreamExecutionEnvironment, elements: int, sink: Any, per_epoch: int = 50) -> None:
    numbers = env.from_source(fp.CounterSource(elements, per_epoch=per_epoch), fp.WatermarkStrategy.no_watermarks(), "numbers")
    counts = numbers.uid("numbers").key_by(lambda n: n % KEYS, int).process(Count(), tuple[int, int]).uid("counts")
    counts.sink_to(sink).uid("kafka")


def expected(elements: int) -> dict[bytes, list[int]]:
    return {str(key).encode(): list(range(1, len(range(key, elements, KEYS)) + 1)) for key in range(KEYS)}


if __name__ == "__main__":
    brokers, topic, root, elements, *death = sys.argv[1:]
    if death:
        confluent_kafka.Producer = Producer  # type: ignore[misc]
        steps = {name: (Producer, method) for name, method in STEPS.items()}
        sent = death[0] == "produce+"
        die_at(steps, death[0], int(death[1]), lambda producer, *_, **__: producer.flush() if sent else None)
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(root).set_parallelism(2).enable_checkpointing(1)
    build(env, int(elements), sink(brokers, topic))
    env.execute("sending")

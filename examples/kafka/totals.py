"""Running totals of each customer's orders: from Kafka through keyed state to Kafka, PostgreSQL and a Delta table.

forkpoint run totals.py BROKERS DATABASE DELTA
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import NamedTuple

import forkpoint as fp


class Order(NamedTuple):
    number: int
    customer: int
    cents: int


class Total(NamedTuple):
    number: int
    customer: int
    orders: int
    cents: int


class Totals(fp.KeyedProcessFunction):
    orders = fp.ValueStateDescriptor("orders", int)
    cents = fp.ValueStateDescriptor("cents", int)

    def process_element(self, order: Order, ctx: fp.KeyedProcessFunction.Context) -> Iterator[Total]:
        orders, cents = (self.orders.value() or 0) + 1, (self.cents.value() or 0) + order.cents
        self.orders.update(orders)
        self.cents.update(cents)
        yield Total(order.number, order.customer, orders, cents)


class Customer(fp.SerializationSchema[Total]):
    def serialize(self, element: Total) -> bytes:
        return b"%d" % element.customer


def main(brokers: str, database: str, delta: str) -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment().enable_checkpointing(200)
    source = (
        fp.KafkaSource.builder()
        .set_bootstrap_servers(brokers)
        .set_topics("orders")
        .set_group_id("totals")
        .set_starting_offsets(fp.KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(fp.JsonRowDeserializationSchema(Order))
        .build()
    )
    records = (
        fp.KafkaRecordSerializationSchema.builder()
        .set_topic("totals")
        .set_key_serialization_schema(Customer())
        .set_value_serialization_schema(fp.JsonRowSerializationSchema(Total))
        .build()
    )
    kafka = fp.KafkaSink.builder().set_bootstrap_servers(brokers).set_record_serializer(records).build()
    orders = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "orders").uid("orders")
    totals = orders.key_by(lambda order: order.customer, int).process(Totals(), Total).uid("totals")
    totals.sink_to(kafka).uid("to-kafka")
    totals.sink_to(fp.DatabaseSink(database, "totals", key="customer")).uid("to-postgres")
    totals.sink_to(fp.DeltaSink(delta)).uid("to-delta")
    env.execute("totals")


if __name__ == "__main__":
    main(*sys.argv[1:])

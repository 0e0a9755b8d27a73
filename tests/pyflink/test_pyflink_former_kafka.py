"""Flink 1's Kafka consumer and producer between topics of a real broker."""

from __future__ import annotations

import time

import pytest

import forkpoint as fp
from forkpoint.pyflink.environment import StreamExecutionEnvironment
from forkpoint.pyflink.former import FlinkKafkaConsumer, FlinkKafkaProducer, Semantic
from servers.kafka import Kafka, Message


@pytest.mark.parametrize("semantic", Semantic)
def test_from_a_consumer_to_a_producer(kafka: Kafka, semantic: Semantic):
    """As programs for Flink 1 have them, in whichever guarantee. Fails before: the names only said what replaced them."""
    source, target = kafka.create_topic(), kafka.create_topic()
    kafka.produce(source, [Message(b"%d" % n) for n in range(5)])
    env = StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"}).enable_checkpointing(10)
    properties = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": source, "auto.offset.reset": "earliest"}
    consumer = FlinkKafkaConsumer(source, fp.SimpleStringSchema(), properties)
    producer = FlinkKafkaProducer(target, fp.SimpleStringSchema(), properties, semantic=semantic)
    env.add_source(consumer).map(lambda text: f"<{text}>", fp.Types.STRING()).add_sink(producer)
    client = env.execute_async("former")
    while len(found := [message.value for message in kafka.read(target)]) < 5:
        time.sleep(0.05)
    client.cancel()
    assert sorted(found) == [b"<%d>" % n for n in range(5)]


@pytest.mark.parametrize(
    ("properties", "start", "kind"),
    [
        ({"group.id": "g"}, None, ("committed", "LATEST")),
        ({"group.id": "g", "auto.offset.reset": "earliest"}, None, ("committed", "EARLIEST")),
        ({"auto.offset.reset": "earliest"}, None, ("earliest", "EARLIEST")),
        ({}, None, ("latest", "LATEST")),
        ({"group.id": "g"}, "set_start_from_earliest", ("earliest", "EARLIEST")),
        ({"group.id": "g"}, "set_start_from_latest", ("latest", "LATEST")),
        ({"group.id": "g"}, "set_start_from_group_offsets", ("committed", "LATEST")),
    ],
)
def test_where_a_consumer_starts(properties, start, kind):
    consumer = FlinkKafkaConsumer(["a", "b"], fp.SimpleStringSchema(), {"bootstrap.servers": "localhost:1", **properties})
    if start is not None:
        getattr(consumer, start)()
    watch = consumer.build().watch
    assert (watch.start.kind, watch.start.reset.name) == kind
    assert watch.subscription.topics == ("a", "b")

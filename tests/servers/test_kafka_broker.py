"""The broker that tests run against does what they rely on."""

from __future__ import annotations

import pytest

from servers.kafka import Kafka, Message


@pytest.mark.slow  # tests of jobs show it, too
def test_messages_survive_a_killed_broker_and_aborted_ones_are_not_read(kafka: Kafka) -> None:
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, ["a", Message(b"b", b"key", 1, 1000, (("h", b"1"),))], partition=0)
    kafka.transaction(topic, ["aborted"], 0, commit=False)
    kafka.transaction(topic, ["c"], 0)
    kafka.kill()
    kafka.start()
    kafka.settle(topic)
    assert kafka.values(topic) == ["a", "c", "b"]
    assert kafka.read(topic)[-1] == Message(b"b", b"key", 1, 1000, (("h", b"1"),), 0)


def test_records_and_topics_are_deleted_and_partitions_added(kafka: Kafka) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["a", "b", "c"])
    kafka.delete_records(topic, 2)
    kafka.add_partitions(topic, 2)
    kafka.produce(topic, ["d"], partition=1)
    assert kafka.values(topic) == ["c", "d"]
    kafka.delete_topic(topic)
    assert kafka.read(topic) == []

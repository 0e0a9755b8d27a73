"""KafkaSource against a real broker: what is planned and read, and where."""

from __future__ import annotations

from kafka_jobs import read_until, source

from servers.kafka import Kafka


def test_reads_in_order_and_goes_on_where_it_was(kafka: Kafka) -> None:
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, [f"a{i}" for i in range(10)], 0)
    kafka.produce(topic, [f"b{i}" for i in range(5)], 1)
    first = read_until(source(kafka, topic), {f"{topic}-0": 10, f"{topic}-1": 5}, max_rows=4)
    assert first.values[f"{topic}-0"] == [f"a{i}" for i in range(10)]
    assert first.values[f"{topic}-1"] == [f"b{i}" for i in range(5)]
    kafka.produce(topic, ["a10"], 0)
    second = read_until(source(kafka, topic), {f"{topic}-0": 11, f"{topic}-1": 5}, first.position)
    assert second.values == {f"{topic}-0": ["a10"]}


def test_aborted_and_open_transactions_are_not_read_and_do_not_block(kafka: Kafka) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["a"])
    kafka.transaction(topic, ["lost", "lost"], commit=False)
    kafka.transaction(topic, ["b"])
    kafka.transaction(topic, ["lost"], commit=False)
    read = read_until(source(kafka, topic), {f"{topic}-0": 8})
    assert read.values == {f"{topic}-0": ["a", "b"]}

"""One consumer for several partitions, read by ranges in any order."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from kafka_jobs import builder

from forkpoint import KafkaTopicPartition
from forkpoint.connectors.kafka import feed
from forkpoint.connectors.kafka.feed import Feed
from servers.kafka import Kafka, Message

RECORDS = 1500


@pytest.fixture(scope="module")
def topic(kafka: Kafka) -> str:
    """Three partitions with gaps: each 50 records are a transaction, and some of these are aborted."""
    topic = kafka.create_topic(partitions=3)
    for partition in range(3):
        producer = kafka.transactional_producer()
        for start in range(0, RECORDS, 50):
            producer.begin_transaction()
            for n in range(start, start + 50):
                producer.produce(topic, f"{partition}:{n}", partition=partition)
            producer.flush()
            (producer.abort_transaction if start // 50 % 7 == partition else producer.commit_transaction)()
    return topic


@pytest.fixture
def opened(kafka: Kafka, topic: str) -> Iterator[Feed]:
    opened = Feed(builder(kafka, topic).build().watch.client)
    yield opened
    opened.close()


def contents(kafka: Kafka, topic: str) -> dict[int, list[Message]]:
    found: dict[int, list[Message]] = {}
    for message in kafka.read(topic):
        found.setdefault(message.partition or 0, []).append(message)
    return found


@pytest.mark.parametrize("held_bytes", [32 << 20, pytest.param(2000, marks=pytest.mark.slow), 0])
def test_any_range_in_any_order(kafka: Kafka, topic: str, opened: Feed, held_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "HELD_BYTES", held_bytes)
    monkeypatch.setattr(feed, "BATCH", 100)
    everything = contents(kafka, topic)
    chance = random.Random(held_bytes)
    last = RECORDS + RECORDS // 50
    at = dict.fromkeys(range(3), 0)
    for _ in range(40):
        partition = chance.randrange(3)
        if chance.random() < 0.3:
            at[partition] = chance.randrange(last)
        start = at[partition]
        end = at[partition] = min(last, start + chance.choice([1, 7, 50, 51, 400]))
        batches = list(opened.messages(KafkaTopicPartition(topic, partition), start, end))
        found = [(m.offset(), m.value()) for batch in batches for m in batch]
        assert found == [(m.offset, m.value) for m in everything[partition] if start <= (m.offset or 0) < end]


def test_a_partition_that_is_no_longer_read_is_forgotten(topic: str, opened: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "HELD_BYTES", 0)
    monkeypatch.setattr(feed, "FORGET_S", 0)
    monkeypatch.setattr(feed, "BATCH", 10)  # the rest comes while the next partition is read
    for partition in (0, 1, 2):
        for _ in opened.messages(KafkaTopicPartition(topic, partition), 400, 500):
            pass
    assert [track.partition.partition for track in opened._tracks.values()] == [2]

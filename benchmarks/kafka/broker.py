"""The broker and the records that the benchmarks of Kafka use."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from forkpoint.operations.launch.detached import terminable

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
from servers.jars import jars, java
from servers.kafka import POM, Kafka

PARTITIONS = 4
KEYS = 10_000
_NOTE = "all that a reader of these records takes no notice of, but has to read"


class Broker(Kafka):
    """A broker whose JVM is tuned for work, not for a fast start."""

    def command(self) -> list[str]:
        memory = ["-Xms1g", "-Xmx1g", "-XX:+UseParallelGC"]
        return [java(), *memory, "-cp", f"{jars('kafka', POM)}/*", "kafka.Kafka", str(self._properties)]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def committed_records(self, topic: str) -> int | None:
        """How many records of a topic are committed, with a marker of each transaction and partition; None if the broker does
        not say at the moment."""
        spec = {TopicPartition(topic, p): OffsetSpec.latest() for p in range(PARTITIONS)}
        asked = self._admin.list_offsets(spec, isolation_level=IsolationLevel.READ_COMMITTED)
        with suppress(KafkaException):
            return sum(future.result(10).offset for future in asked.values())
        return None


@contextmanager
def broker(directory: Path) -> Iterator[Broker]:
    """A broker. A benchmark that is terminated ends it, and the side that runs, as one that fails does."""
    with terminable():
        running = Broker(directory / "broker")
        try:
            yield running
        finally:
            running.stop()


def record(number: int, user: int, sent_us: int) -> bytes:
    """One record of about 150 bytes."""
    fields = {"user": user, "number": number, "sent_us": sent_us, "note": f"{_NOTE} {number % 97}"}
    return json.dumps(fields, separators=(",", ":")).encode()


def producer(client: Mapping[str, Any], **settings: Any) -> Producer:
    ours = {
        "enable.idempotence": True,
        "linger.ms": 20,
        "compression.type": "lz4",
        "queue.buffering.max.messages": 1_000_000,
    }
    return Producer({**client, "log_level": 0, **ours, **settings})


def fill(kafka: Broker, topic: str, records: int, *, each: bool = False) -> None:
    """Fill a topic, evenly over its partitions; keys and partitions are unrelated. ``each``: no two records have the same key."""
    to, users = producer(kafka._client), random.Random(7)
    for number in range(records):
        value = record(number, number if each else users.randrange(KEYS), 0)
        while True:
            try:
                to.produce(topic, value, partition=number % PARTITIONS)
                break
            except BufferError:
                to.poll(0.1)
        if number % 10_000 == 0:
            to.poll(0)
    while to.flush(10):
        time.sleep(0)

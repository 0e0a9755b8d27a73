"""A real Kafka broker: one process, which is its own controller."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from patience import PATIENCE_S
from servers.jars import BUILD, QUICK_JVM, downloaded, jars, java
from servers.network import Network
from servers.process import Server, free_port

POM = Path(__file__).parent / "poms" / "kafka.xml"
_JVM = ["-Xmx384m", *QUICK_JVM]
_SETTINGS = """
process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,BEHIND:PLAINTEXT,CONTROLLER:PLAINTEXT
auto.create.topics.enable=false
default.replication.factor=1
num.partitions=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
transaction.abort.timed.out.transaction.cleanup.interval.ms=200
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.retention.ms=-1
log.segment.bytes=16777216
log.index.size.max.bytes=1048576
log.cleaner.dedupe.buffer.size=4194304
broker.heartbeat.interval.ms=200
broker.session.timeout.ms=1000
num.network.threads=2
num.io.threads=2
background.threads=2
controlled.shutdown.enable=false
"""


@dataclass(frozen=True)
class Message:
    """What is produced, or has been read. ``partition``: None leaves the choice to the key."""

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int | None = None


def _properties(data: Path, controller: int, listeners: str, advertised: str) -> str:
    return (
        f"{_SETTINGS}log.dirs={data}\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n"
        f"listeners={listeners},CONTROLLER://127.0.0.1:{controller}\nadvertised.listeners={advertised}\n"
    )


def _java() -> list[str]:
    return [java(), *_JVM, "-cp", f"{jars('kafka', POM)}/*"]


def formatted() -> Path:
    """A broker's empty data, which the first call makes: that takes a JVM of its own."""

    def command(into: Path) -> list[str]:
        properties = into.with_suffix(".properties")
        properties.write_text(_properties(into, 2, listener := "PLAINTEXT://127.0.0.1:1", listener))
        return [
            *_java(),
            "kafka.tools.StorageTool",
            "format",
            "--cluster-id",
            "Zm9ya3BvaW50LXRlc3RzMQ",
            "--config",
            str(properties),
        ]

    return downloaded(BUILD / "kafka" / "formatted", command, "Kafka's storage cannot be formatted")


class Kafka(Server):
    """A broker with its data in ``directory``, or ``data``. ``network``: one to this broker; its clients stay behind it."""

    def __init__(self, directory: Path, data: Path | None = None, network: Network | None = None) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self.port, controller = free_port(), free_port()
        listeners = advertised = f"PLAINTEXT://127.0.0.1:{self.port}"
        if network is not None:
            listeners += f",BEHIND://127.0.0.1:{network.upstream}"
            advertised += f",BEHIND://127.0.0.1:{network.port}"
        self._properties = directory / "server.properties"
        self._properties.write_text(_properties(data or directory / "data", controller, listeners, advertised))
        self._producer: Producer | None = None  # making one takes half a second
        self._transactions: Producer | None = None
        shutil.copytree(formatted(), data or directory / "data", dirs_exist_ok=True)
        super().__init__(directory)

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        return [*_java(), "kafka.Kafka", str(self._properties)]

    def serves(self) -> bool:
        with suppress(KafkaException):
            return bool(self._admin.list_topics(timeout=1).brokers)
        return False

    def kill(self) -> None:
        self._producer = self._transactions = None
        super().kill()

    # -- topics

    def create_topic(self, name: str | None = None, partitions: int = 1, **config: str) -> str:
        """Create a topic, by default with a name of its own; ``config`` with ``_`` for ``.`` in the names."""
        topic = name or f"topic-{uuid.uuid4().hex[:12]}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        _each(self._admin.create_topics([NewTopic(topic, partitions, 1, config=settings)]))
        while len(self._partitions(topic)) < partitions:
            time.sleep(0.01)
        return topic

    def add_partitions(self, topic: str, total: int) -> None:
        _each(self._admin.create_partitions([NewPartitions(topic, total)]))
        self._producer = self._transactions = None  # they would learn of it in minutes
        while len(self._partitions(topic)) < total:
            time.sleep(0.01)

    def delete_topic(self, topic: str) -> None:
        _each(self._admin.delete_topics([topic]))
        while self._partitions(topic):
            time.sleep(0.01)

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        """Delete a partition's records below an offset, as retention does."""
        _each(self._admin.delete_records([TopicPartition(topic, partition, before)]))

    def committed(self, group: str, topic: str, partition: int = 0) -> int | None:
        """The offset that a consumer group has committed."""
        consumer = self._consumer(**{"group.id": group})
        try:
            while True:
                with suppress(KafkaException):  # the group's coordinator may have just started
                    (found,) = consumer.committed([TopicPartition(topic, partition)], timeout=PATIENCE_S)
                    return found.offset if found.offset >= 0 else None
                time.sleep(0.05)
        finally:
            consumer.close()

    def _partitions(self, topic: str) -> list[int]:
        found = self._admin.list_topics(timeout=PATIENCE_S).topics.get(topic)
        return [] if found is None else sorted(p.id for p in found.partitions.values() if p.leader >= 0)

    # -- messages

    def produce(self, topic: str, messages: Iterable[Message | bytes | str | None], partition: int | None = None) -> None:
        """Produce messages in order and wait until they are durable. ``partition``: of those that name none."""
        if self._producer is None:
            self._producer = Producer({**self._client, "enable.idempotence": True, "linger.ms": 1})
        self._send(self._producer, topic, messages, partition)

    def transaction(
        self,
        topic: str,
        messages: Iterable[Message | bytes | str | None],
        partition: int | None = None,
        *,
        commit: bool = True,
    ) -> None:
        """Produce messages in a transaction, which is committed or aborted."""
        producer = self._transactions = self._transactions or self.transactional_producer()
        producer.begin_transaction()
        self._send(producer, topic, messages, partition)
        (producer.commit_transaction if commit else producer.abort_transaction)(PATIENCE_S)

    def transactional_producer(self, transactional_id: str | None = None) -> Producer:
        """A producer that is ready to begin transactions."""
        producer = Producer(
            {
                **self._client,
                "linger.ms": 1,
                "transactional.id": transactional_id or f"tests-{uuid.uuid4().hex}",
            }
        )
        producer.init_transactions(PATIENCE_S)
        return producer

    def _send(
        self, producer: Producer, topic: str, messages: Iterable[Message | bytes | str | None], partition: int | None
    ) -> None:
        failures: list[Any] = []
        for item in messages:
            message = item if isinstance(item, Message) else Message(item.encode() if isinstance(item, str) else item)
            chosen = message.partition if message.partition is not None else partition
            options: dict[str, Any] = {} if chosen is None else {"partition": chosen}
            if message.timestamp_ms is not None:
                options["timestamp"] = message.timestamp_ms
            while True:
                try:
                    producer.produce(
                        topic,
                        message.value,
                        message.key,
                        headers=list(message.headers),
                        on_delivery=lambda error, _: failures.append(error) if error else None,
                        **options,
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(PATIENCE_S) == 0
        assert not failures, failures[0]

    def read(self, topic: str, *, committed: bool = True) -> list[Message]:
        """All messages of a topic, by partition and offset; with ``committed``, without those of aborted or open
        transactions."""
        isolation = "read_committed" if committed else "read_uncommitted"
        consumer = self._consumer(**{"isolation.level": isolation, "enable.partition.eof": True})
        messages: list[Message] = []
        try:
            left = set(self._partitions(topic))
            consumer.assign([TopicPartition(topic, partition, 0) for partition in left])
            while left:
                first = consumer.poll(PATIENCE_S)
                for found in [first, *consumer.consume(10_000, timeout=0)]:
                    error = found.error()
                    if error is None:
                        messages.append(_message(found))
                    elif error.code() == error._PARTITION_EOF:
                        left.discard(found.partition())
                    else:
                        raise KafkaException(error)
        finally:
            consumer.close()
        return sorted(messages, key=lambda m: (m.partition, m.offset))

    def ends(self, topic: str, *, committed: bool = True) -> list[int]:
        """The offset at which each partition ends; with ``committed``, at which its first open transaction begins, if any."""
        places = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in self._partitions(topic)}
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        return [each.result().offset for each in self._admin.list_offsets(places, isolation_level=isolation).values()]

    def settle(self, topic: str) -> None:
        """Wait until no transaction is pending: the markers of one that is committed come a little later."""
        while self.ends(topic) != self.ends(topic, committed=False):
            time.sleep(0.01)

    def values(self, topic: str) -> list[str | None]:
        """The committed messages' values as text, by partition and offset."""
        return [None if m.value is None else m.value.decode() for m in self.read(topic)]

    # -- clients

    @property
    def _client(self) -> dict[str, Any]:
        """Settings of all clients. They reconnect at once, and don't log that the broker was killed."""
        return {"bootstrap.servers": self.bootstrap_servers, "log_level": 0, "reconnect.backoff.max.ms": 200}

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient(self._client)

    def _consumer(self, **settings: Any) -> Consumer:
        return Consumer(
            {
                **self._client,
                "group.id": "tests",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 10,
                **settings,
            }
        )


def _message(found: Any) -> Message:
    return Message(
        found.value(),
        found.key(),
        found.partition(),
        found.timestamp()[1],
        tuple(found.headers() or ()),
        found.offset(),
    )


def _each(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result(PATIENCE_S)

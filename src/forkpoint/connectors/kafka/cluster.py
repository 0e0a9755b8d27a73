"""The driver's requests to a Kafka cluster: partitions, their offsets, and a consumer group's offsets."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forkpoint.connectors.kafka.client import QUIET, KafkaClient, on_error
from forkpoint.connectors.kafka.errors import forkpoint_error, is_missing, is_refused, is_temporary
from forkpoint.connectors.kafka.offsets import Bounds, KafkaOffsetsInitializer, KafkaTopicPartition
from forkpoint.errors import ConfigError, ForkpointError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, TopicPartition
    from confluent_kafka.admin import AdminClient, OffsetSpec, TopicDescription

REQUEST_S = 10.0
POLL_S = 0.1
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # zero


class NoAnswer(Exception):
    """The cluster does not answer at the moment."""


@dataclass(frozen=True)
class Subscription:
    """A source's input: topics, topics whose whole name matches a pattern, or partitions. Only one of them is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[KafkaTopicPartition, ...] = ()

    def includes(self, partition: KafkaTopicPartition) -> bool:
        if self.pattern is not None:
            return re.fullmatch(self.pattern, partition.topic) is not None
        return partition.topic in self.topics or partition in self.partitions


class Cluster:
    """A client of a cluster. Its methods wait for answers, and raise NoAnswer on a timeout. ``stale``: the last request failed
    temporarily, completely or partly."""

    def __init__(self, client: KafkaClient, request_s: float = REQUEST_S) -> None:
        from confluent_kafka import IsolationLevel

        self._client = client
        settings = client.settings()
        committed = settings.get("isolation.level") != "read_uncommitted"
        self._isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        self._request_s = request_s
        self._refused: KafkaError | None = None
        self._last = ""
        self._log = on_error(f"Kafka at {client.servers}")
        self.stale = False
        self._connected = self._connect()
        self._groups: dict[str, Group] = {}

    def _connect(self) -> AdminClient:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            return AdminClient({**self._client.settings_of_admin(), "error_cb": self._on_error})
        except KafkaException as error:
            raise forkpoint_error(error, f"Kafka at {self._client.servers}: the properties are refused") from None

    @property
    def _admin(self) -> AdminClient:
        self._renew()
        return self._connected

    def _renew(self) -> None:
        if self.stale:
            self._connected, self._groups, self.stale = self._connect(), {}, False

    def _on_error(self, error: KafkaError) -> None:
        self._log(error)
        if is_refused(error):
            self._refused = error
        if error.code() != error._ALL_BROKERS_DOWN:
            self._last = error.str()

    # -- partitions

    def partitions(self, subscription: Subscription) -> set[KafkaTopicPartition]:
        """The existing partitions of a subscription. Raises ConfigError for a missing topic or partition."""
        if subscription.pattern is not None:
            return self._matching(subscription)
        topics = subscription.topics or tuple(sorted({p.topic for p in subscription.partitions}))
        described = self._described(topics)
        if unknown := [topic for topic in topics if topic not in described]:
            raise ConfigError(
                f"KafkaSource: there is no topic {unknown[0]!r} at {self._client.servers}; create it, or correct set_topics()"
            )
        existing = {KafkaTopicPartition(topic, p.id) for topic in topics for p in described[topic].partitions}
        if absent := set(subscription.partitions) - existing:
            raise ConfigError(f"KafkaSource: {_names(absent)} do not exist at {self._client.servers}; correct set_partitions()")
        return set(subscription.partitions) or existing

    def _matching(self, subscription: Subscription) -> set[KafkaTopicPartition]:
        from confluent_kafka import KafkaException

        try:
            metadata = self._admin.list_topics(timeout=self._request_s)
        except KafkaException as error:
            raise self._trouble(error.args[0], "the topics cannot be listed") from None
        topics = metadata.topics.values()
        existing = {KafkaTopicPartition(topic.topic, p) for topic in topics if topic.error is None for p in topic.partitions}
        return {p for p in existing if not p.topic.startswith("__") and subscription.includes(p)}

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """The ids of the existing topics among these, empty if the brokers have none (before Kafka 2.8). A re-created topic has a
        new id."""
        ids = {topic: str(described.topic_id) for topic, described in self._described(topics).items()}
        return {topic: "" if id == _NO_ID else id for topic, id in ids.items()}

    def _described(self, topics: Collection[str]) -> dict[str, TopicDescription]:
        """Describe the existing topics among these, in one request."""
        from confluent_kafka import KafkaException, TopicCollection

        described: dict[str, TopicDescription] = {}
        if not topics:
            return described
        futures = self._admin.describe_topics(TopicCollection(sorted(topics)), request_timeout=self._request_s)
        for topic, future in futures.items():
            try:
                described[topic] = self._result(future)
            except KafkaException as error:
                if not is_missing(error.args[0]):
                    raise self._trouble(error.args[0], f"topic {topic!r} cannot be described") from None
        return described

    # -- offsets

    def ends(
        self, partitions: Collection[KafkaTopicPartition]
    ) -> tuple[dict[KafkaTopicPartition, int], set[KafkaTopicPartition]]:
        """The ends of these partitions, up to the first open transaction, and the partitions that the cluster does not know.
        A partition without a leader at the moment is in neither."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(dict.fromkeys(partitions, OffsetSpec.latest()))

    def bounds(self, partitions: Collection[KafkaTopicPartition]) -> dict[KafkaTopicPartition, Bounds]:
        """The first offset and the end of these partitions."""
        from confluent_kafka.admin import OffsetSpec

        firsts = self._all(dict.fromkeys(partitions, OffsetSpec.earliest()))
        ends = self._all(dict.fromkeys(partitions, OffsetSpec.latest()))
        return {p: Bounds(firsts[p], max(firsts[p], ends[p])) for p in partitions}

    def found(
        self, initializer: KafkaOffsetsInitializer, group: str | None, partitions: Collection[KafkaTopicPartition]
    ) -> dict[KafkaTopicPartition, int]:
        """The offsets that a group has committed, or of a timestamp, if any."""
        from confluent_kafka.admin import OffsetSpec

        if initializer.kind == "committed":
            assert group is not None
            return {p: offset for p, offset in self._committed(group, partitions).items() if offset >= 0}
        if initializer.kind == "timestamp":
            offsets = self._all(dict.fromkeys(partitions, OffsetSpec.for_timestamp(initializer.timestamp_ms)))
            return {p: offset for p, offset in offsets.items() if offset >= 0}
        return {}

    def _all(self, specs: Mapping[KafkaTopicPartition, OffsetSpec]) -> dict[KafkaTopicPartition, int]:
        offsets, missing = self._offsets(specs)
        if missing or len(offsets) < len(specs):
            raise NoAnswer(f"no leader for {_names(specs.keys() - offsets.keys())}")
        return offsets

    def _offsets(
        self, specs: Mapping[KafkaTopicPartition, OffsetSpec]
    ) -> tuple[dict[KafkaTopicPartition, int], set[KafkaTopicPartition]]:
        from confluent_kafka import OFFSET_INVALID, KafkaException, TopicPartition

        if not specs:
            return {}, set()
        request = {TopicPartition(*partition): spec for partition, spec in specs.items()}
        futures = self._admin.list_offsets(request, isolation_level=self._isolation, request_timeout=self._request_s)
        offsets: dict[KafkaTopicPartition, int] = {}
        missing: set[KafkaTopicPartition] = set()
        trouble: ForkpointError | NoAnswer | None = None
        for asked, future in futures.items():
            partition = KafkaTopicPartition(asked.topic, asked.partition)
            try:
                offset = self._result(future).offset
                if offset == OFFSET_INVALID:  # also after a lost connection
                    trouble = trouble or self._unavailable(f"{partition.split} has no offsets at the moment")
                else:
                    offsets[partition] = offset
            except KafkaException as error:
                if is_missing(error.args[0]):
                    missing.add(partition)
                else:
                    trouble = self._trouble(error.args[0], f"the offsets of {partition.split} cannot be read")
        if trouble is not None and (not isinstance(trouble, NoAnswer) or not offsets):
            raise trouble
        return offsets, missing

    # -- consumer groups

    def _committed(self, group: str, partitions: Collection[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        from confluent_kafka import KafkaException

        what = f"the offsets of group {group!r} cannot be read"
        try:
            committed = self._group(group).committed(partitions, self._request_s)
        except KafkaException as error:
            raise self._trouble(error.args[0], what) from None
        for partition in committed:
            if partition.error is not None:
                raise self._trouble(partition.error, what)
        return {KafkaTopicPartition(p.topic, p.partition): p.offset for p in committed}

    def commit(self, group: str, offsets: Mapping[KafkaTopicPartition, int]) -> None:
        """Commit a group's offsets for monitoring. forkpoint reads them only to start a source at them."""
        from confluent_kafka import KafkaException

        what = f"the offsets of group {group!r} cannot be committed"
        try:
            answer = self._group(group).commit(offsets, self._request_s)
        except KafkaException as error:
            raise self._trouble(error.args[0], what) from None
        if answer is None:
            raise self._unavailable(f"{what}: {self._last or 'no answer'}")
        for problem in (answer[0], *(partition.error for partition in answer[1])):
            if problem is not None:
                raise self._trouble(problem, what)

    def _group(self, name: str) -> Group:
        self._renew()
        if name not in self._groups:
            self._groups[name] = Group(name, {**self._client.settings(), "error_cb": self._on_error})
        return self._groups[name]

    # --

    def _result(self, future: Future[Any]) -> Any:
        """A future's result. Fails early if the broker refuses this client, which no future reports."""
        while True:
            try:
                return future.result(POLL_S)
            except TimeoutError:
                self._connected.poll(0)
            if self._refused is not None:
                raise self._trouble(self._refused, "no connection")

    def _trouble(self, error: KafkaError, what: str) -> ForkpointError | NoAnswer:
        self._connected.poll(0)
        if self._refused is not None:
            return forkpoint_error(self._refused, f"Kafka at {self._client.servers}")
        if is_temporary(error) or is_missing(error):
            return self._unavailable(f"{what}: {self._last or error.str()}")
        return forkpoint_error(error, f"Kafka at {self._client.servers}: {what}")

    def _unavailable(self, problem: str) -> NoAnswer:
        """Reconnect for the next request: a client keeps asking the old leader, although the broker answers that another has
        been elected (librdkafka 2.16, ListOffsets with FENCED_LEADER_EPOCH)."""
        self.stale = True
        return NoAnswer(problem)


class Group:
    """A consumer that reads and commits a group's offsets without joining it. An admin client's requests for them end the process
    with a segmentation fault if the coordinator has moved or is missing (librdkafka 2.16)."""

    def __init__(self, name: str, settings: Mapping[str, Any]) -> None:
        from confluent_kafka import Consumer

        self._answers: list[tuple[KafkaError | None, list[TopicPartition]]] = []
        own = {"group.id": name, "enable.auto.commit": False, "on_commit": lambda *answer: self._answers.append(answer)}
        self._consumer = Consumer({**QUIET, **settings, **own})

    def committed(self, partitions: Iterable[KafkaTopicPartition], timeout_s: float) -> list[TopicPartition]:
        from confluent_kafka import TopicPartition

        found: list[TopicPartition] = self._consumer.committed([TopicPartition(*p) for p in partitions], timeout=timeout_s)
        return found

    def commit(
        self, offsets: Mapping[KafkaTopicPartition, int], timeout_s: float
    ) -> tuple[KafkaError | None, list[TopicPartition]] | None:
        """The request's error, if any, and the partitions with their errors; None after a timeout."""
        from confluent_kafka import TopicPartition

        self._answers.clear()
        self._consumer.commit(offsets=[TopicPartition(*p, offset) for p, offset in offsets.items()], asynchronous=True)
        until = time.monotonic() + timeout_s
        while not self._answers and time.monotonic() < until:
            self._consumer.poll(POLL_S)
        return self._answers[0] if self._answers else None


def _names(partitions: Collection[KafkaTopicPartition]) -> str:
    return ", ".join(sorted(p.split for p in partitions))

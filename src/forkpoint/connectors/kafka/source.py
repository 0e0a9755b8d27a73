"""Kafka topics as a source, built as in PyFlink."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Self

from forkpoint.connectors.formats.reading import OnParseError, side_outputs_of
from forkpoint.connectors.kafka.client import KafkaClient, require_client
from forkpoint.connectors.kafka.cluster import Subscription
from forkpoint.connectors.kafka.enumerator import KafkaEnumerator
from forkpoint.connectors.kafka.offsets import KafkaOffsetsInitializer, KafkaTopicPartition
from forkpoint.connectors.kafka.reader import KafkaReader
from forkpoint.connectors.kafka.records import KafkaRecordDeserializationSchema, ValueOnly
from forkpoint.connectors.kafka.watcher import Watch
from forkpoint.connectors.source_builder import SourceBuilder
from forkpoint.contract.format import DeserializationSchema
from forkpoint.contract.source import JSON, Source, SourceReader, SplitEnumerator
from forkpoint.errors import ConfigError
from forkpoint.functions import OutputTag
from forkpoint.types import TypeInformation, type_of
from forkpoint.types.kinds.records import RecordType
from forkpoint.types.variables import T

# Properties of the source itself, by Flink's names; the timeout has the name of Java's client.
_DISCOVERY = "partition.discovery.interval.ms"
_COMMIT = "commit.offsets.on.checkpoint"
_TIMEOUT = "default.api.timeout.ms"
_CLIENT_ID_PREFIX = "client.id.prefix"


@dataclass(frozen=True)
class KafkaSource(Source[T]):
    """Reads Kafka topics; created with ``KafkaSource.builder()``.

    A partition is a split, which keeps the order of its records. Positions are in the manifest; a consumer group's offsets are
    committed only for monitoring. Transactional records are read once their transaction is committed, and never if it is aborted.
    """

    watch: Watch
    schema: KafkaRecordDeserializationSchema[T]
    is_bounded: bool = False
    on_parse_error: OnParseError = "fail"

    @staticmethod
    def builder() -> KafkaSourceBuilder[Any]:
        """A builder: set servers, topics and a deserializer, then ``build()``."""
        return KafkaSourceBuilder()

    def output_type(self) -> TypeInformation[T] | None:
        produced = self.schema.get_produced_type()
        return None if produced is None else type_of(produced)

    def projected(self, type: RecordType) -> KafkaSource[Any] | None:
        if not isinstance(self.schema, ValueOnly) or self.on_parse_error != "fail":
            return None
        schema = self.schema.schema.projected(type)
        return None if schema is None else replace(self, schema=ValueOnly(schema))

    @property
    def side_outputs(self) -> Collection[OutputTag[Any]]:
        return side_outputs_of(self.on_parse_error)

    @property
    def bounded(self) -> bool:
        return self.is_bounded

    def create_enumerator(self, position: JSON | None) -> SplitEnumerator:
        return KafkaEnumerator(self.watch, position)

    def create_reader(self) -> SourceReader[T]:
        return KafkaReader(self.watch.client, self.schema, self.on_parse_error)


class KafkaSourceBuilder(SourceBuilder[T]):
    """Builds a KafkaSource, which needs servers, topics and a deserializer. By default, it starts at the earliest records and
    never stops."""

    _source = "KafkaSource"

    def __init__(self) -> None:
        super().__init__()
        self._subscription: Subscription | None = None
        self._start = KafkaOffsetsInitializer.earliest()
        self._stop: KafkaOffsetsInitializer | None = None
        self._bounded = False
        self._schema: KafkaRecordDeserializationSchema[Any] | None = None

    def set_bootstrap_servers(self, bootstrap_servers: str) -> Self:
        """The brokers to connect to first: ``"host:port,host:port"``."""
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_group_id(self, group_id: str) -> Self:
        """The consumer group. Its offsets are committed after each checkpoint, for monitoring; ``committed_offsets()`` starts at
        them."""
        return self.set_property("group.id", group_id)

    def set_topics(self, *topics: str) -> Self:
        """Read these topics, which must exist. Raises ConfigError for anything but names."""
        if wrong := [topic for topic in topics if not isinstance(topic, str)]:
            raise ConfigError(
                f"KafkaSource: a topic's name is a str, not {wrong[0]!r}; give several one by one: set_topics('a', 'b')"
            )
        return self._subscribe(Subscription(topics=topics))

    def set_topic_pattern(self, topic_pattern: str) -> Self:
        """Read the topics whose whole name matches this regular expression (Python's), including topics created later."""
        try:
            re.compile(topic_pattern)
        except re.error as error:
            raise ConfigError(f"KafkaSource: topic pattern {topic_pattern!r} is no regular expression: {error}") from None
        return self._subscribe(Subscription(pattern=topic_pattern))

    def set_partitions(self, partitions: Collection[KafkaTopicPartition]) -> Self:
        """Read these partitions, which must exist."""
        return self._subscribe(Subscription(partitions=tuple(sorted(KafkaTopicPartition(*p) for p in partitions))))

    def _subscribe(self, subscription: Subscription) -> Self:
        if self._subscription is not None:
            raise ConfigError("KafkaSource: set one of set_topics(), set_topic_pattern() and set_partitions(), once")
        if subscription == Subscription():
            raise ConfigError("KafkaSource: no topics given; name at least one")
        self._subscription = subscription
        return self

    def set_starting_offsets(self, starting_offsets_initializer: KafkaOffsetsInitializer) -> Self:
        """The offsets at which to start, unless the job is restored. Later partitions are read from their first record."""
        self._start = starting_offsets_initializer
        return self

    def set_unbounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> Self:
        """Stop at these offsets, though the source counts as unbounded."""
        self._stop, self._bounded = stopping_offsets_initializer, False
        return self

    def set_bounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> Self:
        """Stop at these offsets, which are determined when the job first starts. Later partitions are not read."""
        self._stop, self._bounded = stopping_offsets_initializer, True
        return self

    def set_value_only_deserializer(self, deserialization_schema: DeserializationSchema[Any]) -> Self:
        """The schema that makes elements of the records' values."""
        if not isinstance(deserialization_schema, DeserializationSchema):
            raise ConfigError(
                f"KafkaSource: {deserialization_schema!r} is no DeserializationSchema; for a KafkaRecordDeserializationSchema, "
                "call set_deserializer()"
            )
        return self.set_deserializer(KafkaRecordDeserializationSchema.value_only(deserialization_schema))

    def set_deserializer(self, kafka_record_deserialization_schema: KafkaRecordDeserializationSchema[Any]) -> Self:
        """The schema that makes elements of records, with keys, headers, timestamps and offsets."""
        if not isinstance(kafka_record_deserialization_schema, KafkaRecordDeserializationSchema):
            raise ConfigError(
                f"KafkaSource: {kafka_record_deserialization_schema!r} is no KafkaRecordDeserializationSchema; for a "
                "DeserializationSchema, call set_value_only_deserializer()"
            )
        self._schema = kafka_record_deserialization_schema
        return self

    def set_client_id_prefix(self, prefix: str) -> Self:
        """The prefix of this source's client names, which brokers log and meter."""
        return self.set_property(_CLIENT_ID_PREFIX, prefix)

    def build(self) -> KafkaSource[Any]:
        """The source. ConfigError if anything is missing."""
        require_client("KafkaSource")
        properties = dict(self._properties)
        discovery_ms = self._take_number(properties, _DISCOVERY, 300_000, "milliseconds")
        timeout_ms = self._take_number(properties, _TIMEOUT, 60_000, "milliseconds")
        commits = properties.pop(_COMMIT, "true").lower() != "false"
        prefix = properties.pop(_CLIENT_ID_PREFIX, None)
        if prefix is not None:
            properties["client.id"] = prefix
        group = properties.get("group.id")
        if not properties.get("bootstrap.servers"):
            raise ConfigError("KafkaSource: no brokers; call set_bootstrap_servers('host:port')")
        if self._subscription is None:
            raise ConfigError("KafkaSource: no topics; call set_topics(), set_topic_pattern() or set_partitions()")
        if self._schema is None:
            raise ConfigError("KafkaSource: no deserializer; call set_value_only_deserializer() or set_deserializer()")
        if group is None and "committed" in (self._start.kind, self._stop.kind if self._stop is not None else ""):
            raise ConfigError("KafkaSource: committed_offsets() needs a consumer group; call set_group_id()")
        client = KafkaClient(properties)
        client.settings()  # raises for unsupported properties
        discovery_s = None if self._bounded or discovery_ms <= 0 else discovery_ms / 1000
        watch = Watch(
            client, self._subscription, self._start, self._stop, group, commits, discovery_s, timeout_s=timeout_ms / 1000
        )
        return KafkaSource(watch, self._schema, self._bounded, self._on_parse_error)

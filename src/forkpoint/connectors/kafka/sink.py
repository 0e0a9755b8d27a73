"""KafkaSink writes records to Kafka topics, exactly once or at least once."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from enum import Enum
from typing import Any, Generic

import pyarrow as pa

from forkpoint.connectors.kafka.client import KafkaClient, log, require_client
from forkpoint.connectors.kafka.errors import raising_errors
from forkpoint.connectors.kafka.limits import Extremes, TopicLimits, ask_limits, extremes, joined, refusal
from forkpoint.connectors.kafka.producing import SCHEMA, max_record_bytes, produce, producer_settings
from forkpoint.connectors.kafka.serialization import KafkaRecordSerializationSchema
from forkpoint.connectors.kafka.transactions import TransactionalCommitter
from forkpoint.connectors.rows import pack_columns
from forkpoint.contract.sink import Committer, CommitterContext, CommittingSink, SinkBatch, SinkContext, SinkWriter
from forkpoint.contract.source import JSON
from forkpoint.errors import ConfigError, ForkpointError, JobFailed, OutputRefused
from forkpoint.types.variables import T_contra

_ASK_AGAIN_S = 60.0


class DeliveryGuarantee(Enum):
    """The guarantee of a sink if a job fails and recovers."""

    EXACTLY_ONCE = "exactly-once"
    """Every record once, for consumers that read only committed records."""
    AT_LEAST_ONCE = "at-least-once"
    """Every record, some more than once. Records are sent immediately, before their epoch's commit."""
    NONE = "none"
    """The same as AT_LEAST_ONCE."""


class KafkaSink(CommittingSink[T_contra]):
    """Writes records to Kafka; created with ``KafkaSink.builder()``.

    With EXACTLY_ONCE, the default here, an epoch's output is staged, and tasks send it in transactions that end after the epoch's
    commit: consumers need ``isolation.level=read_committed``, the default of most. The transactional ids and consumer groups of a
    sink begin with its prefix ("forkpoint" by default), the job and the sink's uid.
    """

    pre_commits = True

    def __init__(
        self, serializer: KafkaRecordSerializationSchema[T_contra], client: KafkaClient, guarantee: DeliveryGuarantee, prefix: str
    ) -> None:
        self._serializer = serializer
        self._client = client
        self._guarantee = guarantee
        self._prefix = prefix
        self._limits: dict[str, TopicLimits] = {}
        self._asked = 0.0  # monotonic

    @staticmethod
    def builder() -> KafkaSinkBuilder:
        """A builder, as PyFlink's."""
        return KafkaSinkBuilder()

    def create_writer(self, context: SinkContext) -> SinkWriter[T_contra]:
        if self._guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            return _StagingWriter(context, self._serializer, max_record_bytes(self._client))
        return _SendingWriter(self._serializer, self._client)

    def check(self, committables: list[JSON]) -> None:
        topics = {topic for c in committables for topic in c["topics"]}
        needs = [c["extremes"] for c in committables]
        if new := topics - self._limits.keys():
            self._ask(new)
        elif refusal(needs, self._limits) is not None:
            self._ask(topics)  # the topic may have been reconfigured
        elif topics and time.monotonic() > self._asked + _ASK_AGAIN_S:
            self._asked = time.monotonic()
            threading.Thread(target=self._ask_in_background, name="forkpoint-kafka-limits", daemon=True).start()
        if (problem := refusal(needs, self._limits)) is not None:
            raise OutputRefused(problem)

    def _ask(self, topics: Collection[str]) -> None:
        found = ask_limits(self._client, topics)
        if missing := sorted(set(topics) - found.keys()):
            raise JobFailed(f"a Kafka sink writes to topic {missing[0]!r}, which does not exist; create it")
        self._limits = {**self._limits, **found}
        self._asked = time.monotonic()

    def _ask_in_background(self) -> None:
        """Update the limits concurrently with epochs, which continue while brokers are down."""
        try:
            self._ask(self._limits.keys())
        except ForkpointError as error:
            log.info("%s", error)

    def create_committer(self, context: CommitterContext) -> Committer:
        return TransactionalCommitter(context, self._client, self._prefix)

    def group(self, committable: JSON) -> str:
        group: str = committable["group"]
        return group

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_limits": {}}


class _StagingWriter(SinkWriter[T_contra], Generic[T_contra]):
    """Stages one subtask's records of an epoch."""

    def __init__(self, context: SinkContext, serializer: KafkaRecordSerializationSchema[T_contra], max_bytes: int) -> None:
        self._context = context
        self._serializer = serializer
        self._max_bytes = max_bytes
        self._batches: list[pa.RecordBatch] = []
        self._extremes: dict[str, Extremes] = {}

    def write(self, batch: SinkBatch[T_contra]) -> None:
        records = self._serializer.records(batch)
        self._extremes = joined([self._extremes, extremes(records, self._max_bytes)])
        self._batches.append(records)

    def prepare_commit(self) -> list[JSON]:
        stored = self._context.stage(pack_columns(self._batches, SCHEMA))
        needs = {topic: found.to_json() for topic, found in sorted(self._extremes.items())}
        return [{"group": str(self._context.subtask), "topics": list(needs), "extremes": needs, "records": stored}]


class _SendingWriter(SinkWriter[T_contra], Generic[T_contra]):
    """Sends one subtask's records immediately. The epoch is committed once all of them have arrived."""

    def __init__(self, serializer: KafkaRecordSerializationSchema[T_contra], client: KafkaClient) -> None:
        from confluent_kafka import Producer

        self._servers = client.servers
        self._serializer = serializer
        self._problems: list[Any] = []
        self._refused: list[Any] = []
        settings: dict[str, Any] = {**producer_settings(client), "error_cb": self._problems.append}
        self._producer = Producer({**settings, "on_delivery": self._delivered})

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self._refused.append(error)

    def write(self, batch: SinkBatch[T_contra]) -> None:
        with raising_errors(self._servers, self._problems):
            produce(self._producer, self._serializer.records(batch))
            self._raise_refused()

    def prepare_commit(self) -> list[JSON]:
        with raising_errors(self._servers, self._problems):
            self._producer.flush()  # every record arrives or fails within delivery.timeout.ms
            self._raise_refused()
        return []

    def _raise_refused(self) -> None:
        from confluent_kafka import KafkaException

        if self._refused:
            raise KafkaException(self._refused[0])

    def abort(self) -> None:
        self._producer.purge()


class KafkaSinkBuilder:
    """Builds a KafkaSink."""

    def __init__(self) -> None:
        self._properties: dict[str, str] = {}
        self._serializer: KafkaRecordSerializationSchema[Any] | None = None
        self._guarantee = DeliveryGuarantee.EXACTLY_ONCE
        self._prefix = "forkpoint"

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSinkBuilder:
        """Set the brokers to connect to first: "host:port,…"."""
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_record_serializer(self, record_serializer: KafkaRecordSerializationSchema[Any]) -> KafkaSinkBuilder:
        """Set the schema that makes records of elements."""
        self._serializer = record_serializer
        return self

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> KafkaSinkBuilder:
        """Set the guarantee, by default EXACTLY_ONCE."""
        self._guarantee = delivery_guarantee
        return self

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> KafkaSinkBuilder:
        """Set the prefix of the sink's transactional ids and consumer groups."""
        self._prefix = transactional_id_prefix
        return self

    def set_property(self, key: str, value: str) -> KafkaSinkBuilder:
        """Set a property of the client, by its name in librdkafka or Kafka's Java client."""
        self._properties[key] = value
        return self

    def build(self) -> KafkaSink[Any]:
        """The sink. Raises ConfigError if something is missing."""
        require_client("KafkaSink")
        if "bootstrap.servers" not in self._properties:
            raise ConfigError("KafkaSink: there are no brokers; call set_bootstrap_servers")
        if self._serializer is None:
            raise ConfigError("KafkaSink: there is no serializer; call set_record_serializer")
        return KafkaSink(self._serializer, KafkaClient(self._properties), self._guarantee, self._prefix)

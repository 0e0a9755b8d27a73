"""The limits of topics, and the records that exceed them: checked before an epoch is committed."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.connectors.kafka.client import KafkaClient, log
from forkpoint.connectors.kafka.errors import is_missing, is_temporary, raising_errors
from forkpoint.connectors.kafka.producing import ANSWER_SECONDS, shared_settings
from forkpoint.errors import ConfigError

OVERHEAD_BYTES = 512  # the maximum size of a record in addition to its key, value and headers
_HEADER_BYTES = 10  # the overhead of a header
_ENDLESS_MS = 2**63 - 1


@dataclass(frozen=True)
class TopicLimits:
    """The limits of a topic. ``batch_bytes``: of a batch of records; ``record_bytes``: of a record, unless records are
    compressed. ``before_ms``, ``after_ms``: the distance of a record's timestamp from the broker's time. None if unknown or
    unlimited. ``compacted``: records must have a key."""

    partitions: int
    batch_bytes: int | None = None
    record_bytes: int | None = None
    before_ms: int | None = None
    after_ms: int | None = None
    compacted: bool = False


@dataclass(frozen=True)
class Extremes:
    """The extremes of a subtask's records for one topic, to be compared with its limits. ``partition``: the highest explicit one.
    ``bytes``: the largest sum of key, value and headers. ``keyless``: whether some records have no key."""

    partition: int = -1
    bytes: int = 0
    earliest_ms: int | None = None
    latest_ms: int | None = None
    keyless: bool = False

    def __or__(self, other: Extremes) -> Extremes:
        earliest = [t for t in (self.earliest_ms, other.earliest_ms) if t is not None]
        latest = [t for t in (self.latest_ms, other.latest_ms) if t is not None]
        return Extremes(
            max(self.partition, other.partition),
            max(self.bytes, other.bytes),
            min(earliest, default=None),
            max(latest, default=None),
            self.keyless or other.keyless,
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def extremes(records: pa.RecordBatch, client_bytes: int) -> dict[str, Extremes]:
    """The extremes of records (``producing.SCHEMA``), by topic. Raises ConfigError for records that no topic accepts.
    ``client_bytes``: the client's limit of a record."""
    if not len(records):
        return {}
    sizes = _sizes(records)
    _must_fit(records, sizes, client_bytes)
    return _by_topic(records, sizes)


def refused_rows(records: pa.RecordBatch, limits: Mapping[str, TopicLimits]) -> dict[int, str]:
    """The indexes of the records that topics would refuse, with the reasons."""
    now_ms, refused, parts = time.time_ns() // 10**6, dict[int, str](), [(0, records)]
    while parts:  # a binary search, because few records are refused
        start, part = parts.pop()
        by_topic = _by_topic(part, _sizes(part)) if len(part) else {}
        reason = _first_refusal(by_topic, limits, now_ms)
        if reason is None:
            continue
        if len(part) == 1:
            refused[start] = reason
        else:
            half = len(part) // 2
            parts += [(start, part.slice(0, half)), (start + half, part.slice(half))]
    return refused


def _must_fit(records: pa.RecordBatch, sizes: npt.NDArray[np.int64], client_bytes: int) -> None:
    largest = int(sizes.argmax())
    if sizes[largest] + OVERHEAD_BYTES > client_bytes:
        raise ConfigError(
            f"a record of {sizes[largest]} bytes, with key {_key(records, largest)}, is larger than message.max.bytes "
            f"({client_bytes}) allows; raise it, and max.message.bytes of the topic, with set_property"
        )
    partitions = records.column("partition")
    if partitions.null_count < len(records) and (lowest := pc.min(partitions).as_py()) < 0:
        key = _key(records, pc.index(partitions, lowest).as_py())
        raise ConfigError(
            f"a record with key {key} is to go to partition {lowest}, but partitions begin at 0; correct set_partitioner(), or "
            "the record's partition. None leaves the choice to Kafka"
        )


def _by_topic(records: pa.RecordBatch, sizes: npt.NDArray[np.int64]) -> dict[str, Extremes]:
    topics = records.column("topic")
    found = pc.unique(topics).to_pylist()
    if len(found) == 1:
        return {found[0]: _of_topic(records, sizes)}
    masks = {topic: pc.equal(topics, topic) for topic in found}
    return {topic: _of_topic(records.filter(mask), sizes[mask.to_numpy(False)]) for topic, mask in masks.items()}


def _of_topic(records: pa.RecordBatch, sizes: npt.NDArray[np.int64]) -> Extremes:
    times = pc.min_max(records.column("timestamp_ms")).as_py()
    highest = pc.max(records.column("partition")).as_py()
    keyless = records.column("key").null_count > 0
    return Extremes(-1 if highest is None else highest, int(sizes.max()), times["min"], times["max"], keyless)


def _sizes(records: pa.RecordBatch) -> npt.NDArray[np.int64]:
    sizes = np.zeros(len(records), np.int64)
    for name in ("key", "value"):
        sizes += pc.fill_null(pc.binary_length(records.column(name)), 0).to_numpy(False)
    headers = records.column("headers")
    if headers.null_count < len(records):
        parts = pc.list_flatten(headers)
        each = sum(pc.fill_null(pc.binary_length(part), 0).to_numpy(False) for part in parts.flatten())
        owners = pc.list_parent_indices(headers).to_numpy(False)
        sizes += np.bincount(owners, each + _HEADER_BYTES, len(records)).astype(np.int64)
    return sizes


def _key(records: pa.RecordBatch, index: int) -> str:
    return repr(records.column("key")[index].as_py())


def _refusal(topic: str, found: Extremes, limits: TopicLimits, now_ms: int) -> str | None:
    """The reason why a topic would refuse records, and a remedy; None if it accepts them."""
    if found.partition >= limits.partitions:
        return (
            f"a record for topic {topic!r} is to go to partition {found.partition}, but the topic has {limits.partitions} "
            f"partitions, 0 to {limits.partitions - 1}; correct set_partitioner(), or the record's partition, or add partitions"
        )
    if limits.record_bytes is not None and found.bytes + OVERHEAD_BYTES > limits.record_bytes:
        return (
            f"a record of {found.bytes} bytes is larger than max.message.bytes ({limits.record_bytes}) of topic {topic!r} "
            "allows; raise that (kafka-configs), or write smaller records"
        )
    if limits.compacted and found.keyless:
        return f"a record for topic {topic!r} has no key, which a compacted topic needs; call set_key_serialization_schema()"
    for time_ms, limit_ms, name, sign in (
        (found.latest_ms, limits.after_ms, "message.timestamp.after.max.ms", 1),
        (found.earliest_ms, limits.before_ms, "message.timestamp.before.max.ms", -1),
    ):
        if time_ms is not None and limit_ms is not None and sign * (time_ms - now_ms) > limit_ms:
            return (
                f"a record for topic {topic!r} has the timestamp {_time(time_ms)}, which is further from now ({_time(now_ms)}) "
                f"than the topic's {name} ({limit_ms}) allows; raise that (kafka-configs), or correct the timestamps, which are "
                "the elements' event times unless a record has its own"
            )
    return None


def _time(time_ms: int) -> str:
    """A timestamp as text, even if no datetime can represent it."""
    try:
        return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms since 1970"


def joined(parts: Iterable[Mapping[str, Extremes]]) -> dict[str, Extremes]:
    """The extremes of several subtasks or batches, by topic."""
    merged: dict[str, Extremes] = {}
    for by_topic in parts:
        for topic, own in by_topic.items():
            merged[topic] = merged[topic] | own if topic in merged else own
    return merged


def refusal(needs: Iterable[Mapping[str, Any]], limits: Mapping[str, TopicLimits]) -> str | None:
    """The reason why topics would refuse staged records, if they would. ``needs``: the subtasks' extremes by topic, as JSON."""
    found = joined({topic: Extremes(**own) for topic, own in by_topic.items()} for by_topic in needs)
    return _first_refusal(found, limits, time.time_ns() // 10**6)


def _first_refusal(found: Mapping[str, Extremes], limits: Mapping[str, TopicLimits], now_ms: int) -> str | None:
    problems = (_refusal(topic, own, limits[topic], now_ms) for topic, own in found.items() if topic in limits)
    return next((problem for problem in problems if problem is not None), None)


def ask_limits(client: KafkaClient, topics: Collection[str]) -> dict[str, TopicLimits]:
    """Request the limits of the existing topics among these."""
    from confluent_kafka import KafkaException, TopicCollection
    from confluent_kafka.admin import AdminClient, ConfigResource

    limits: dict[str, TopicLimits] = {}
    settings = client.settings()
    compressed = any(settings.get(name, "none") != "none" for name in ("compression.type", "compression.codec"))
    with raising_errors(client.servers) as problems:
        admin_settings: dict[str, Any] = {**shared_settings(client), "error_cb": problems.append}
        admin = AdminClient(admin_settings)
        resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
        futures = admin.describe_configs(resources, request_timeout=ANSWER_SECONDS)
        configs = {resource.name: future for resource, future in futures.items()}
        described = admin.describe_topics(TopicCollection(list(topics)), request_timeout=ANSWER_SECONDS)
        for topic, future in described.items():
            try:
                partitions = len(future.result().partitions)
            except KafkaException as error:
                admin.poll(0)
                if is_missing(error.args[0]):
                    continue
                raise
            try:
                config = {name: entry.value for name, entry in configs[topic].result().items()}
            except KafkaException as error:
                if is_temporary(error.args[0]):
                    raise
                # The request needs a permission that writing does not.
                log.info("the limits of topic %r are not known: %s", topic, error.args[0].str())
                config = {}
            limits[topic] = _limits(partitions, config, compressed=compressed)
    return limits


def _limits(partitions: int, config: Mapping[str, str | None], *, compressed: bool) -> TopicLimits:
    def number(*names: str) -> int | None:
        found = [int(value) for name in names if (value := config.get(name))]
        return None if not found or min(found) == _ENDLESS_MS else min(found)

    batch_bytes = number("max.message.bytes")
    created = config.get("message.timestamp.type") != "LogAppendTime"
    both = "message.timestamp.difference.max.ms"  # before Kafka 3.6
    return TopicLimits(
        partitions,
        batch_bytes,
        None if compressed else batch_bytes,  # the limit applies to the compressed size
        number("message.timestamp.before.max.ms", both) if created else None,
        number("message.timestamp.after.max.ms", both) if created else None,
        "compact" in (config.get("cleanup.policy") or ""),
    )

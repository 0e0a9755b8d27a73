"""The offsets at which a Kafka source starts and stops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Literal, NamedTuple

from forkpoint.errors import ConfigError
from forkpoint.functions import epoch_ms


class KafkaTopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    @property
    def split(self) -> str:
        """The split's name, ``topic-partition``."""
        return f"{self.topic}-{self.partition}"

    @classmethod
    def of_split(cls, split: str) -> KafkaTopicPartition:
        topic, _, partition = split.rpartition("-")
        return cls(topic, int(partition))


class KafkaOffsetResetStrategy(Enum):
    """The position to read from if an offset is missing, or no longer exists. NONE: the job fails."""

    LATEST = 0
    EARLIEST = 1
    NONE = 2


Kind = Literal["earliest", "latest", "committed", "timestamp", "offsets"]


@dataclass(frozen=True)
class KafkaOffsetsInitializer:
    """The offsets at which reading starts or stops; created by the static methods."""

    kind: Kind
    timestamp_ms: int = 0
    given: Mapping[KafkaTopicPartition, int] = field(default_factory=dict)
    reset: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE

    @staticmethod
    def earliest() -> KafkaOffsetsInitializer:
        """The first existing record."""
        return KafkaOffsetsInitializer("earliest", reset=KafkaOffsetResetStrategy.EARLIEST)

    @staticmethod
    def latest() -> KafkaOffsetsInitializer:
        """The end, so that only records committed later are read."""
        return KafkaOffsetsInitializer("latest", reset=KafkaOffsetResetStrategy.LATEST)

    @staticmethod
    def committed_offsets(
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> KafkaOffsetsInitializer:
        """The offsets that the consumer group has committed; partitions without one are reset."""
        return KafkaOffsetsInitializer("committed", reset=KafkaOffsetResetStrategy(offset_reset_strategy))

    @staticmethod
    def timestamp(timestamp: int | datetime) -> KafkaOffsetsInitializer:
        """The first record with this timestamp or a later one (ms since 1970, or a datetime); the end if there is none."""
        return KafkaOffsetsInitializer("timestamp", epoch_ms(timestamp), reset=KafkaOffsetResetStrategy.LATEST)

    @staticmethod
    def offsets(
        offsets: Mapping[KafkaTopicPartition, int],
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST,
    ) -> KafkaOffsetsInitializer:
        """These offsets. Partitions that are not named, or whose offset does not exist, are reset."""
        if negative := {tp: offset for tp, offset in offsets.items() if offset < 0}:
            raise ConfigError(f"KafkaOffsetsInitializer.offsets: negative offsets {negative}; offsets begin at 0")
        given = {KafkaTopicPartition(*tp): offset for tp, offset in offsets.items()}
        return KafkaOffsetsInitializer("offsets", given=given, reset=KafkaOffsetResetStrategy(offset_reset_strategy))


@dataclass(frozen=True)
class Bounds:
    """A partition's first offset, and its end up to the first open transaction."""

    first: int
    end: int


def starting(initializer: KafkaOffsetsInitializer, partition: KafkaTopicPartition, bounds: Bounds, found: int | None) -> int:
    """The offset at which a partition starts. ``found``: the group's committed offset, or the timestamp's."""
    if initializer.kind in ("earliest", "latest"):
        return bounds.first if initializer.kind == "earliest" else bounds.end
    offset = initializer.given.get(partition) if initializer.kind == "offsets" else found
    if offset is not None and bounds.first <= offset <= bounds.end:
        return offset
    if initializer.reset is KafkaOffsetResetStrategy.NONE:
        has = "no offset" if offset is None else f"offset {offset}, but its offsets are {bounds.first} to {bounds.end},"
        raise ConfigError(
            f"KafkaSource: {_CALLS[initializer.kind]} has {has} for {partition.split}; give it "
            "KafkaOffsetResetStrategy.EARLIEST or LATEST"
        )
    return bounds.first if initializer.reset is KafkaOffsetResetStrategy.EARLIEST else bounds.end


def stopping(initializer: KafkaOffsetsInitializer, partition: KafkaTopicPartition, bounds: Bounds, found: int | None) -> int:
    """The offset at which a partition stops. An explicit offset may be beyond the end."""
    if initializer.kind == "offsets" and initializer.given.get(partition, 0) > bounds.end:
        return initializer.given[partition]
    return starting(initializer, partition, bounds, found)


_CALLS: Mapping[Kind, str] = {"committed": "committed_offsets()", "offsets": "offsets()", "timestamp": "timestamp()"}

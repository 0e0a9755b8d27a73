"""Names of Flink 1 that programs still use: each creates its replacement in forkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, NoReturn, Self

from forkpoint import (
    ConfigError,
    DeliveryGuarantee,
    DeserializationSchema,
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    RestartStrategy,
    SerializationSchema,
)


class TimeCharacteristic(Enum):
    """The argument of ``env.set_stream_time_characteristic``. Windows and timers define their own time domain."""

    ProcessingTime = 0
    IngestionTime = 1
    EventTime = 2


class RestartStrategies:
    """Creates a RestartStrategy. Times are timedelta or int ms."""

    @staticmethod
    def no_restart() -> RestartStrategy:
        """``RestartStrategy.none()``."""
        return RestartStrategy.none()

    @staticmethod
    def fixed_delay_restart(restart_attempts: int, delay_between_attempts: timedelta | int) -> RestartStrategy:
        """``RestartStrategy.fixed_delay``."""
        return RestartStrategy.fixed_delay(restart_attempts, delay_between_attempts)

    @staticmethod
    def failure_rate_restart(
        failure_rate: int, failure_interval: timedelta | int, delay_interval: timedelta | int
    ) -> RestartStrategy:
        """``RestartStrategy.failure_rate``."""
        return RestartStrategy.failure_rate(failure_rate, failure_interval, delay_interval)

    @staticmethod
    def exponential_delay_restart(
        initial_backoff: timedelta | int,
        max_backoff: timedelta | int,
        backoff_multiplier: float,
        reset_backoff_threshold: timedelta | int,
        jitter_factor: float,
    ) -> RestartStrategy:
        """``RestartStrategy.exponential_delay``."""
        return RestartStrategy.exponential_delay(
            initial_backoff, max_backoff, backoff_multiplier, jitter_factor, reset_backoff_threshold
        )

    @staticmethod
    def fall_back_restart() -> NoReturn:
        """Not supported: raises ConfigError."""
        raise ConfigError("RestartStrategies.fall_back_restart() is the default. Instead, omit the call")


class StateBackend:
    """A state backend by the name of Flink's class; arguments are JVM settings without effect."""

    kind = "hashmap"

    def __init__(self, *arguments: Any, **settings: Any) -> None: ...

    def options(self) -> dict[str, str]:
        """The configuration that selects this backend."""
        return {"state.backend.type": self.kind}


class HashMapStateBackend(StateBackend):
    """State in memory, with a changelog. Also Flink 1's MemoryStateBackend and FsStateBackend."""


class EmbeddedRocksDBStateBackend(StateBackend):
    """State in RocksDB. Also Flink 1's RocksDBStateBackend."""

    kind = "rocksdb"


@dataclass(frozen=True)
class CheckpointStorage:
    """The location of checkpoints: a directory's path or URL, or None for a directory that is deleted after the run."""

    directory: str | None = None

    def options(self) -> dict[str, str]:
        """The configuration that selects this storage."""
        return {} if self.directory is None else {"execution.checkpointing.dir": self.directory}


class JobManagerCheckpointStorage(CheckpointStorage):
    """Checkpoints that are deleted after the run."""

    def __init__(self, checkpoint_path: str | None = None, max_state_size: int | None = None) -> None:
        super().__init__(checkpoint_path)


class FileSystemCheckpointStorage(CheckpointStorage):
    """Checkpoints below a directory, given by path or URL."""

    def __init__(self, checkpoint_path: str, file_state_size_threshold: int | None = None, write_buffer_size: int = -1) -> None:
        super().__init__(checkpoint_path)

    def get_checkpoint_path(self) -> str | None:
        """The directory."""
        return self.directory


class FlinkKafkaConsumer:
    """Creates a KafkaSource from Flink 1's arguments. By default, starts at the group's offsets."""

    def __init__(
        self, topics: str | list[str], deserialization_schema: DeserializationSchema[Any], properties: Mapping[str, str]
    ) -> None:
        self._topics = [topics] if isinstance(topics, str) else list(topics)
        self._schema = deserialization_schema
        self._properties = {key: str(value) for key, value in properties.items() if key != "zookeeper.connect"}
        self._start: KafkaOffsetsInitializer | None = None

    def set_start_from_earliest(self) -> Self:
        """Start at the earliest records."""
        return self._starting(KafkaOffsetsInitializer.earliest())

    def set_start_from_latest(self) -> Self:
        """Start after the latest records."""
        return self._starting(KafkaOffsetsInitializer.latest())

    def set_start_from_timestamp(self, startup_offsets_timestamp: int) -> Self:
        """Start at the first records with this timestamp in ms or a later timestamp."""
        return self._starting(KafkaOffsetsInitializer.timestamp(startup_offsets_timestamp))

    def set_start_from_group_offsets(self) -> Self:
        """Start at the offsets of the consumer group; the default."""
        return self._starting(None)

    def set_commit_offsets_on_checkpoints(self, commit_on_checkpoints: bool) -> Self:
        """Accepted without effect: offsets are committed if there is a group id."""
        return self

    def disable_filter_restored_partitions_with_subscribed_topics(self) -> Self:
        """Accepted without effect."""
        return self

    def get_produced_type(self) -> Any:
        """The type of the schema's elements."""
        return self._schema.get_produced_type()

    def build(self) -> KafkaSource[Any]:
        """Create the source."""
        builder = KafkaSource.builder().set_topics(*self._topics).set_value_only_deserializer(self._schema)
        return builder.set_properties(self._properties).set_starting_offsets(self._start or self._of_group()).build()

    def _of_group(self) -> KafkaOffsetsInitializer:
        reset = KafkaOffsetResetStrategy[self._properties.get("auto.offset.reset", "latest").upper()]
        if "group.id" in self._properties:
            return KafkaOffsetsInitializer.committed_offsets(reset)
        earliest = reset is KafkaOffsetResetStrategy.EARLIEST
        return KafkaOffsetsInitializer.earliest() if earliest else KafkaOffsetsInitializer.latest()

    def _starting(self, start: KafkaOffsetsInitializer | None) -> Self:
        self._start = start
        return self


class Semantic(Enum):
    """The delivery guarantee of a FlinkKafkaProducer."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
    NONE = 2


class FlinkKafkaProducer(KafkaSink[Any]):
    """A KafkaSink from Flink 1's arguments. Records have the timestamps of their elements."""

    def __init__(
        self,
        topic: str,
        serialization_schema: SerializationSchema[Any],
        producer_config: Mapping[str, str],
        kafka_producer_pool_size: int = 5,
        semantic: Semantic = Semantic.AT_LEAST_ONCE,
    ) -> None:
        builder = KafkaRecordSerializationSchema.builder().set_topic(topic)
        serializer = builder.set_value_serialization_schema(serialization_schema).build()
        sink = KafkaSink.builder().set_record_serializer(serializer)
        sink.set_delivery_guarantee(DeliveryGuarantee[Semantic(semantic).name])
        for key, value in producer_config.items():
            sink.set_property(key, str(value))
        self.__dict__.update(sink.build().__dict__)

    def set_log_failures_only(self, log_failures_only: bool) -> Self:
        """Not supported: raises ConfigError if set."""
        if log_failures_only:
            raise ConfigError("FlinkKafkaProducer.set_log_failures_only(True) loses records. Instead, omit the call")
        return self

    def set_flush_on_checkpoint(self, flush_on_checkpoint: bool) -> Self:
        """Accepted without effect: a checkpoint always waits for the records before it."""
        return self

    def set_write_timestamp_to_kafka(self, write_timestamp_to_kafka: bool) -> Self:
        """Accepted without effect: timestamps are always written."""
        return self

    def ignore_failures_after_transaction_timeout(self) -> Self:
        """Accepted without effect: output is kept until it is sent."""
        return self

"""Kafka records, and the schemas that make elements of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.contract.format import DeserializationSchema, Deserialized, deserialize_each
from forkpoint.functions import MIN_WATERMARK
from forkpoint.types import TypeInformation, TypeLike
from forkpoint.types.variables import T, T_co

if TYPE_CHECKING:
    from confluent_kafka import Message

_SECOND = itemgetter(1)


@dataclass(frozen=True, slots=True)
class KafkaRecord:
    """A Kafka record. ``timestamp``: ms since 1970, of its creation or, depending on the topic, its arrival; None if missing."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class KafkaRecords:
    """Successive records of one partition."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages

    def __len__(self) -> int:
        return len(self._messages)

    @cached_property
    def values(self) -> pa.BinaryArray:
        from confluent_kafka import Message

        return pa.array(list(map(Message.value, self._messages)), pa.binary())

    @cached_property
    def keys(self) -> pa.BinaryArray:
        from confluent_kafka import Message

        return pa.array(list(map(Message.key, self._messages)), pa.binary())

    @cached_property
    def timestamps(self) -> npt.NDArray[np.int64]:
        """In ms since 1970, MIN_WATERMARK for records without one."""
        from confluent_kafka import Message

        times = np.fromiter(map(_SECOND, map(Message.timestamp, self._messages)), np.int64, len(self._messages))
        times[times == -1] = MIN_WATERMARK
        return times

    @cached_property
    def offsets(self) -> npt.NDArray[np.int64]:
        from confluent_kafka import Message

        return np.fromiter(map(Message.offset, self._messages), np.int64, len(self._messages))

    def __getitem__(self, index: int) -> KafkaRecord:
        message: Any = self._messages[index]
        kind, timestamp = message.timestamp()
        return KafkaRecord(
            message.topic(),
            message.partition(),
            message.offset(),
            timestamp if kind and timestamp != -1 else None,
            message.key(),
            message.value(),
            message.headers() or (),
        )


class KafkaRecordDeserializationSchema(ABC, Generic[T_co]):
    """Turns Kafka's records into elements: ``value_only(schema)``, ``key_and_value(schema, schema)``, or a subclass with
    ``deserialize``, which sees keys, headers, timestamps and offsets, too."""

    @staticmethod
    def value_only(value_deserialization_schema: DeserializationSchema[T]) -> KafkaRecordDeserializationSchema[T]:
        """Elements from the records' values. Skips records without a value."""
        return ValueOnly(value_deserialization_schema)

    @staticmethod
    def key_and_value(
        key_deserialization_schema: DeserializationSchema[Any], value_deserialization_schema: DeserializationSchema[Any]
    ) -> KafkaRecordDeserializationSchema[tuple[Any, Any]]:
        """Pairs of key and value. A missing key or value is None."""
        return _KeyAndValue(key_deserialization_schema, value_deserialization_schema)

    def get_produced_type(self) -> TypeLike[T_co] | None:
        """The elements' type, such as a record class; None if it is unknown."""
        return None

    @abstractmethod
    def deserialize(self, record: KafkaRecord) -> T_co:
        """The element in one record. Any exception marks the record as bad and gives the reason."""

    def deserialize_batch(self, records: KafkaRecords) -> Deserialized[T_co]:
        """The elements of successive records of a partition, by default one by one."""
        return deserialize_each(map(records.__getitem__, range(len(records))), self.deserialize)


@dataclass(frozen=True)
class ValueOnly(KafkaRecordDeserializationSchema[T]):
    """See ``value_only``."""

    schema: DeserializationSchema[T]

    def get_produced_type(self) -> TypeInformation[T] | None:
        return self.schema.get_produced_type()

    def deserialize(self, record: KafkaRecord) -> T:
        assert record.value is not None
        return self.schema.deserialize(record.value)

    def deserialize_batch(self, records: KafkaRecords) -> Deserialized[T]:
        return self.schema.deserialize_batch(records.values)


@dataclass(frozen=True)
class _KeyAndValue(KafkaRecordDeserializationSchema[tuple[Any, Any]]):
    key: DeserializationSchema[Any]
    value: DeserializationSchema[Any]

    def deserialize(self, record: KafkaRecord) -> tuple[Any, Any]:
        return (
            None if record.key is None else self.key.deserialize(record.key),
            None if record.value is None else self.value.deserialize(record.value),
        )

"""Kinesis' records, and how they become elements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

import pyarrow as pa

from forkpoint.contract.format import DeserializationSchema, Deserialized, deserialize_each
from forkpoint.types import TypeInformation, TypeLike
from forkpoint.types.variables import T, T_co


@dataclass(frozen=True, slots=True)
class KinesisRecord:
    """A record as Kinesis has it. ``arrival_ms``: approximately when it arrived, in ms since 1970. ``sub_sequence_number``: its
    number among those that the Kinesis Producer Library has sent as one; 0 for others."""

    stream: str
    shard_id: str
    sequence_number: str
    sub_sequence_number: int
    arrival_ms: int
    partition_key: str
    data: bytes


class KinesisDeserializationSchema(ABC, Generic[T_co]):
    """Turns records into elements, and sees their partition key, time and sequence number, too. ``data_only(schema)`` makes one
    of a DeserializationSchema."""

    @staticmethod
    def data_only(deserialization_schema: DeserializationSchema[T]) -> KinesisDeserializationSchema[T]:
        """Elements from the records' data."""
        return _DataOnly(deserialization_schema)

    def get_produced_type(self) -> TypeLike[T_co] | None:
        """The elements' type, such as a record class; None if it is unknown."""
        return None

    @abstractmethod
    def deserialize(self, record: KinesisRecord) -> T_co:
        """The element in one record. Any exception means that the record is bad, and says why."""

    def deserialize_batch(self, records: Sequence[KinesisRecord]) -> Deserialized[T_co]:
        """The elements of successive records of a shard, by default one by one."""
        return deserialize_each(records, self.deserialize)


@dataclass(frozen=True)
class _DataOnly(KinesisDeserializationSchema[T]):
    schema: DeserializationSchema[T]

    def get_produced_type(self) -> TypeInformation[T] | None:
        return self.schema.get_produced_type()

    def deserialize(self, record: KinesisRecord) -> T:
        return self.schema.deserialize(record.data)

    def deserialize_batch(self, records: Sequence[KinesisRecord]) -> Deserialized[T]:
        return self.schema.deserialize_batch(pa.array([record.data for record in records], pa.binary()))

"""Kinesis records and their deserialization."""

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
    """A Kinesis record. ``arrival_ms``: its approximate arrival time, in ms since 1970. ``sub_sequence_number``: its index in a
    record aggregated by the Kinesis Producer Library; otherwise 0."""

    stream: str
    shard_id: str
    sequence_number: str
    sub_sequence_number: int
    arrival_ms: int
    partition_key: str
    data: bytes


class KinesisDeserializationSchema(ABC, Generic[T_co]):
    """Turns records with their partition key, time and sequence number into elements. ``data_only(schema)`` adapts a
    DeserializationSchema."""

    @staticmethod
    def data_only(deserialization_schema: DeserializationSchema[T]) -> KinesisDeserializationSchema[T]:
        """A schema that makes elements from the records' data only."""
        return _DataOnly(deserialization_schema)

    def get_produced_type(self) -> TypeLike[T_co] | None:
        """The elements' type, such as a record class; None if unknown."""
        return None

    @abstractmethod
    def deserialize(self, record: KinesisRecord) -> T_co:
        """The element in a record. Any exception marks the record as bad; its message is the reason."""

    def deserialize_batch(self, records: Sequence[KinesisRecord]) -> Deserialized[T_co]:
        """The elements of successive records of a shard. By default calls `deserialize` per record."""
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

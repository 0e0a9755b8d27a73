"""The interfaces of formats, by PyFlink's names: how elements become the bytes of messages, and back.

Schemas are shipped to the tasks with the job, so they hold no connections. A format of your own overrides ``serialize`` or
``deserialize``, for one element; forkpoint's own formats override the methods for whole batches, over columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

import pyarrow as pa

from forkpoint.connectors.base import Elements, SinkBatch
from forkpoint.types import TypeInformation
from forkpoint.types.variables import T, T_co, T_contra


@dataclass(frozen=True)
class BadMessage:
    """A message that cannot be deserialized: its index in the batch, and why."""

    index: int
    problem: str


@dataclass(frozen=True)
class Deserialized(Generic[T]):
    """A batch's elements in order, without those of ``bad`` messages. ``indices``: the message of each element, if they are not
    one to one (bad messages, tombstones, or messages of several elements)."""

    elements: Elements[T]
    indices: Sequence[int] | None = None
    bad: Sequence[BadMessage] = ()


class DeserializationSchema(ABC, Generic[T_co]):
    """Turns the bytes of messages into elements."""

    def get_produced_type(self) -> TypeInformation[T_co] | None:
        """The elements' type; None if it is unknown."""
        return None

    @abstractmethod
    def deserialize(self, message: bytes) -> T_co:
        """The element in one message. Any exception means that the message is bad, and says why."""

    def deserialize_batch(self, messages: pa.BinaryArray) -> Deserialized[T_co]:
        """The elements of a batch of messages, by default one by one. A null is a message without a value (Kafka's tombstone),
        which is no element."""
        elements: list[T_co] = []
        indices: list[int] = []
        bad: list[BadMessage] = []
        for index, message in enumerate(messages.to_pylist()):
            if message is None:
                continue
            try:
                elements.append(self.deserialize(message))
            except Exception as error:
                bad.append(BadMessage(index, f"{type(error).__name__}: {error}"))
            else:
                indices.append(index)
        return Deserialized(elements, None if len(indices) == len(messages) else indices, bad)


class SerializationSchema(ABC, Generic[T_contra]):
    """Turns elements into the bytes of messages."""

    @abstractmethod
    def serialize(self, element: T_contra) -> bytes:
        """One element as a message."""

    def serialize_batch(self, batch: SinkBatch[T_contra]) -> pa.BinaryArray:
        """A batch's elements as messages, one for each, by default one by one."""
        return pa.array(map(self.serialize, batch.values), pa.binary())

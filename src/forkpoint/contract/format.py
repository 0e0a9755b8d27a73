"""The interfaces of formats, by PyFlink's names: they convert elements to the bytes of messages, and back.

Schemas are shipped to the tasks with the job, so they hold no connections. A user's format overrides ``serialize`` or
``deserialize``, for one element; forkpoint's formats override the batch methods, which work on columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.contract.sink import SinkBatch
from forkpoint.contract.source import Elements
from forkpoint.errors import ConfigError, TypeNotSupported
from forkpoint.types import TypeInformation
from forkpoint.types.kinds.records import RecordType
from forkpoint.types.variables import T, T_co, T_contra

M = TypeVar("M")


@dataclass(frozen=True)
class BadMessage:
    """A message that cannot be deserialized: its index in the batch and the reason."""

    index: int
    problem: str


@dataclass(frozen=True)
class Deserialized(Generic[T]):
    """A batch's elements in order, without those of ``bad`` messages. ``indices`` gives each element's message if they are not
    one to one (bad messages, tombstones, or messages with several elements)."""

    elements: Elements[T]
    indices: Sequence[int] | None = None
    bad: Sequence[BadMessage] = ()

    def places(self, size: int) -> npt.NDArray[np.int64]:
        """The index of each element's message, of ``size`` messages."""
        if self.indices is not None:
            return np.asarray(self.indices, np.int64)
        indices = np.delete(np.arange(size), [message.index for message in self.bad])
        if len(indices) != len(self.elements):
            raise ConfigError(
                f"deserialize_batch() made {len(self.elements)} elements of {size} messages, {len(self.bad)} of them bad, "
                "without saying which is of which message; give indices"
            )
        return indices


class DeserializationSchema(ABC, Generic[T_co]):
    """Turns the bytes of messages into elements."""

    def get_produced_type(self) -> TypeInformation[T_co] | None:
        """The elements' type; None if it is unknown."""
        return None

    def projected(self, type: RecordType) -> DeserializationSchema[Any] | None:
        """The schema with fewer fields in its elements (``type``), because the job uses no others. None, the default, if that
        saves nothing, or would skip other messages."""
        return None

    @abstractmethod
    def deserialize(self, message: bytes) -> T_co:
        """The element in one message. Any exception marks the message as bad and gives the reason."""

    def deserialize_batch(self, messages: pa.BinaryArray) -> Deserialized[T_co]:
        """The elements of a batch of messages, by default one by one. A null is a message without a value (Kafka's tombstone)
        and yields no element."""
        return deserialize_each(messages.to_pylist(), self.deserialize)


def deserialize_each(messages: Iterable[M | None], deserialize: Callable[[M], T]) -> Deserialized[T]:
    """Deserialize messages one by one, skipping None."""
    elements: list[T] = []
    indices: list[int] = []
    bad: list[BadMessage] = []
    size = 0
    for index, message in enumerate(messages):
        size += 1
        if message is None:
            continue
        try:
            elements.append(deserialize(message))
        except Exception as error:
            bad.append(BadMessage(index, f"{type(error).__name__}: {error}"))
        else:
            indices.append(index)
    return Deserialized(elements, None if len(indices) == size else indices, bad)


class SerializationSchema(ABC, Generic[T_contra]):
    """Turns elements into the bytes of messages."""

    @abstractmethod
    def serialize(self, element: T_contra) -> bytes | None:
        """One element as a message. None is a message without a value, which only Kafka has: a tombstone, or a record without a
        key."""

    def serialize_batch(self, batch: SinkBatch[T_contra]) -> pa.BinaryArray:
        """One message for each element of a batch, by default made one by one. A null is a message without a value."""
        return pa.array(map(self.serialize, batch.values), pa.binary())


def messages_with_values(schema: SerializationSchema[T], batch: SinkBatch[T], sink: str) -> pa.BinaryArray:
    """A batch's messages, for a system without null messages. Raises TypeNotSupported for a null."""
    messages = schema.serialize_batch(batch).cast(pa.binary())
    if messages.null_count:
        at = messages.is_null().to_pylist().index(True)
        raise TypeNotSupported(
            f"{sink}: {type(schema).__name__} made a message without a value of {batch.values[at]!r}, which only Kafka has; "
            "filter such elements out, or return bytes"
        )
    return messages

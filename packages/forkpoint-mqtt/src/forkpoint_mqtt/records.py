"""MQTT messages and their deserialization."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic

import pyarrow as pa

from forkpoint.connectors.queues.schemas import deserialize_whole
from forkpoint.contract.format import Deserialized
from forkpoint.types import TypeInformation
from forkpoint.types.variables import T_co


@dataclass(frozen=True)
class MqttMessage:
    """A message. ``retain``: whether the broker retained it for new subscribers. ``properties``: user properties of MQTT 5."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: Mapping[str, str] = field(default_factory=dict)


class MqttDeserializationSchema(ABC, Generic[T_co]):
    """Makes elements from messages with their topics."""

    def get_produced_type(self) -> TypeInformation[T_co] | type[T_co] | None:
        """The elements' type; None if unknown."""
        return None

    @abstractmethod
    def deserialize(self, message: MqttMessage) -> T_co:
        """The element in a message. Any exception marks the message as bad; its text is the reason."""

    def deserialize_batch(self, messages: pa.RecordBatch) -> Deserialized[T_co]:
        """The elements of messages with the columns ``value``, ``key`` (the topic) and ``attributes`` (JSON). By default calls
        `deserialize` per message."""
        return deserialize_whole(messages, to_message, self.deserialize)


def to_message(value: bytes, key: str, attributes: dict[str, Any]) -> MqttMessage:
    """The message with these received values."""
    return MqttMessage(key, value, attributes["qos"], attributes["retain"], attributes.get("properties", {}))

"""MQTT messages, and how they become elements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic

from forkpoint.types import TypeInformation
from forkpoint.types.variables import T_co


@dataclass(frozen=True)
class MqttMessage:
    """A message. ``retain``: whether the broker had kept it for new subscribers. ``properties``: user properties of MQTT 5."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: Mapping[str, str] = field(default_factory=dict)


class MqttDeserializationSchema(ABC, Generic[T_co]):
    """Makes elements of messages with their topics."""

    def get_produced_type(self) -> TypeInformation[T_co] | type[T_co] | None:
        """The elements' type; None if it is unknown."""
        return None

    @abstractmethod
    def deserialize(self, message: MqttMessage) -> T_co:
        """The element in one message. Any exception means that the message is bad, and says why."""


def made(value: bytes, key: str, attributes: dict[str, Any]) -> MqttMessage:
    """A message as it was received."""
    return MqttMessage(key, value, attributes["qos"], attributes["retain"], attributes.get("properties", {}))

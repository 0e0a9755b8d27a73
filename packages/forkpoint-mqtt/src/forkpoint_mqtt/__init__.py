"""MQTT topics as a source."""

from typing import TYPE_CHECKING

from forkpoint.lazy import loader

if TYPE_CHECKING:
    from forkpoint_mqtt.records import MqttDeserializationSchema, MqttMessage
    from forkpoint_mqtt.source import MqttSource

__getattr__ = loader(__name__)

__all__ = [
    "MqttDeserializationSchema",
    "MqttMessage",
    "MqttSource",
]

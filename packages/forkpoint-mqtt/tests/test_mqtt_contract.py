"""The contract of sources, kept by MQTT's, where producers set ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import forkpoint as fp
from forkpoint.testing import SourceContract
from servers.mqtt_server import Mosquitto


class TestMqttSource(SourceContract):
    server: Mosquitto

    @pytest.fixture(autouse=True)
    def use(self, mosquitto: Mosquitto) -> None:
        self.server = mosquitto

    def create(self) -> str:
        topic = self.server.topic()
        self.server.begin_session(_client(topic), topic)
        return topic

    def produce(self, place: str, numbers: Sequence[int]) -> None:
        self.server.publish(place, [str(number) for number in numbers], ids=True)

    def source(self, place: str) -> Any:
        of = {"port": self.server.port, "client_id": _client(place), "id_property": "id"}
        return fp.MqttSource("127.0.0.1", place, fp.SimpleStringSchema(), **of)

    @staticmethod
    def number(element: str) -> int:
        return int(element)


def _client(topic: str) -> str:
    return f"client-of-{topic}"

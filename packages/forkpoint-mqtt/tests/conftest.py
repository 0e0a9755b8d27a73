from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers.mqtt_server import Mosquitto


@pytest.fixture(scope="session")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    """A real broker for all tests of this process: each has topics of its own."""
    broker = Mosquitto(tmp_path_factory.mktemp("mosquitto") / "broker")
    yield broker
    broker.stop()

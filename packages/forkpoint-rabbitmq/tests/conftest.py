from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers.rabbitmq_server import RabbitMQ


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[RabbitMQ]:
    """A real broker for all tests of this process: each has queues of its own."""
    broker = RabbitMQ()
    yield broker
    broker.stop()

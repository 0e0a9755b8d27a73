"""The contract of sources and sinks, kept by RabbitMQ's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import forkpoint as fp
from connectors.contract_rows import Lines, rows
from forkpoint.testing import Row, SinkContract, SourceContract
from queue_counting import config
from servers.rabbitmq_server import RabbitMQ


class TestRabbitMQSource(SourceContract):
    server: RabbitMQ

    @pytest.fixture(autouse=True)
    def use(self, rabbitmq: RabbitMQ) -> None:
        self.server = rabbitmq

    def create(self) -> str:
        return self.server.create_queue()

    def produce(self, place: str, numbers: Sequence[int]) -> None:
        self.server.publish(place, [str(number) for number in numbers])

    def source(self, place: str) -> Any:
        return fp.RabbitMQSource(config(self.server.port), place, True, fp.SimpleStringSchema())

    @staticmethod
    def number(element: str) -> int:
        return int(element)


class TestRabbitMQSink(SinkContract):
    exactly_once = False  # a broker knows no transactions that outlive a connection
    server: RabbitMQ

    @pytest.fixture(autouse=True)
    def use(self, rabbitmq: RabbitMQ) -> None:
        self.server = rabbitmq

    def create(self) -> str:
        return self.server.create_queue()

    def sink(self, target: str) -> Any:
        return fp.RabbitMQSink(config(self.server.port), target, Lines())

    @staticmethod
    def element(row: Row) -> Row:
        return row

    def read(self, target: str) -> list[Row]:
        return rows(self.server.values(target))

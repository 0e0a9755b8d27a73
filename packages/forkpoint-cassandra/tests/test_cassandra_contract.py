"""The contract of sinks, kept by Cassandra's."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from cassandra_writing import sink
from connectors.contract_rows import Line
from forkpoint.testing import Row, SinkContract
from servers.cassandra_server import Cassandra


class TestCassandraSink(SinkContract):
    type = Line
    server: Cassandra

    @pytest.fixture(autouse=True)
    def use(self, cassandra: Cassandra) -> None:
        self.server = cassandra

    def create(self) -> str:
        name = f"t{uuid.uuid4().hex[:12]}"
        self.server.execute(f"CREATE TABLE tests.{name} (number bigint PRIMARY KEY, text text)")
        return name

    def sink(self, target: str) -> Any:
        return sink(self.server.address, target)

    @staticmethod
    def element(row: Row) -> Line:
        return Line(*row)

    def read(self, target: str) -> list[Row]:
        return [(row.number, row.text) for row in self.server.execute(f"SELECT number, text FROM tests.{target}")]

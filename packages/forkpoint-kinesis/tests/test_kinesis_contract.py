"""The contract of sources and sinks, kept by Kinesis's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import forkpoint as fp
from connectors.contract_rows import Lines, rows
from forkpoint.testing import Row, SinkContract, SourceContract
from kinesis_jobs import builder
from servers.kinesis_server import Kinesis


class TestKinesisSource(SourceContract):
    server: Kinesis

    @pytest.fixture(autouse=True)
    def use(self, kinesis: Kinesis) -> None:
        self.server = kinesis

    def create(self) -> str:
        return self.server.create_stream(shards=2)

    def produce(self, place: str, numbers: Sequence[int]) -> None:
        self.server.put(place, [(str(number), str(number).encode()) for number in numbers])

    def source(self, place: str) -> Any:
        return builder(self.server, place).build()

    @staticmethod
    def number(element: str) -> int:
        return int(element)


class TestKinesisSink(SinkContract):
    exactly_once = False  # Kinesis knows no transactions
    server: Kinesis

    @pytest.fixture(autouse=True)
    def use(self, kinesis: Kinesis) -> None:
        self.server = kinesis

    def create(self) -> str:
        return self.server.create_stream(shards=2)

    def sink(self, target: str) -> Any:
        built = fp.KinesisSink.builder().set_stream_name(target).set_serialization_schema(Lines())
        built.set_partition_key_generator(lambda row: str(row[0]))
        return built.set_kinesis_client_properties(self.server.properties).build()

    @staticmethod
    def element(row: Row) -> Row:
        return row

    def read(self, target: str) -> list[Row]:
        return rows(data.decode() for _, data in self.server.read(target))

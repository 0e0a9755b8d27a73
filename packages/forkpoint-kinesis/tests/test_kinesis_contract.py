"""The contract of sources and sinks, kept by Kinesis's."""

from __future__ import annotations

import json
import uuid
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


class JsonLines(fp.SerializationSchema[Row]):
    """Firehose joins records without a separator, and texts may hold line ends."""

    def serialize(self, element: Row) -> bytes:
        return json.dumps(element).encode() + b"\n"


class TestFirehoseSink(SinkContract):
    exactly_once = False
    server: Kinesis

    @pytest.fixture(autouse=True)
    def use(self, kinesis: Kinesis) -> None:
        self.server = kinesis

    def create(self) -> str:
        return self.server.create_delivery_stream(f"accepts-{uuid.uuid4().hex[:8]}")

    def sink(self, target: str) -> Any:
        built = fp.FirehoseSink.builder().set_delivery_stream_name(target).set_serialization_schema(JsonLines())
        return built.set_firehose_client_properties(self.server.properties).build()

    @staticmethod
    def element(row: Row) -> Row:
        return row

    def read(self, target: str) -> list[Row]:
        return [(number, text) for number, text in map(json.loads, self.server.delivered(target).splitlines())]

"""The contract of sources and sinks, kept by Kafka's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import forkpoint as fp
from connectors.contract_rows import Lines, rows
from forkpoint.testing import Row, SinkContract, SourceContract
from servers.kafka import Kafka


class TestKafkaSource(SourceContract):
    server: Kafka

    @pytest.fixture(autouse=True)
    def use(self, kafka: Kafka) -> None:
        self.server = kafka

    def create(self) -> str:
        return self.server.create_topic(partitions=3)

    def produce(self, place: str, numbers: Sequence[int]) -> None:
        for partition in range(3):
            self.server.produce(place, [str(number) for number in numbers if number % 3 == partition], partition=partition)

    def source(self, place: str) -> Any:
        built = fp.KafkaSource.builder().set_bootstrap_servers(self.server.bootstrap_servers).set_topics(place)
        built.set_starting_offsets(fp.KafkaOffsetsInitializer.earliest())
        return built.set_value_only_deserializer(fp.SimpleStringSchema()).build()

    @staticmethod
    def number(element: str) -> int:
        return int(element)


class TestKafkaSink(SinkContract):
    server: Kafka

    @pytest.fixture(autouse=True)
    def use(self, kafka: Kafka) -> None:
        self.server = kafka

    def create(self) -> str:
        return self.server.create_topic(partitions=2)

    def sink(self, target: str) -> Any:
        schema = fp.KafkaRecordSerializationSchema.builder().set_topic(target).set_value_serialization_schema(Lines())
        built = fp.KafkaSink.builder().set_bootstrap_servers(self.server.bootstrap_servers)
        return built.set_record_serializer(schema.build()).set_delivery_guarantee(fp.DeliveryGuarantee.EXACTLY_ONCE).build()

    @staticmethod
    def element(row: Row) -> Row:
        return row

    def read(self, target: str) -> list[Row]:
        return rows(value for value in self.server.values(target) if value is not None)

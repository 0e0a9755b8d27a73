"""What the tests of Kafka share: sources of text, and a driver's loop without a driver."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from connectors.connector_reading import elements, json_round_trip
from forkpoint.connectors.formats.base import DeserializationSchema
from forkpoint.connectors.kafka.source import KafkaSource, KafkaSourceBuilder
from forkpoint.types import TypeInformation, Types
from servers.kafka import Kafka


class Text(DeserializationSchema[str]):
    """UTF-8; "bad" is no good text."""

    def get_produced_type(self) -> TypeInformation[str]:
        return Types.STRING()

    def deserialize(self, message: bytes) -> str:
        if message == b"bad":
            raise ValueError("bad text")
        return message.decode()


def builder(kafka: Kafka, *topics: str) -> KafkaSourceBuilder[str]:
    built = KafkaSource.builder().set_bootstrap_servers(kafka.bootstrap_servers).set_value_only_deserializer(Text())
    return built.set_topics(*topics) if topics else built


def source(kafka: Kafka, *topics: str) -> KafkaSource[str]:
    return builder(kafka, *topics).build()


@dataclass
class Read:
    position: Any
    values: dict[str, list[Any]] = field(default_factory=dict)


def read_until(source: KafkaSource[Any], ends: Mapping[str, int], position: Any = None, max_rows: int = 1000) -> Read:
    """Plan and read, as a job does, until the position is at ``ends``."""
    enumerator = source.create_enumerator(json_round_trip(position))
    read = Read(position)
    try:
        while read.position is None or read.position["next"] != ends:
            planned = enumerator.plan(max_rows)
            assert sum(r.rows or 0 for r in planned) <= max_rows
            for range_ in planned:
                if found := elements(source, range_):
                    read.values.setdefault(range_.split, []).extend(found)
            read.position = enumerator.position
            time.sleep(0.005)
        return read
    finally:
        enumerator.close()

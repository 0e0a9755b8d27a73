"""What the tests of Kafka share: sources of text, and a driver's loop without a driver."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from connectors.connector_reading import elements, json_round_trip
from forkpoint.connectors.kafka.enumerator import KafkaEnumerator
from forkpoint.connectors.kafka.source import KafkaSource, KafkaSourceBuilder
from forkpoint.contract.format import DeserializationSchema
from forkpoint.contract.source import SplitEnumerator, SplitRange
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


class Loop:
    """Plans and reads, as a job does. ``values``: what was read, by split."""

    def __init__(self, source: KafkaSource[Any], position: Any = None) -> None:
        self.source = source
        self.values: dict[str, list[Any]] = {}
        self.enumerator = source.create_enumerator(json_round_trip(position))

    def __enter__(self) -> Loop:
        return self

    def __exit__(self, *_: object) -> None:
        self.enumerator.close()

    @property
    def position(self) -> Any:
        return self.enumerator.position

    def step(self, max_rows: int = 1000) -> list[SplitRange]:
        """One epoch."""
        planned = self.enumerator.plan(max_rows)
        assert sum(r.rows or 0 for r in planned) <= max_rows
        for range_ in planned:
            self.values.setdefault(range_.split, []).extend(elements(self.source, range_))
        if planned:
            self.enumerator.confirm()
        return planned

    def until(self, ends: Mapping[str, int], max_rows: int = 1000) -> None:
        """Epochs until the position is at ``ends``."""
        while self.position["next"] != ends:
            self.step(max_rows)
            time.sleep(0.002)

    def until_it_fails(self) -> None:
        while True:
            self.step()
            time.sleep(0.002)


def read_until(
    source: KafkaSource[Any], ends: Mapping[str, int], position: Any = None, max_rows: int = 1000
) -> dict[str, list[Any]]:
    """What is read from a position until another."""
    with Loop(source, position) as loop:
        loop.until(ends, max_rows)
        return {split: values for split, values in loop.values.items() if values}


class PatientEnumerator(KafkaEnumerator):
    def plan(self, max_rows: int, parallelism_hint: int = 2) -> list[SplitRange]:
        while not (planned := super().plan(max_rows, parallelism_hint)) and not self.finished:
            time.sleep(0.002)
        return planned


@dataclass(frozen=True)
class PatientSource(KafkaSource[Any]):
    """Every epoch reads something of it, so that a script beside it knows what has been read."""

    def create_enumerator(self, position: Any) -> SplitEnumerator:
        return PatientEnumerator(self.watch, position)


def patient(source: KafkaSource[Any]) -> PatientSource:
    return PatientSource(**vars(source))

"""What the tests of Kinesis share: sources of text, and a driver's loop without a driver."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from connectors.connector_reading import elements, json_round_trip
from forkpoint.contract.format import DeserializationSchema
from forkpoint.contract.source import SplitEnumerator, SplitRange
from forkpoint.types import TypeInformation, Types
from forkpoint_kinesis.enumerator import KinesisEnumerator
from forkpoint_kinesis.source import KinesisSource, KinesisSourceBuilder
from servers.kinesis_server import Kinesis

FAST = {"flink.shard.getrecords.intervalmillis": "10", "flink.shard.discovery.intervalmillis": "50"}


class Text(DeserializationSchema[str]):
    """UTF-8; "bad" is no good text."""

    def get_produced_type(self) -> TypeInformation[str]:
        return Types.STRING()

    def deserialize(self, message: bytes) -> str:
        if message == b"bad":
            raise ValueError("bad text")
        return message.decode()


def builder(kinesis: Kinesis, stream: str) -> KinesisSourceBuilder[str]:
    built = KinesisSource.builder().set_stream_name(stream).set_deserialization_schema(Text())
    return built.set_initial_position("TRIM_HORIZON").set_properties(kinesis.properties).set_properties(FAST)


class Loop:
    """Plans and reads, as a job does. ``values``: what was read, by shard; ``order``: in the order of epochs."""

    def __init__(self, source: KinesisSource[Any], position: Any = None, until: Any = None) -> None:
        self.source = source
        self.values: dict[str, list[Any]] = {}
        self.epochs: list[dict[str, list[Any]]] = []
        self.enumerator = source.create_enumerator(json_round_trip(position))
        if until is not None:
            self.enumerator.stop_at(json_round_trip(until))

    def __enter__(self) -> Loop:
        return self

    def __exit__(self, *_: object) -> None:
        self.enumerator.close()

    @property
    def position(self) -> Any:
        return self.enumerator.position

    @property
    def read(self) -> list[Any]:
        return [value for values in self.values.values() for value in values]

    def step(self, max_rows: int = 1000) -> list[SplitRange]:
        """One epoch."""
        planned = self.enumerator.plan(max_rows)
        assert sum(r.rows or 0 for r in planned) <= max_rows
        epoch = {range_.split: elements(self.source, range_) for range_ in planned}
        for split, values in epoch.items():
            self.values.setdefault(split, []).extend(values)
        if planned:
            self.epochs.append(epoch)
        return planned

    def until(self, condition: Callable[[], bool], max_rows: int = 1000) -> None:
        while not condition():
            self.step(max_rows)
            time.sleep(0.002)

    def until_read(self, count: int, max_rows: int = 1000) -> None:
        self.until(lambda: len(self.read) >= count, max_rows)

    def until_it_fails(self) -> None:
        while True:
            self.step()
            time.sleep(0.002)


def read(source: KinesisSource[Any], count: int, position: Any = None) -> Mapping[str, list[Any]]:
    """The next records from a position."""
    with Loop(source, position) as loop:
        loop.until_read(count)
        return {split: values for split, values in loop.values.items() if values}


class BoundedEnumerator(KinesisEnumerator):
    """Ends after so many records."""

    def __init__(self, source: BoundedSource, position: Any) -> None:
        super().__init__(source.watch, None if position is None else position["kinesis"])
        self._left = source.records if position is None else position["left"]

    def plan(self, max_rows: int, parallelism_hint: int = 2) -> list[SplitRange]:
        while not (planned := super().plan(max_rows, parallelism_hint)) and self._left:
            time.sleep(0.002)
        self._left -= sum(r.rows or 0 for r in planned)
        return planned

    @property
    def position(self) -> Any:
        return {"kinesis": super().position, "left": self._left}

    @property
    def finished(self) -> bool:
        return self._left == 0


@dataclass(frozen=True)
class BoundedSource(KinesisSource[Any]):
    """Each epoch reads something of it, until so many records have been read."""

    records: int = 0

    @property
    def bounded(self) -> bool:
        return True

    def create_enumerator(self, position: Any) -> SplitEnumerator:
        return BoundedEnumerator(self, position)


def bounded(source: KinesisSource[Any], records: int) -> BoundedSource:
    return BoundedSource(**vars(source), records=records)

"""What a campaign needs of a system that a job writes to."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.storage.base import open_storage
from kills.job import PER_EPOCH, Counted, count_into, expected
from servers.process import Server

T = TypeVar("T")


@dataclass(frozen=True)
class Verdict:
    """``faults``: how many of each kind."""

    records: int
    faults: dict[str, int]

    @property
    def wrong(self) -> bool:
        return any(self.faults.values())


class System(ABC):
    """A system with a place to write to. ``server``: the process to kill, if it has one. ``committed_by_tasks``: whether its sink
    is a CommittingSink. ``changes``: whether there is ``change``. ``job``: its name."""

    server: Server | None = None
    committed_by_tasks = True
    changes = False
    job = "kills"

    @abstractmethod
    def __init__(self, directory: Path) -> None:
        """Start it, with its data below a directory."""

    @property
    @abstractmethod
    def address(self) -> str:
        """What ``run`` needs, in the job's process."""

    @classmethod
    @abstractmethod
    def run(cls, address: str, root: str, stop: int) -> None:
        """Run the job, with its state below ``root``."""

    @abstractmethod
    def newest(self) -> int:
        """The highest number that is visible, or -1."""

    @abstractmethod
    def end(self) -> int:
        """The ``stop`` with which the last run ends by itself, after some more records."""

    @abstractmethod
    def verdict(self, stop: int) -> Verdict:
        """Compare what is visible after the last run with what should be."""

    def change(self) -> None:
        """Change the job for its next start."""
        raise NotImplementedError

    def definitions(self, state: Path) -> list[Any]:
        """The definitions of the job's committed states, which the first epoch of a changed query replaces. A new run is not
        enough: it may commit its start before any epoch."""
        newest = History(open_storage(str(state)), JobPaths(self.job)).newest()
        return [] if newest is None else [info.definition for info in newest.states]

    def lose_sight(self, state: Path) -> None:
        """Called when a driver is suspended. The command line would not start a job whose driver is alive on this machine, so
        it must not find it, as if it were on a machine that has become unreachable."""
        for endpoint in (state / JobPaths(self.job).runs).glob("*/endpoint.json"):
            endpoint.unlink()

    def locked(self) -> bool:
        """Whether a driver that is suspended now would keep all others from the system."""
        return False

    def close(self) -> None:
        if self.server is not None:
            self.server.stop()


class Counting(System):
    """One that gets the counts of ``kills.job``."""

    @staticmethod
    @abstractmethod
    def sink(address: str) -> Any:
        """The sink of the job."""

    @abstractmethod
    def read(self) -> list[Counted]:
        """What is visible; that of each user in the order of its records, where the system has one."""

    @classmethod
    def run(cls, address: str, root: str, stop: int) -> None:
        count_into(cls.sink(address), root, stop)

    def newest(self) -> int:
        return max((each.number for each in self.read()), default=-1)

    def end(self) -> int:
        return (self.newest() // PER_EPOCH + 40) * PER_EPOCH

    def wanted(self, stop: int) -> list[Counted]:
        """What should be visible after ``stop`` numbers."""
        return expected(stop)

    def verdict(self, stop: int) -> Verdict:
        wanted, found = Counter(self.wanted(stop)), Counter(self.read())
        return Verdict(stop, {"lost": (wanted - found).total(), "repeated": (found - wanted).total()})


class TopicReader(Generic[T]):
    """Reads a topic with read_committed, while the broker is killed."""

    def __init__(self, brokers: str, topic: str, partitions: int, parse: Callable[[Message], T]) -> None:
        self._places = [TopicPartition(topic, partition, 0) for partition in range(partitions)]
        self._parse = parse
        self._found: list[T] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": brokers,
                "group.id": "kills",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "log_level": 0,
                "reconnect.backoff.max.ms": 200,
            }
        )
        self._consumer.assign(self._places)

    def read(self) -> list[T]:
        """All records, up to where each partition ends at the moment."""
        left = {place.partition: self._end(place) for place in self._places}
        while left:
            for message in self._consumer.consume(10_000, timeout=0.05):
                if message.error() is None:
                    self._found.append(self._parse(message))
            for at in self._consumer.position([place for place in self._places if place.partition in left]):
                if at.offset >= left[at.partition] or left[at.partition] == 0:
                    del left[at.partition]
        return self._found

    def _end(self, place: TopicPartition) -> int:
        while True:
            with suppress(KafkaException):  # the broker may have just started
                _, end = self._consumer.get_watermark_offsets(place, timeout=600)
                return int(end)
            time.sleep(0.1)

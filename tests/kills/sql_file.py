"""A file of SQL over Kafka as the job: rows that never stop coming, and a query that is changed with its state kept."""

from __future__ import annotations

import json
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any

from confluent_kafka import Producer

from kills.system import System, TopicReader, Verdict

PARTITIONS = 2
SETTINGS = """
SET 'parallelism.default' = '2';
SET 'execution.checkpointing.interval' = '20 ms';
"""
BOUNDED = ", 'scan.bounded.mode' = 'latest-offset'"
Row = dict[str, Any] | None
"""What a record sets its key's row to; None: there is none any more."""


class Sender:
    """Sends batches of messages until it is stopped, also while the broker is down."""

    def __init__(self, brokers: str) -> None:
        self._stopped, self._failed = Event(), 0
        self._producer = Producer(
            {"bootstrap.servers": brokers, "enable.idempotence": True, "log_level": 0, "reconnect.backoff.max.ms": 200}
        )
        self._thread = Thread(target=self._send, daemon=True)
        self._thread.start()

    @abstractmethod
    def batch(self, number: int) -> Iterator[tuple[str, dict[str, Any], Row]]:
        """The messages of a batch: topic, key and value."""

    def _send(self) -> None:
        for number in count():
            if self._stopped.wait(0.04):
                return
            for topic, key, row in self.batch(number):
                value = None if row is None else json.dumps(row)
                self._producer.produce(topic, value, json.dumps(key), on_delivery=self._delivered)
            self._producer.poll(0)

    def _delivered(self, error: Any, _: Any) -> None:
        self._failed += error is not None

    def stop(self) -> None:
        """All of them are in the topic then."""
        self._stopped.set()
        self._thread.join()
        assert self._producer.flush(60) == 0
        assert self._failed == 0


class SqlFile(System):
    """``topics``: those that the query reads."""

    changes = True
    job = "app"
    topics: tuple[str, ...]

    def __init__(self, directory: Path) -> None:
        from servers.kafka import Kafka as Broker

        self.server: Broker = Broker(directory / "kafka")
        self._result = self.server.create_topic(partitions=PARTITIONS)
        self._reader = TopicReader(self.server.bootstrap_servers, self._result, PARTITIONS, _parsed)
        self._names = {name: self.server.create_topic(partitions=PARTITIONS) for name in self.topics}
        self._names |= {"result": self._result, "brokers": self.server.bootstrap_servers}
        self._file, self._read = directory / "app.sql", 0
        self._sending = self._begin(self._names)
        self.change()

    @abstractmethod
    def _begin(self, names: dict[str, str]) -> Sender:
        """Start to send. ``names``: of the topics and the brokers."""

    @abstractmethod
    def _next(self) -> None:
        """Take the next version of the query."""

    @abstractmethod
    def _script(self, bounded: str, **names: str) -> str:
        """The file with the query's version."""

    @abstractmethod
    def _judge(self, records: list[tuple[dict[str, Any], Row]], faults: Counter[str]) -> None:
        """Count the faults of all records, and of the result that they lead to."""

    @property
    def address(self) -> str:
        return str(self._file)

    @classmethod
    def run(cls, address: str, root: str, stop: int) -> None:
        from forkpoint.cli import main

        main(["--verbose", "--state-root", root, "sql", "-f", address])

    def change(self) -> None:
        self._next()
        self._write("")

    def _write(self, bounded: str) -> None:
        self._file.write_text(SETTINGS + self._script(bounded, **self._names))

    def new_records(self) -> Iterator[tuple[dict[str, Any], Row]]:
        """The records of the result since the last call."""
        found = self._reader.read()
        new, self._read = found[self._read :], len(found)
        return iter(new)

    def end(self) -> int:
        time.sleep(1)  # some more
        self._sending.stop()
        self._write(BOUNDED)
        return 0

    def verdict(self, stop: int) -> Verdict:
        self.server.settle(self._result)
        faults = Counter({"lost": 0, "repeated": 0, "out of order": 0, "wrong": 0})
        records = self._reader.read()
        self._judge(records, faults)
        return Verdict(len(records), dict(faults))


def _parsed(message: Any) -> tuple[dict[str, Any], Row]:
    value = message.value()
    return json.loads(message.key()), None if value is None else json.loads(value)

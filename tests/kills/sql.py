"""A file of SQL as the job: a query over orders that never stop coming, and that is changed with its counts kept."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any

from confluent_kafka import Producer

from kills.system import System, TopicReader, Verdict

KEYS = 50
PARTITIONS = 2
PER_BATCH = 40
SCRIPT = """
SET 'parallelism.default' = '2';
SET 'execution.checkpointing.interval' = '20 ms';
CREATE TABLE orders (k STRING, v BIGINT)
WITH ('connector' = 'kafka', 'topic' = '{orders}', 'properties.bootstrap.servers' = '{brokers}', 'format' = 'json'{bounded});
CREATE TABLE totals ({columns}, PRIMARY KEY (k) NOT ENFORCED)
WITH ('connector' = 'upsert-kafka', 'topic' = '{totals}', 'properties.bootstrap.servers' = '{brokers}',
      'key.format' = 'json', 'value.format' = 'json');
INSERT INTO totals SELECT {expressions} FROM orders GROUP BY k{having};
"""
BOUNDED = ", 'scan.bounded.mode' = 'latest-offset'"
HAVING = " HAVING MOD(COUNT(*), 3) <> 0"  # so that rows come and go
EXPRESSIONS = {"k": "k", "n": "COUNT(*)", "total": "SUM(v)", "average": "AVG(v)"}


@dataclass(frozen=True)
class Version:
    """Of the query. ``naming``: the number that ends the names of its columns, by which records tell the versions apart."""

    columns: tuple[str, ...]
    naming: int
    having: bool

    @property
    def names(self) -> dict[str, str]:
        """What each column is called."""
        return {column: column if column == "k" else f"{column}_{self.naming}" for column in self.columns}

    def shows(self, orders: int) -> bool:
        return not self.having or orders % 3 != 0

    def script(self, bounded: bool, **names: str) -> str:
        typed = {column: "STRING" if column == "k" else "BIGINT" for column in self.columns}
        return SCRIPT.format(
            columns=", ".join(f"{name} {typed[column]}" for column, name in self.names.items()),
            expressions=", ".join(EXPRESSIONS[column] for column in self.columns),
            having=HAVING if self.having else "",
            bounded=BOUNDED if bounded else "",
            **names,
        )


def versions() -> Iterator[Version]:
    """AVG is added, HAVING is added, columns are reordered, HAVING is removed, AVG is removed, and again. HAVING changes alone,
    with the names as before, so that the difference is only the rows that go or come."""
    for number in count():
        yield Version(("k", "n", "total"), 3 * number, False)
        yield Version(("k", "n", "total", "average"), 3 * number + 1, False)
        yield Version(("k", "n", "total", "average"), 3 * number + 1, True)
        yield Version(("average", "k", "total", "n"), 3 * number + 2, True)
        yield Version(("average", "k", "total", "n"), 3 * number + 2, False)


class Orders:
    """Sends orders until it is stopped, also while the broker is down. ``sent``: the values of each key, in their order."""

    def __init__(self, brokers: str, topic: str) -> None:
        self.sent: dict[str, list[int | None]] = defaultdict(list)
        self._topic, self._stopped, self._failed = topic, Event(), 0
        self._producer = Producer(
            {"bootstrap.servers": brokers, "enable.idempotence": True, "log_level": 0, "reconnect.backoff.max.ms": 200}
        )
        self._thread = Thread(target=self._send, daemon=True)
        self._thread.start()

    def _send(self) -> None:
        numbers = count()
        while not self._stopped.wait(0.04):
            for number, _ in zip(numbers, range(PER_BATCH), strict=False):
                k, v = f"key {number % KEYS}", None if number % 13 == 0 else number * 7919 % 2001 - 1000
                self.sent[k].append(v)
                value = json.dumps({"k": k, "v": v})
                self._producer.produce(self._topic, value, k, on_delivery=self._delivered)
            self._producer.poll(0)

    def _delivered(self, error: Any, _: Any) -> None:
        self._failed += error is not None

    def stop(self) -> None:
        """All of them are in the topic then."""
        self._stopped.set()
        self._thread.join()
        assert self._producer.flush(60) == 0
        assert self._failed == 0


@dataclass
class Judge:
    """Takes one key's records in their order. A record counts as wrong if its row is not that of the key's first n orders."""

    orders: list[int | None]
    faults: Counter[str]
    row: dict[str, Any] | None = None
    _last: tuple[int, int] = (-1, -1)
    _sums: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        total = present = 0
        self._sums.append((0, 0))
        for value in self.orders:
            total, present = total + (value or 0), present + (value is not None)
            self._sums.append((total, present))

    def take(self, row: dict[str, Any] | None) -> None:
        if row is None:
            self.faults["repeated"] += self.row is None  # there is nothing to delete
        else:
            at = _place(row)
            self.faults["out of order"] += at < self._last
            self.faults["repeated"] += at == self._last
            self.faults["wrong"] += any(
                _column(name, self.expected(at[1])) != value for name, value in row.items() if name != "k"
            )
            self._last = max(at, self._last)
        self.row = row

    def expected(self, orders: int) -> dict[str, int | None]:
        """The aggregates of the first orders. AVG of BIGINT is truncated."""
        total, present = self._sums[min(orders, len(self.orders))]
        average = None if not present else abs(total) // present * (1 if total > 0 else -1)
        return {"n": min(orders, len(self.orders)), "total": total if present else None, "average": average}

    def end(self, version: Version) -> None:
        """Compare the last row with the version's over all orders."""
        found = self.expected(len(self.orders))
        row = {name: found[column] for column, name in version.names.items() if column != "k"}
        wanted = row if version.shows(len(self.orders)) else None
        self.faults["lost"] += (None if self.row is None else {n: v for n, v in self.row.items() if n != "k"}) != wanted


def _place(row: dict[str, Any]) -> tuple[int, int]:
    """The naming and the number of orders of a row."""
    name = next(name for name in row if name.startswith("n_"))
    return int(name.removeprefix("n_")), row[name]


def _column(name: str, row: dict[str, int | None]) -> int | None:
    return row[name.partition("_")[0]]


class Sql(System):
    """``newest``: as many orders as the counts that were seen have."""

    changes = True
    job = "app"

    def __init__(self, directory: Path) -> None:
        from servers.kafka import Kafka as Broker

        self.server: Broker = Broker(directory / "kafka")
        self._orders, self._totals = (self.server.create_topic(partitions=PARTITIONS) for _ in range(2))
        self._reader = TopicReader(self.server.bootstrap_servers, self._totals, PARTITIONS, _parsed)
        self._sending = Orders(self.server.bootstrap_servers, self._orders)
        self._file, self._versions = directory / "app.sql", versions()
        self._seen: dict[str, int] = {}
        self._read = 0
        self.change()

    @property
    def address(self) -> str:
        return str(self._file)

    @classmethod
    def run(cls, address: str, root: str, stop: int) -> None:
        from forkpoint.cli import main

        main(["--verbose", "--state-root", root, "sql", "-f", address])

    def change(self) -> None:
        self._version = next(self._versions)
        self._write(bounded=False)

    def _write(self, bounded: bool) -> None:
        brokers = self.server.bootstrap_servers
        self._file.write_text(self._version.script(bounded, orders=self._orders, totals=self._totals, brokers=brokers))

    def newest(self) -> int:
        found = self._reader.read()
        for key, row in found[self._read :]:
            if row is not None:
                self._seen[key] = max(self._seen.get(key, 0), _place(row)[1])
        self._read = len(found)
        return sum(self._seen.values()) - 1

    def end(self) -> int:
        time.sleep(1)  # some more
        self._sending.stop()
        self._write(bounded=True)
        return sum(map(len, self._sending.sent.values()))

    def verdict(self, stop: int) -> Verdict:
        self.server.settle(self._totals)
        faults = Counter({"lost": 0, "repeated": 0, "out of order": 0, "wrong": 0})
        judges = {key: Judge(values, faults) for key, values in self._sending.sent.items()}
        records = self._reader.read()
        for key, row in records:
            judges[key].take(row)
        for judge in judges.values():
            judge.end(self._version)
        return Verdict(len(records), dict(faults))


def _parsed(message: Any) -> tuple[str, dict[str, Any] | None]:
    value = message.value()
    return json.loads(message.key())["k"], None if value is None else json.loads(value)

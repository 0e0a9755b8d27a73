"""Totals by key, of orders that never stop coming: aggregates, columns and HAVING change."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from kills.sql_file import Row, Sender, SqlFile

KEYS = 50
PER_BATCH = 40
SCRIPT = """
CREATE TABLE orders (k STRING, v BIGINT)
WITH ('connector' = 'kafka', 'topic' = '{orders}', 'properties.bootstrap.servers' = '{brokers}', 'format' = 'json'{bounded});
CREATE TABLE totals ({columns}, PRIMARY KEY (k) NOT ENFORCED)
WITH ('connector' = 'upsert-kafka', 'topic' = '{result}', 'properties.bootstrap.servers' = '{brokers}',
      'key.format' = 'json', 'value.format' = 'json');
INSERT INTO totals SELECT {expressions} FROM orders GROUP BY k{having};
"""
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

    def script(self, bounded: str, **names: str) -> str:
        typed = {column: "STRING" if column == "k" else "BIGINT" for column in self.columns}
        return SCRIPT.format(
            columns=", ".join(f"{name} {typed[column]}" for column, name in self.names.items()),
            expressions=", ".join(EXPRESSIONS[column] for column in self.columns),
            having=HAVING if self.having else "",
            bounded=bounded,
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


class Orders(Sender):
    """``sent``: the values of each key, in their order."""

    def __init__(self, brokers: str, topic: str) -> None:
        self.sent: dict[str, list[int | None]] = defaultdict(list)
        self._topic = topic
        super().__init__(brokers)

    def batch(self, number: int) -> Iterator[tuple[str, dict[str, Any], Row]]:
        for n in range(number * PER_BATCH, (number + 1) * PER_BATCH):
            k, v = f"key {n % KEYS}", None if n % 13 == 0 else n * 7919 % 2001 - 1000
            self.sent[k].append(v)
            yield self._topic, {"k": k}, {"k": k, "v": v}


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


class Sql(SqlFile):
    """``newest``: as many orders as the counts that were seen have."""

    topics = ("orders",)

    def _begin(self, names: dict[str, str]) -> Orders:
        self._versions = versions()
        self._seen: dict[str, int] = {}
        self._orders = Orders(names["brokers"], names["orders"])
        return self._orders

    def _next(self) -> None:
        self._version = next(self._versions)

    def _script(self, bounded: str, **names: str) -> str:
        return self._version.script(bounded, **names)

    def newest(self) -> int:
        for key, row in self.new_records():
            if row is not None:
                self._seen[key["k"]] = max(self._seen.get(key["k"], 0), _place(row)[1])
        return sum(self._seen.values()) - 1

    def _judge(self, records: list[tuple[dict[str, Any], Row]], faults: Counter[str]) -> None:
        judges = {key: Judge(values, faults) for key, values in self._orders.sent.items()}
        for key, row in records:
            judges[key["k"]].take(row)
        for judge in judges.values():
            judge.end(self._version)

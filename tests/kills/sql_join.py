"""A join of two tables whose rows change: the kind of join and the columns change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import count
from typing import Any

from kills.sql_file import Row, Sender, SqlFile

IDS = 600
KEYS = 40
PER_BATCH = 12
SCRIPT = """
CREATE TABLE orders (id BIGINT, k BIGINT, v BIGINT, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'upsert-kafka', 'topic' = '{orders}', 'properties.bootstrap.servers' = '{brokers}',
      'key.format' = 'json', 'value.format' = 'json'{bounded});
CREATE TABLE names (k BIGINT, name BIGINT, PRIMARY KEY (k) NOT ENFORCED)
WITH ('connector' = 'upsert-kafka', 'topic' = '{names}', 'properties.bootstrap.servers' = '{brokers}',
      'key.format' = 'json', 'value.format' = 'json'{bounded});
CREATE TABLE joined ({columns}, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'upsert-kafka', 'topic' = '{result}', 'properties.bootstrap.servers' = '{brokers}',
      'key.format' = 'json', 'value.format' = 'json');
INSERT INTO joined SELECT {expressions} FROM orders AS o {kind} JOIN names AS n ON o.k = n.k{condition};
"""
CONDITION = " AND MOD(o.v + n.name, 7) <> 0"
COLUMNS = {"id": "o.id", "v": "o.v", "name": "n.name"}


class Changing(Sender):
    """Orders and names are added, changed and deleted. Their values grow. ``orders``, ``names``: those that are there."""

    def __init__(self, brokers: str, orders: str, names: str) -> None:
        self.orders: dict[int, int] = {}
        self.names: dict[int, int] = {}
        self._topics = orders, names
        super().__init__(brokers)

    def batch(self, number: int) -> Iterator[tuple[str, dict[str, Any], Row]]:
        for n in range(number * PER_BATCH, (number + 1) * PER_BATCH):
            at = n * 7919 % IDS
            row = None if n % 11 == 0 else {"id": at, "k": at % KEYS, "v": n}
            _set(self.orders, at, None if row is None else n)
            yield self._topics[0], {"id": at}, row
        if number % 4 == 0:
            name = number // 4
            k, row = name * 31 % KEYS, None if name % 7 == 0 else {"k": name * 31 % KEYS, "name": name}
            _set(self.names, k, None if row is None else name)
            yield self._topics[1], {"k": k}, row


def _set(rows: dict[int, int], key: int, value: int | None) -> None:
    if value is None:
        rows.pop(key, None)
    else:
        rows[key] = value


class SqlJoin(SqlFile):
    """Versions are told apart by the number that ends the names of their columns."""

    topics = ("orders", "names")

    def _begin(self, names: dict[str, str]) -> Changing:
        self._versions, self._newest = self._all_versions(), -1
        self._tables = Changing(names["brokers"], names["orders"], names["names"])
        return self._tables

    @staticmethod
    def _all_versions() -> Iterator[tuple[int, str, str, tuple[str, ...]]]:
        """Naming, kind, condition and order of columns."""
        for n in count():
            yield 2 * n, "LEFT", "", ("id", "v", "name")
            yield 2 * n, "INNER", "", ("id", "v", "name")
            yield 2 * n + 1, "INNER", CONDITION, ("name", "id", "v")
            yield 2 * n + 1, "LEFT", CONDITION, ("name", "id", "v")

    def _next(self) -> None:
        self._version = next(self._versions)

    def _script(self, bounded: str, **names: str) -> str:
        naming, kind, condition, columns = self._version
        named = ", ".join("id BIGINT" if column == "id" else f"{column}_{naming} BIGINT" for column in columns)
        expressions = ", ".join(COLUMNS[column] for column in columns)
        return SCRIPT.format(columns=named, expressions=expressions, kind=kind, condition=condition, bounded=bounded, **names)

    def newest(self) -> int:
        for _, row in self.new_records():
            self._newest = max(self._newest, -1 if row is None else _values(row)[1])
        return self._newest

    def _judge(self, records: list[tuple[dict[str, Any], Row]], faults: Counter[str]) -> None:
        rows: dict[int, tuple[int, int, int | None]] = {}
        last: dict[int, tuple[int, int]] = {}
        for key, row in records:
            at = key["id"]
            if row is None:
                faults["repeated"] += at not in rows  # there is nothing to delete
                rows.pop(at, None)
                continue
            naming, v, name = values = _values(row)
            faults["repeated"] += rows.get(at) == values
            faults["out of order"] += (naming, v) < last.get(at, (0, 0))
            faults["wrong"] += v * 7919 % IDS != at or (name is not None and name * 31 % KEYS != at % KEYS)
            rows[at], last[at] = values, (naming, v)
        faults["lost"] += sum(rows.get(at) != wanted for at, wanted in self._expected().items())
        faults["wrong"] += len(rows.keys() - self._expected().keys())

    def _expected(self) -> dict[int, tuple[int, int, int | None]]:
        """The result of the last version over all that was sent."""
        naming, kind, condition, _ = self._version
        found: dict[int, tuple[int, int, int | None]] = {}
        for at, v in self._tables.orders.items():
            name = self._tables.names.get(at % KEYS)
            if name is not None and condition and (v + name) % 7 == 0:
                name = None
            if name is not None or kind == "LEFT":
                found[at] = naming, v, name
        return found


def _values(row: dict[str, Any]) -> tuple[int, int, int | None]:
    """Naming, v and name of a row."""
    name = next(name for name in row if name.startswith("v_"))
    naming = name.removeprefix("v_")
    return int(naming), row[name], row[f"name_{naming}"]

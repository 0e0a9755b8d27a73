"""A file of SQL that adds up orders, which come, change and go, into a table of a connector that keeps a row for each key."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from sql.sql_job import SqlJob

PROGRAM = """
SET 'execution.checkpointing.interval' = '50 ms';
CREATE TABLE orders (k STRING, n INT, euros DECIMAL(6, 2), note STRING, made TIMESTAMP(3))
WITH ('connector' = 'filesystem', 'path' = 'orders', 'format' = 'debezium-json', 'source.monitor-interval' = '50 ms');
CREATE TABLE totals (
    k STRING, n INT, orders BIGINT, euros DECIMAL(20, 2), note STRING, newest TIMESTAMP(3), PRIMARY KEY (k, n) NOT ENFORCED
) WITH ({options});
INSERT INTO totals SELECT k, n, COUNT(*), SUM(euros), MAX(note), MAX(made) FROM orders GROUP BY k, n;
"""
KEYS = ("a", "a_1", "a:1", "1")


class Order(NamedTuple):
    k: str
    n: int
    euros: Decimal
    note: str | None
    made: datetime


class Total(NamedTuple):
    """``note`` and ``newest``: the greatest."""

    orders: int
    euros: Decimal
    note: str | None
    newest: datetime


class ChangingOrders(SqlJob):
    """``options``: of the table that is written."""

    def __init__(self, directory: Path, **options: str) -> None:
        super().__init__(directory)
        (directory / "orders").mkdir()
        self._files = 0
        self._orders: dict[int, Order] = {}
        self.write_file(PROGRAM.format(options=", ".join(f"'{name.replace('_', '-')}' = '{options[name]}'" for name in options)))

    def change(self, ids: range, order: Callable[[int], Order | None]) -> None:
        """Add, update or delete orders."""
        lines = []
        for id in ids:
            before, after = self._orders.pop(id, None), order(id)
            op = "c" if before is None else "d" if after is None else "u"
            lines.append(json.dumps({"op": op, "before": _row(before), "after": _row(after)}))
            if after is not None:
                self._orders[id] = after
        self._files += 1
        written = self.directory / "orders" / f".{self._files}"
        written.write_text("\n".join(lines) + "\n")
        written.rename(written.with_name(f"{self._files}.json"))

    def totals(self) -> dict[tuple[str, int], Total]:
        groups = defaultdict(list)
        for order in self._orders.values():
            groups[order.k, order.n].append(order)
        return {key: _total(orders) for key, orders in groups.items()}

    def check(self, found: Callable[[], dict[tuple[str, int], Total]]) -> None:
        """Run it, with a kill, until the table that ``found`` reads has the totals."""
        self.start()
        self.change(range(200), _order)
        self.wait_until(found, before := self.totals())
        self.change(range(200, 400), _order)
        self.change(range(0, 400, 3), lambda id: _order(id)._replace(note=None, euros=Decimal(id)))
        self.wait_until(lambda: found() != before, True)
        self.kill()  # while it works on these
        self.change(range(400), lambda id: None if _order(id).k == "a_1" or id < 100 else _order(id)._replace(note=None))
        self.start()
        self.wait_until(found, self.totals())
        assert len(self.totals()) == 6


def _order(id: int) -> Order:
    made = datetime.fromisoformat("2026-01-02T03:04:05") + timedelta(milliseconds=500 * id)
    return Order(KEYS[id % 4], id // 4 % 2, Decimal(id) / 4, f'"{id}"', made)


def _row(order: Order | None) -> dict[str, Any] | None:
    return None if order is None else {**order._asdict(), "euros": str(order.euros), "made": order.made.isoformat(" ")}


def _total(orders: list[Order]) -> Total:
    notes = [order.note for order in orders if order.note is not None]
    newest = max(order.made for order in orders)
    return Total(len(orders), sum(order.euros for order in orders) + Decimal(0), max(notes, default=None), newest)

"""Writers of a table while it is read, and what must be seen of that."""

from __future__ import annotations

import json
import random
import threading
import time
from pathlib import Path
from typing import Any

import psycopg

from servers.postgres import Postgres

COLUMNS = "id int PRIMARY KEY, version int NOT NULL, filler text"


class Writer(threading.Thread):
    """Changes rows of its own, ``ids``, in transactions of several changes, some rolled back, some with savepoints."""

    def __init__(self, postgres: Postgres, table: str, ids: range, seed: int) -> None:
        super().__init__(daemon=True)
        self._postgres, self._table, self._ids, self._rng = postgres, table, list(ids), random.Random(seed)
        self._versions: dict[int, int] = {}
        self._there: set[int] = set()
        self._touched: set[int] = set()  # in the last transaction
        self._stopped = threading.Event()
        self.transactions = 0

    def prefill(self) -> None:
        """Rows for the snapshot."""
        with self._postgres.connect() as connection, connection.transaction():
            for id in self._ids[::2]:
                self._change(connection, id)

    def run(self) -> None:
        while not self._stopped.is_set():
            try:
                with self._postgres.connect() as connection:
                    while not self._stopped.is_set():
                        self._transaction(connection)
                        time.sleep(0.005)
            except (
                psycopg.OperationalError,
                psycopg.Rollback,
            ):  # the server was killed: did the last transaction commit?
                time.sleep(0.1)
                self._look()

    def stop(self) -> None:
        self._stopped.set()
        self.join()

    def _transaction(self, connection: psycopg.Connection[Any]) -> None:
        versions, there = dict(self._versions), set(self._there)
        self._touched.clear()
        try:
            with connection.transaction():
                for id in self._rng.choices(self._ids, k=self._rng.randint(1, 4)):
                    if self._rng.random() < 0.2:
                        with connection.transaction():
                            self._change(connection, id)
                    else:
                        self._change(connection, id)
                if self._rng.random() < 0.1:
                    time.sleep(0.03)
                if self._rng.random() < 0.1:
                    raise psycopg.Rollback
                self.transactions += 1
                return
        except BaseException:
            self._versions, self._there = versions, there
            raise
        self._versions, self._there = versions, there

    def _change(self, connection: psycopg.Connection[Any], id: int) -> None:
        version = self._versions.get(id, 0)
        self._touched.add(id)
        if id not in self._there:
            connection.execute(f"INSERT INTO {self._table} VALUES (%s, %s, 'x')", [id, version + 1])
            self._there.add(id)
        elif self._rng.random() < 0.2:
            connection.execute(f"DELETE FROM {self._table} WHERE id = %s", [id])
            self._there.remove(id)
            return
        else:
            connection.execute(f"UPDATE {self._table} SET version = %s WHERE id = %s", [version + 1, id])
        self._versions[id] = version + 1

    def _look(self) -> None:
        while not self._stopped.is_set():
            try:
                rows = dict(self._postgres.execute(f"SELECT id, version FROM {self._table}"))
            except psycopg.OperationalError:
                time.sleep(0.1)
                continue
            self._there = set(rows) & set(self._ids)
            for id in self._there:
                self._versions[id] = rows[id]
            # Nobody knows which version the others had when they were deleted.
            self._ids = [id for id in self._ids if id in self._there or id not in self._touched]
            return


def seen(output: Path) -> dict[int, list[tuple[int, str, int]]]:
    """By id: number, kind and version of the changes, in order."""
    found: dict[int, list[tuple[int, str, int]]] = {}
    for file in output.glob("*.jsonl") if output.exists() else ():
        for line in file.read_text().splitlines():
            row = json.loads(line)
            found.setdefault(row["id"], []).append((row["number"], row["kind"], row["version"]))
    return {id: sorted(changes) for id, changes in found.items()}


def check(found: dict[int, list[tuple[int, str, int]]], rows: dict[int, int]) -> None:
    """Each change once, in order, and in the end what the table has."""
    there = {}
    for id, changes in found.items():
        assert [number for number, _, _ in changes] == list(range(1, len(changes) + 1)), (id, changes)
        last: tuple[str, int] | None = None
        for _, kind, version in changes:
            if last is not None and last[0] != "DELETE":
                assert (kind, version) in (("UPDATE_AFTER", last[1] + 1), ("DELETE", last[1])), (id, changes)
            else:
                assert kind == "INSERT", (id, changes)
                assert last is None or version == last[1] + 1, (id, changes)
            last = kind, version
        if last is not None and last[0] != "DELETE":
            there[id] = last[1]
    assert there == rows

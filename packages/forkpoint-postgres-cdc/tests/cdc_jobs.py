"""What the tests of PostgreSQL's changes share: tables, and a driver's loop without a driver."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import forkpoint as fp
from connectors.connector_reading import elements, json_round_trip
from forkpoint.contract.source import SourceContext
from servers.postgres import Postgres

COLUMNS = "id int PRIMARY KEY, name text, amount int"


def named(prefix: str = "t") -> str:
    return f"{prefix}_{uuid.uuid4().hex[:8]}"


def create_table(postgres: Postgres, columns: str = COLUMNS, *, name: str | None = None, full: bool = False) -> str:
    """A new table with a publication of the same name."""
    table = name or named()
    postgres.execute(f"CREATE TABLE {table} ({columns})")
    if full:
        postgres.execute(f"ALTER TABLE {table} REPLICA IDENTITY FULL")
    postgres.execute(f"CREATE PUBLICATION {table} FOR TABLE {table}")
    return table


def source(postgres: Postgres, *tables: str, **options: Any) -> fp.PostgresSource:
    options.setdefault("publication", tables[0])
    return fp.PostgresSource(postgres.dsn, list(tables), **options)


class Loop:
    """Plans, reads and commits, as a job does. ``changes``: what was read."""

    def __init__(self, source: fp.PostgresSource, position: Any = None, job: str = "job") -> None:
        self.source = source.for_job(SourceContext("uid", job, "memory:"))
        self.changes: list[Any] = []
        self.position = json_round_trip(position)
        self.enumerator: Any = self.source.create_enumerator(self.position)

    def __enter__(self) -> Loop:
        return self

    def __exit__(self, *_: object) -> None:
        self.enumerator.close()

    def step(self, max_rows: int = 1000, *, commit: bool = True) -> int:
        """One epoch; returns how many changes it had."""
        planned = self.enumerator.plan(max_rows)
        read = [change for range in planned for change in elements(self.source, range)]
        self.changes += read
        if commit:
            self.position = json_round_trip(self.enumerator.position)
            self.enumerator.committed(self.position)
        return len(read)

    def until(self, holds: Callable[[], bool], max_rows: int = 1000) -> None:
        while not holds():
            self.step(max_rows)
            time.sleep(0.002)

    def until_changes(self, count: int, max_rows: int = 1000) -> list[Any]:
        self.until(lambda: len(self.changes) >= count, max_rows)
        return self.changes

    def until_read(self) -> list[Any]:
        """Epochs until the rows have been read, and the tables are free for other sessions to change."""
        self.until(lambda: self.enumerator._feed is not None and self.enumerator._feed.tables_read)
        while "exporting" in self.enumerator._feed.doing:
            time.sleep(0.002)
        return self.changes

    def until_it_fails(self) -> None:
        while True:
            self.step()
            time.sleep(0.002)


@contextmanager
def dropped(postgres: Postgres) -> Iterator[None]:
    """Drop the slots that are left at the end."""
    try:
        yield
    finally:
        for name, active in postgres.execute("SELECT slot_name, active FROM pg_replication_slots"):
            if not active:
                postgres.execute("SELECT pg_drop_replication_slot(%s)", name)


def replay(changes: list[Any]) -> dict[Any, Any]:
    """The rows that are there after changes, by id. Fails where a change does not fit what came before."""
    rows: dict[Any, Any] = {}
    for change in changes:
        old = change.before.id if change.before is not None else change.after.id
        if change.kind is fp.RowKind.INSERT:
            assert change.after.id not in rows, change
        else:
            assert old in rows, change
            del rows[old]
        if change.after is not None:
            assert change.after.id not in rows, change
            rows[change.after.id] = tuple(change.after)
    return rows


def contents(postgres: Postgres, table: str) -> dict[Any, Any]:
    return {row[0]: tuple(row) for row in postgres.execute(f"SELECT * FROM {table}")}

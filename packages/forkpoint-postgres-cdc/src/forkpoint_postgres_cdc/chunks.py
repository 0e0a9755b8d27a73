"""Reads tables in ranges of their primary keys, in one exported snapshot that several sessions share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from forkpoint.contract.source import JSON
from forkpoint.errors import SystemUnavailable
from forkpoint_postgres_cdc.catalog import Table, quote
from forkpoint_postgres_cdc.connection import Database
from forkpoint_postgres_cdc.position import Key, Part
from forkpoint_postgres_cdc.slot import inserted

if TYPE_CHECKING:
    import psycopg

LOCK_S = 10
"""How long a task waits for a lock on a table that another session wants to alter."""


@dataclass(frozen=True)
class ExportedSnapshot:
    """A snapshot that sessions can use while the session that exported it exists. ``text``: the transactions it contains."""

    id: str
    text: str
    high: int
    time: datetime


@dataclass(frozen=True)
class Chunk:
    """A range of a table: keys after ``lower`` (None: from the first), up to and including ``upper`` (None: to the last)."""

    table: Table
    columns: tuple[str, ...]
    lower: Key | None
    upper: Key | None
    rows: int
    exported: ExportedSnapshot

    @property
    def part(self) -> Part:
        return Part(self.upper, self.exported.text, self.exported.high)

    def to_json(self, database: str) -> JSON:
        """The information that a task needs to read it."""
        return {
            "table": self.table.given,
            "database": database,
            "columns": list(self.columns),
            "query": self._query(),
            "snapshot": self.exported.id,
            "contains": self.exported.text,
            "time": self.exported.time.isoformat(),
        }

    def _query(self) -> str:
        columns = ", ".join(map(quote, self.columns)) or "NULL"
        where = [comparison(self.table, sign, key) for sign, key in ((">", self.lower), ("<=", self.upper)) if key]
        condition = f" WHERE {' AND '.join(where)}" if where else ""
        order = f" ORDER BY {_key(self.table)}" if self.table.key else ""
        return f"SELECT {columns} FROM {self.table.sql}{condition}{order}"


def _key(table: Table) -> str:
    return ", ".join(quote(column.name) for column in table.key)


def comparison(table: Table, sign: str, key: Key, left: Sequence[str] | None = None) -> str:
    """A condition that compares the key, or ``left`` in place of its columns, with a value in the order of the table's index."""
    columns = ", ".join(left or [quote(column.name) for column in table.key])
    values = ", ".join(f"{literal(v)}{column.comparable}" for v, column in zip(key, table.key, strict=True))
    return f"ROW({columns}) {sign} ROW({values})" if len(key) > 1 else f"{columns} {sign} {values}"


def literal(text: str) -> str:
    """A value as an SQL literal, independent of standard_conforming_strings."""
    quoted = text.replace("'", "''")
    if "\\" in quoted:
        doubled = quoted.replace("\\", "\\\\")
        return f"E'{doubled}'"
    return f"'{quoted}'"


@contextmanager
def exporting(connection: psycopg.Connection[Any], database: Database) -> Iterator[tuple[ExportedSnapshot, Any]]:
    """Export a snapshot. Yields it with its session; it ends with the session."""
    with database.connect() as session:
        session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        row = session.execute("SELECT pg_export_snapshot(), pg_current_snapshot()::text, now()").fetchone()
        assert row is not None
        # Everything in the snapshot is already in the log, so the snapshot contains nothing that the log gets from here on.
        yield ExportedSnapshot(row[0], row[1], inserted(connection), row[2]), session


def oldest_running(connection: psycopg.Connection[Any]) -> tuple[int, int]:
    """The ids of the oldest running transaction and of the next transaction."""
    row = connection.execute(
        "SELECT pg_snapshot_xmin(s)::text::int8, pg_snapshot_xmax(s)::text::int8 FROM pg_current_snapshot() AS s"
    ).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


def chunks_of(
    session: psycopg.Connection[Any],
    table: Table,
    columns: tuple[str, ...],
    after: Key | None,
    size: int,
    exported: ExportedSnapshot,
) -> Iterator[Chunk]:
    """The rest of a table, in ranges of about ``size`` rows; a single range without a primary key."""
    if not table.key:
        yield Chunk(table, columns, None, None, max(1, table.rows), exported)
        return
    texts = ", ".join(f"{quote(column.name)}::text" for column in table.key)
    while True:
        where = f" WHERE {comparison(table, '>', after)}" if after else ""
        found = session.execute(
            f"SELECT {texts} FROM {table.sql}{where} ORDER BY {_key(table)} OFFSET {size - 1} LIMIT 1"
        ).fetchone()
        upper = None if found is None else tuple(found)
        yield Chunk(table, columns, after, upper, size, exported)
        if upper is None:
            return
        after = upper


def parts_of_keys(connection: psycopg.Connection[Any], table: Table, bounds: Sequence[Key], keys: Sequence[Key]) -> list[int]:
    """The index of each key's range in the server's sort order. ``bounds``: the last keys of all ranges but the last."""
    names = [f"k{i}" for i in range(len(table.key))]
    left = [f"{name}{column.comparable}" for name, column in zip(names, table.key, strict=True)]
    number = " + ".join(f"({comparison(table, '>', bound, left)})::int" for bound in bounds) or "0"
    arrays = ", ".join(["%s::text[]"] * len(names))
    columns = ", ".join((*names, "place"))
    query = f"SELECT {number.replace('%', '%%')} FROM unnest({arrays}) WITH ORDINALITY AS k ({columns}) ORDER BY place"
    rows = connection.execute(query, [list(column) for column in zip(*keys, strict=True)])
    return [row[0] for row in rows]


def read_chunk(connection: psycopg.Connection[Any], info: JSON) -> Iterator[list[tuple[str | None, ...]]]:
    """The rows of a range as text, in batches. Raises SystemUnavailable if the snapshot is gone."""
    import psycopg

    # Avoids a deadlock: an ALTER waits for the session that exported the snapshot, that session waits for this task.
    connection.execute(f"SET lock_timeout = '{LOCK_S}s'")
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    try:
        connection.execute(f"SET TRANSACTION SNAPSHOT {literal(info['snapshot'])}")
    except (
        psycopg.errors.InvalidParameterValue,
        psycopg.errors.UndefinedObject,
        psycopg.errors.ObjectNotInPrerequisiteState,
    ) as error:
        raise SystemUnavailable(f"the snapshot is gone because its session has ended: {error}") from error
    (contains,) = connection.execute("SELECT pg_current_snapshot()::text").fetchone() or ("",)
    if contains != info["contains"]:  # another snapshot, after a restart of the server
        raise SystemUnavailable(f"snapshot {info['snapshot']} is not the one that was exported")
    run: list[tuple[str | None, ...]] = []
    with connection.cursor().copy(f"COPY ({info['query']}) TO STDOUT") as copy:
        for row in copy.rows():
            run.append(row)
            if len(run) == 5000:
                yield run
                run = []
    if run:
        yield run
    connection.execute("COMMIT")

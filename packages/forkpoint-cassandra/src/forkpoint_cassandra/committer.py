"""Writes committed rows with timestamps that grow with the epochs, so that late writes have no effect.

Cassandra keeps the value with the newest timestamp in each cell. The ledger assigns a span of timestamps to each epoch: a
repeated commit writes the same values again, and writes of an old driver that wakes up have older timestamps than later writes.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from typing import Any

from forkpoint.checkpoint.manifest import EpochOutput
from forkpoint.connectors.ledger import CASSANDRA_TABLE, Span, entry_name, next_span, refuse_put_back
from forkpoint.connectors.rows import StagedRow, staged_rows
from forkpoint.connectors.upserts import needed
from forkpoint.contract.sink import Committer, CommitterContext
from forkpoint.errors import JobFailed
from forkpoint_cassandra.client import raising_errors
from forkpoint_cassandra.table import Statements, TableName, is_set, quoted, type_names, write_of

CONCURRENCY = 128
_TIMESTAMP = struct.Struct(">q")


def create_ledger(session: Any, cluster: Any, keyspace: str) -> None:
    """Create the ledger's table unless it exists."""
    if CASSANDRA_TABLE not in cluster.metadata.keyspaces[keyspace].tables:
        session.execute(
            f"CREATE TABLE IF NOT EXISTS {quoted(keyspace)}.{CASSANDRA_TABLE} "
            "(name text PRIMARY KEY, epoch bigint, first_us bigint, end_us bigint)"
        )


class Ledger:
    """An entry of the ledger."""

    def __init__(self, session: Any, keyspace: str, name: str) -> None:
        from cassandra import ConsistencyLevel

        table = f"{quoted(keyspace)}.{CASSANDRA_TABLE}"
        self._session = session
        self._name = name
        self._read = session.prepare(f"SELECT epoch, first_us, end_us FROM {table} WHERE name = ?")
        self._read.consistency_level = ConsistencyLevel.SERIAL
        self._insert = session.prepare(f"INSERT INTO {table} (name, epoch, first_us, end_us) VALUES (?, ?, ?, ?) IF NOT EXISTS")
        self._update = session.prepare(
            f"UPDATE {table} SET epoch = ?, first_us = ?, end_us = ? WHERE name = ? IF epoch = ? AND end_us = ?"
        )

    def read(self) -> Span | None:
        found = self._session.execute(self._read, [self._name]).one()
        return None if found is None else Span(*found)

    def write(self, span: Span, before: Span | None) -> bool:
        """Write the entry if it is still ``before``. Returns whether it was written."""
        values = [span.epoch, span.first, span.end]
        if before is None:
            result = self._session.execute(self._insert, [self._name, *values])
        else:
            result = self._session.execute(self._update, [*values, self._name, before.epoch, before.end])
        return bool(result.was_applied)


class CassandraCommitter(Committer):
    """Writes a group's output."""

    def __init__(self, context: CommitterContext, name: TableName, concurrency: int) -> None:
        self._context = context
        self._name = name
        self._concurrency = concurrency
        self._cluster: Any = None
        self._session: Any = None
        self._prepared: dict[str, Any] = {}
        self._ledger: Ledger | None = None
        self.entry = entry_name(context, of_group=False)

    def commit(self, output: EpochOutput, newest: int) -> None:
        with raising_errors(self._name.place):
            if self._session is None:
                self._cluster, self._session = self._name.client.connect()
                self._ledger = Ledger(self._session, self._name.keyspace, self.entry)
            rows = staged_rows(self._context, output.committables)
            span = self._span(output.epoch, len(rows), newest)
            if span is not None:
                # Subtasks share the primary key, but may have seen different columns if columns were added in between.
                at = 0
                for committable in output.committables:
                    count = committable["count"]
                    self._write(rows[at : at + count], committable, span.first + at)
                    at += count

    def _span(self, epoch: int, rows: int, newest: int) -> Span | None:
        assert self._ledger is not None
        place = f"{self._name.place}: entry {self.entry!r} of the table {self._name.keyspace}.{CASSANDRA_TABLE}"
        while True:
            found = self._ledger.read()
            if found is not None:
                refuse_put_back(found.epoch, newest, place)
            span = next_span(found, epoch, rows, time.time_ns() // 1000)
            if span is None or span == found or self._ledger.write(span, found):
                return span

    def _write(self, rows: Sequence[StagedRow], committable: Any, first: int) -> None:
        from cassandra.concurrent import execute_concurrent

        statements = Statements(self._name.keyspace, self._name.table, tuple(committable["columns"]), committable["keys"])
        writes = [write_of(row, statements.keys) for row in rows]
        for deletes in {write.deletes for write in writes}:  # before the writes, whose thread must not block
            self._prepare(statements.delete if deletes else statements.insert)
        self._check_types(statements, committable["types"])
        bound = ((self._bound(statements, rows[at], first + at), None) for at in needed(writes))
        execute_concurrent(self._session, bound, concurrency=self._concurrency, raise_on_first_error=True)

    def _check_types(self, statements: Statements, staged: Sequence[str]) -> None:
        """Raise JobFailed if rows were encoded for other column types, because Cassandra would misinterpret the bytes."""
        columns = self._prepare(statements.insert).column_metadata[: len(statements.columns)]
        for column, now, before in zip(columns, type_names([each.type for each in columns]), staged, strict=True):
            if now != before:
                raise JobFailed(
                    f"{self._name.place}: the column {column.name!r} of {self._name} was of type {before} when its rows were "
                    f"computed, and is now of type {now}. Was the table recreated? Create it as it was, or restore an "
                    "earlier savepoint"
                )

    def _bound(self, statements: Statements, row: StagedRow, timestamp: int) -> Any:
        from cassandra.query import UNSET_VALUE, BoundStatement

        stamp = _TIMESTAMP.pack(timestamp)
        if row[0] == b"-":
            bound = BoundStatement(self._prepare(statements.delete))
            bound.values = [stamp, *row[1:]]
        else:
            bound = BoundStatement(self._prepare(statements.insert))
            values = [value if given else UNSET_VALUE for value, given in zip(row[1:], is_set(row), strict=True)]
            bound.values = [*values, stamp]
        bound.is_idempotent = True
        return bound

    def _prepare(self, statement: str) -> Any:
        found = self._prepared.get(statement)
        if found is None:
            found = self._prepared[statement] = self._session.prepare(statement)
        return found

    def close(self) -> None:
        cluster, self._cluster, self._session, self._ledger = self._cluster, None, None, None
        self._prepared = {}
        if cluster is not None:
            cluster.shutdown()

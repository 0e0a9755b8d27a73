"""Tables: columns, statements, and the encoding of elements as staged rows.

The staged row of a deletion is ``-`` and the values of the primary key. The staged row of a write is ``+`` and the values of all
columns, encoded by the driver; if some columns stay unchanged, a digit per column follows the ``+``, 1 for written columns.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from forkpoint.connectors.rows import StagedRow
from forkpoint.connectors.upserts import RowChange, Write, changes_of
from forkpoint.contract.sink import SinkBatch
from forkpoint.errors import ConfigError, TypeNotSupported
from forkpoint_cassandra.client import CassandraClient, raising_errors

_FRESH_SECONDS = 10.0


@dataclass(frozen=True)
class TableName:
    """A table and its cluster."""

    client: CassandraClient
    keyspace: str
    table: str

    @property
    def place(self) -> str:
        return f"Cassandra at {self.client.place}"

    def __str__(self) -> str:
        return f"{self.keyspace}.{self.table}"


@dataclass(frozen=True)
class Statements:
    """The statements that write rows. ``columns``: all columns, of which the first ``keys`` are the primary key."""

    keyspace: str
    table: str
    columns: tuple[str, ...]
    keys: int

    @property
    def insert(self) -> str:
        names = ", ".join(map(quoted, self.columns))
        marks = ", ".join("?" for _ in self.columns)
        return f"INSERT INTO {quoted(self.keyspace)}.{quoted(self.table)} ({names}) VALUES ({marks}) USING TIMESTAMP ?"

    @property
    def delete(self) -> str:
        where = " AND ".join(f"{quoted(name)} = ?" for name in self.columns[: self.keys])
        return f"DELETE FROM {quoted(self.keyspace)}.{quoted(self.table)} USING TIMESTAMP ? WHERE {where}"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True)
class Table:
    """A table's columns with the driver's types. ``version``: the protocol version of encoded values."""

    statements: Statements
    types: tuple[Any, ...]
    version: int
    read_at: float = field(default=0.0, compare=False)

    @property
    def type_names(self) -> list[str]:
        """The CQL types of the columns."""
        return type_names(self.types)

    def encoded(self, change: RowChange) -> StagedRow:
        """Convert a change to a staged row. Raises ConfigError and TypeNotSupported if it does not fit the table."""
        columns, keys = self.statements.columns, self.statements.keys
        fields = change.fields
        if missing := [name for name in columns[:keys] if fields.get(name) is None]:
            raise ConfigError(f"CassandraSink: {dict(fields)!r} lacks {missing[0]!r}, which is part of the table's primary key")
        if change.deleted:
            return [b"-", *(self._value(at, fields[columns[at]]) for at in range(keys))]
        if unknown := fields.keys() - set(columns):
            raise UnknownColumn(sorted(unknown)[0])
        values = [self._value(at, fields.get(name)) for at, name in enumerate(columns)]
        if len(fields) == len(columns):
            return [b"+", *values]
        return [b"+" + b"".join(b"1" if name in fields else b"0" for name in columns), *values]

    def _value(self, at: int, value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            encoded: bytes = self.types[at].serialize(value, self.version)
        except Exception as error:  # the driver's types propagate any error of the value's methods
            raise TypeNotSupported(
                f"CassandraSink: column {self.statements.columns[at]!r} of {self.statements.keyspace}.{self.statements.table} is "
                f"of type {self.types[at].cql_parameterized_type()}, and {value!r} is not ({type(error).__name__}: {error})"
            ) from None
        return encoded


def type_names(types: Sequence[Any]) -> list[str]:
    return [type.cql_parameterized_type() for type in types]


class UnknownColumn(Exception):
    """A field without a column."""


def read_table(cluster: Any, session: Any, name: TableName) -> Table:
    """Look up a table. Raises ConfigError if it does not exist or does not support upserts."""
    keyspace = cluster.metadata.keyspaces.get(name.keyspace)
    table = None if keyspace is None else keyspace.tables.get(name.table)
    if table is None:
        missing = f"keyspace {name.keyspace!r}" if keyspace is None else f"table {str(name)!r}"
        raise ConfigError(f"CassandraSink: {name.place} has no {missing}; create it, or correct its name")
    if any(column.cql_type == "counter" for column in table.columns.values()):
        raise ConfigError(f"CassandraSink: {name} has counters, whose updates are not idempotent")
    key = [column.name for column in table.primary_key]
    columns = (*key, *sorted(table.columns.keys() - set(key)))
    statements = Statements(name.keyspace, name.table, columns, len(key))
    prepared = session.prepare(statements.insert)
    types = tuple(column.type for column in prepared.column_metadata[: len(columns)])
    return Table(statements, types, prepared.protocol_version, time.monotonic())


def look_up(name: TableName) -> Table:
    """The table as it is now."""
    with raising_errors(name.place):
        cluster, session = name.client.connect()
        try:
            return read_table(cluster, session, name)
        finally:
            cluster.shutdown()


_tables: dict[str, tuple[str, Table]] = {}  # with the run that looked the table up
_lock = threading.Lock()


def known_table(name: TableName, run: str = "", *, fresh: bool = False) -> Table:
    """A table, cached per process and run of a job; with ``fresh``, looks it up again if the cached table is old."""
    with _lock:
        place = f"{name.place}/{name}"
        of_run, known = _tables.get(place, ("", None))
        if known is None or of_run != run or (fresh and time.monotonic() - known.read_at > _FRESH_SECONDS):
            known = look_up(name)
            _tables[place] = run, known
        return known


class RowEncoder:
    """Converts elements to staged rows. ``function``: converts an element to a record; by default the element is the record.
    ``run``: the run of the job; the table may have been recreated since an earlier run."""

    def __init__(self, name: TableName, function: Callable[[Any], Any] | None, run: str) -> None:
        self._name = name
        self._function = function
        self._run = run
        self.table = known_table(name, run)

    def __call__(self, batch: SinkBatch[Any]) -> Iterator[StagedRow]:
        for element in batch.values:
            record = element if self._function is None else self._function(element)
            try:
                statements = self.table.statements
                changes = list(changes_of(record, statements.columns[: statements.keys]))
            except TypeError as error:
                raise ConfigError(
                    f"CassandraSink: {error}; write records (named tuples, dataclasses, Rows with names or dicts), or give the "
                    "sink a function that converts an element to a record: row=…"
                ) from None
            for change in changes:
                yield self._encoded(change)

    def _encoded(self, change: RowChange) -> StagedRow:
        try:
            return self.table.encoded(change)
        except UnknownColumn:
            self.table = known_table(self._name, self._run, fresh=True)
        try:
            return self.table.encoded(change)
        except UnknownColumn as error:
            raise ConfigError(
                f"CassandraSink: {self._name} has no column {str(error)!r}; it has {', '.join(self.table.statements.columns)}; "
                "add it, or give the sink a function that leaves it out: row=…"
            ) from None


def write_of(row: StagedRow, keys: int) -> Write:
    """The write of a staged row."""
    kind = row[0] or b""
    return Write(tuple(row[1 : keys + 1]), kind == b"-", kind == b"+", row)


def is_set(row: StagedRow) -> Sequence[bool]:
    """Whether each value of a staged row is written."""
    mask = (row[0] or b"")[1:]
    return [digit == ord("1") for digit in mask] if mask else [True] * (len(row) - 1)

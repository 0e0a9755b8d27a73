"""Writes an epoch's rows in one transaction, which also records the epoch's number."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from forkpoint.checkpoint.manifest import EpochOutput
from forkpoint.connectors.database import epochs, statements
from forkpoint.connectors.database.engine import IDLE_SECONDS, create_engine, is_alive, shown
from forkpoint.connectors.database.errors import raising_errors
from forkpoint.connectors.database.refusals import Refused
from forkpoint.connectors.database.staging import staged_rows
from forkpoint.connectors.database.statements import Row, Target
from forkpoint.connectors.database.target import target_table
from forkpoint.connectors.formats.changes import changed_row
from forkpoint.connectors.ledger import entry_name, refuse_put_back
from forkpoint.contract.sink import Committer, CommitterContext
from forkpoint.errors import JobFailed
from forkpoint.types import RowKind, from_description
from forkpoint.types.kinds.records import RecordType

if TYPE_CHECKING:
    from sqlalchemy import Connection

_LOCK_NOT_AVAILABLE = "55P03"


Write = Callable[["Connection", Callable[[Sequence[Row]], None], Sequence[str], Sequence[Row]], None]


def _plainly(_: Connection, write: Callable[[Sequence[Row]], None], __: Sequence[str], rows: Sequence[Row]) -> None:
    write(rows)


class DatabaseCommitter(Committer):
    """Writes a sink's rows."""

    def __init__(self, context: CommitterContext, url: str, table: str, schema: str | None, key: tuple[str, ...]) -> None:
        self._context = context
        self._sink = entry_name(context, of_group=True)
        self._url = url
        self._location = (table, schema, key)
        self._what = f"writing to table {table!r} of {shown(url)}"
        self._application_name = f"forkpoint {blake2b(self._sink.encode(), digest_size=16).hexdigest()}"
        self._engine = create_engine(url, self._application_name)
        self._connection: Connection | None = None
        self._used = 0.0
        self._described: Any = None

    def commit(self, output: EpochOutput, newest: int) -> None:
        from sqlalchemy.exc import OperationalError

        with raising_errors(self._what):
            try:
                self._commit(output, newest)
            except OperationalError as error:
                if getattr(error.orig, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
                    raise
                # Another attempt, for example of a suspended driver, is idle in its transaction.
                self.close()
                epochs.end_others(self._connected(), self._application_name)
                self._commit(output, newest)

    def commit_accepted(self, output: EpochOutput, newest: int, set_aside: Callable[[pa.Table], None]) -> None:
        refused = Refused(self._what)
        with raising_errors(self._what):
            self._commit(output, newest, refused.write, lambda: set_aside(refused.table()))

    def _commit(
        self, output: EpochOutput, newest: int, write: Write = _plainly, written: Callable[[], None] = lambda: None
    ) -> None:
        """Write an epoch with ``write``, unless it is committed already. Calls ``written`` before the transaction commits."""
        sink, schema = self._sink, self._location[1]
        connection = self._connected()
        with connection.begin():
            committed = epochs.newest(connection, schema, sink)
            refuse_put_back(committed, newest, f"table {epochs.TABLE!r} of {shown(self._url)}, row {sink!r},")
            if output.epoch > committed:
                self._write(connection, output.committables, write)
                epochs.note(connection, schema, sink, output.epoch)
                written()

    def _connected(self) -> Connection:
        idle, self._used = time.monotonic() - self._used, time.monotonic()
        if self._connection is not None and idle > IDLE_SECONDS / 2:
            self.close()  # servers and firewalls close idle connections
        if self._connection is None or not is_alive(self._connection):
            self._connection = self._engine.connect()
            epochs.create(self._connection, self._location[1])
        return self._connection

    def _write(self, connection: Connection, committables: list[Any], write: Write) -> None:
        for committables_of_type in _runs(committables):
            type = from_description(committables_of_type[0]["type"])
            assert isinstance(type, RecordType)
            target = self._target(connection, committables_of_type[0]["type"], type)
            runs = (run for committable in committables_of_type for run in staged_rows(self._context, committable))
            to_rows = _to_rows(connection, target, changed_row(type) or type)
            if target.key:
                upserted, deleted = _effects(runs, target, to_rows, is_change=changed_row(type) is not None)
                if deleted:
                    write(connection, partial(statements.delete, connection, target), target.key, deleted)
                if upserted:
                    write(connection, partial(statements.upsert, connection, target), target.columns, upserted)
            else:
                for run in runs:
                    write(connection, partial(statements.insert, connection, target), target.columns, to_rows(run))

    def _target(self, connection: Connection, described: Any, type: RecordType) -> Target:
        if self._described is None or self._described[0] != described:
            self._described = described, target_table(connection, *self._location, type)
        target: Target = self._described[1]
        return target

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self._described = None
        if connection is not None:
            connection.invalidate()  # closes it without waiting for a server that may be down
            connection.close()


def _runs(committables: list[Any]) -> Iterable[list[Any]]:
    """Group successive committables by the type of their rows, which only another version of the program changes."""
    return (list(run) for _, run in groupby(committables, itemgetter("type")))


def _to_rows(connection: Connection, target: Target, type: RecordType) -> Callable[[Iterable[Any]], list[Row]]:
    converters = statements.converters(connection, target, type)
    if not any(converters):
        return lambda elements: list(map(tuple, elements))
    pairs = [(index, convert) for index, convert in enumerate(converters) if convert is not None]

    def to_rows(elements: Iterable[Any]) -> list[Row]:
        rows = list(map(list, elements))
        for row in rows:
            for index, convert in pairs:
                row[index] = convert(row[index])
        return list(map(tuple, rows))

    return to_rows


def _effects(
    runs: Iterable[list[Any]], target: Target, to_rows: Callable[[Iterable[Any]], list[Row]], *, is_change: bool
) -> tuple[list[Row], list[Row]]:
    """What an epoch does to each key, the last of its changes: rows to be there, and keys to be gone."""
    places = target.key_indices
    last: dict[Row, Row | None] = {}
    for run in runs:
        if is_change:
            for change in run:
                _apply(last, change, places, to_rows)
        else:
            for row in to_rows(run):
                last[_key(row, places, target)] = row
    return [row for row in last.values() if row is not None], [key for key, row in last.items() if row is None]


def _apply(last: dict[Row, Row | None], change: Any, places: list[int], to_rows: Callable[[Iterable[Any]], list[Row]]) -> None:
    """A change of a row. One that changes the key deletes the row with the key before."""
    before = None if change.before is None else to_rows([change.before])[0]
    after = None if change.after is None else to_rows([change.after])[0]
    gone = RowKind(change.kind) in (RowKind.DELETE, RowKind.UPDATE_BEFORE)
    old = None if before is None else _at(before, places)
    new = None if after is None or gone else _at(after, places)
    if old is not None and old != new and None not in old:  # some databases do not log the row before an update
        last[old] = None
    if gone and before is None:
        raise JobFailed("a DELETE without the row before it; let the database log the key of deleted rows (REPLICA IDENTITY)")
    if new is not None:
        last[new] = after


def _at(row: Row, places: list[int]) -> Row:
    return tuple(row[place] for place in places)


def _key(row: Row, places: list[int], target: Target) -> Row:
    key = _at(row, places)
    if None in key:
        raise JobFailed(f"table {target.table.name!r}: a row without a key ({', '.join(target.key)}): {row!r}; filter such rows")
    return key

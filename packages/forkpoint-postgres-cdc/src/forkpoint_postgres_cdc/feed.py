"""Reads a replication slot on a thread of the driver, so that planning never waits for PostgreSQL."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from forkpoint.errors import ForkpointError, InputLost, JobFailed, SystemUnavailable
from forkpoint.types.kinds.records import RecordType
from forkpoint_postgres_cdc.catalog import Table, check_publication, quote, read_oids, read_tables
from forkpoint_postgres_cdc.checks import check_fields, check_server
from forkpoint_postgres_cdc.chunks import (
    Chunk,
    chunks_of,
    exporting,
    literal,
    oldest_running,
    parts_of_keys,
)
from forkpoint_postgres_cdc.connection import Database
from forkpoint_postgres_cdc.errors import forkpoint_error, is_temporary, of_source
from forkpoint_postgres_cdc.position import DONE, Position, lsn_text
from forkpoint_postgres_cdc.shapes import Shape, check_oid
from forkpoint_postgres_cdc.slot import advance, check_slot, find_slot, flushed, inserted, open_slot
from forkpoint_postgres_cdc.transactions import Entry, Transactions, UndecidedChange

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("forkpoint.postgres")

START_S = 30.0  # time limit of the first connection
RETRY_S = 0.5
CLOSE_S = 5.0
POLL_S = 0.02  # between checks for new changes
ADVANCE_S = 1.0  # between confirmations; at least ten times the duration of a confirmation
CHECK_S = 10.0  # between checks of the tables and the publication
PEEK_ROWS = 50_000  # messages of a peek, plus the rest of the last transaction
BUFFER_ROWS = 100_000
BUFFER_BYTES = 16 << 20
FETCH_BYTES = 2 << 20
MAX_CHUNKS = 64


@dataclass(frozen=True)
class ReadSettings:
    """What to read. ``truncate``: whether to report TRUNCATE. ``strict``: the row type comes from the catalog, so it has all
    columns."""

    uid: str | None
    database: Database
    tables: Sequence[str]
    publication: str
    slot: str
    row: RecordType
    snapshot: bool
    split_size: int
    bounded: bool
    truncate: bool
    strict: bool


class Feed:
    """Reads ahead of ``position``, which the enumerator advances. Restarts there after a lost connection."""

    def __init__(self, reading: ReadSettings, position: Position | None, found_input: Callable[[], None]) -> None:
        self.reading = reading
        self._found_input = found_input
        self.lock = threading.Lock()
        self.position = position
        self.chunks: deque[Chunk] = deque()
        self.entries: deque[Entry] = deque()
        self.bytes = 0
        self.read: tuple[int, int] | None = None  # the end of the read-ahead, if beyond the last entry
        self.database_name = ""
        self.names: dict[str, str] = {}  # tables' names as given, by schema.name
        self.tables_read = False  # the epochs with the tables' last ranges have been committed
        self.doing = "connecting"
        self._failure: ForkpointError | None = None
        self._confirm: int | None = None
        self._confirmed = 0
        self._answered = False
        self.problem: str | None = None  # why the server does not answer
        self._connection: psycopg.Connection[Any] | None = None
        self._closed = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="forkpoint-postgres", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise the error that fails the source."""
        if self._failure is not None:
            raise self._failure

    def confirm(self, lsn: int) -> None:
        """Have the server drop transactions that end before ``lsn``, soon."""
        self._confirm = max(lsn, self._confirm or 0)

    def put_back(self, entries: Sequence[Entry]) -> None:
        """Return entries for the next epoch."""
        self.entries.extendleft(reversed(entries))
        self.bytes += sum(len(entry.data) for entry in entries)

    def wake(self) -> None:
        self._wake.set()

    @property
    def full(self) -> bool:
        return len(self.entries) >= BUFFER_ROWS or self.bytes >= BUFFER_BYTES

    def close(self) -> None:
        self._closed.set()
        self._wake.set()
        self._thread.join(CLOSE_S)
        if self._thread.is_alive() and (connection := self._connection) is not None:
            connection.cancel()  # creating a slot waits for other transactions, perhaps forever
            self._thread.join(CLOSE_S)

    # -- the thread

    def _run(self) -> None:
        import psycopg

        began, place = time.monotonic(), "PostgreSQL"
        while not self._closed.is_set():
            try:
                place = self.reading.database.place
                with self.reading.database.connect() as connection:
                    self._connection = connection
                    if not self._closed.is_set():
                        self._session(connection)
            except psycopg.Error as error:
                if self._closed.is_set():
                    return
                problem = forkpoint_error(error, place)
                if not is_temporary(error):
                    self._failure = problem
                    return
                if not self._answered and time.monotonic() > began + START_S:
                    self._failure = SystemUnavailable(f"{problem}. Start the server, or correct the connection string")
                    return
                if self.problem is None:
                    log.warning("%s; waiting for it", of_source(problem, self.reading.uid))
                self.problem = str(problem)
                self._closed.wait(RETRY_S)
            except ForkpointError as error:
                self._failure = error
                return
            except Exception as error:
                log.exception("reading %s failed", place)
                self._failure = JobFailed(f"reading {place} failed: {error!r}")
                return

    def _session(self, connection: psycopg.Connection[Any]) -> None:
        tables = self._begin(connection)
        assert self.position is not None
        if self.position.unread(self.reading.tables):
            self._read_tables(connection, tables)
        if self._closed.is_set():
            return
        self.doing = "following the slot"
        _SlotFollower(self, connection, tables).run()

    def _begin(self, connection: psycopg.Connection[Any]) -> Mapping[str, Table]:
        reading = self.reading
        check_server(connection)
        shapes = self._known_shapes(connection)
        tables = read_tables(connection, reading.tables)
        known = self.position.tables if self.position is not None else {}
        shapes |= {name: _shape(table, reading.row, known) for name, table in tables.items() if name not in shapes}
        for running in (True, False):  # a table that is new to the source may be missing by mistake
            some = {name: table for name, table in tables.items() if (name in known) == running}
            check_publication(connection, reading.publication, some, running=running)
        check_fields(tables, reading.row, shapes)
        confirmed = open_slot(connection, reading.slot, self.position)
        end = flushed(connection)
        with self.lock:
            if self.position is None:
                done = {} if reading.snapshot else dict.fromkeys(reading.tables, DONE)
                self.position = Position(reading.slot, confirmed if reading.snapshot else end, 0, done)
            elif end < self.position.lsn:
                raise InputLost(
                    f"the server's log ends at {lsn_text(end)}, but the job has read it up to "
                    f"{lsn_text(self.position.lsn)}: the server has lost data, or was restored from a backup. Give the source "
                    "a new uid to read the tables afresh"
                )
            kept = {table: parts for table, parts in self.position.tables.items() if table in reading.tables}
            self.position = replace(self.position, slot=reading.slot, tables=kept, shapes=shapes)
            self.chunks.clear()
            self.entries.clear()
            self.bytes, self.read = 0, None
            self.database_name = connection.info.dbname
            self.names = {f"{table.schema}.{table.name}": table.given for table in tables.values()}
        self._answered = True
        if self.problem is not None:
            log.warning("%s answers again", reading.database.place)
            self.problem = None
        return tables

    def _known_shapes(self, connection: psycopg.Connection[Any]) -> dict[str, Shape]:
        """The shapes of the tables read so far. Raises InputLost if a table is gone."""
        found = {} if self.position is None else self.position.shapes
        shapes = {name: shape for name, shape in found.items() if name in self.reading.tables}
        for name, oid in read_oids(connection, shapes).items():
            check_oid(name, shapes[name].oid, oid)
        return shapes

    def _read_tables(self, connection: psycopg.Connection[Any], tables: Mapping[str, Table]) -> None:
        """Offer ranges of the tables until all have been read."""
        self._wait_for_transactions(connection)
        assert self.position is not None
        self.doing = "exporting a snapshot"
        with exporting(connection, self.reading.database) as (exported, session):
            for name in self.position.unread(self.reading.tables):
                table, row = tables[name], self.reading.row
                columns = tuple(column.name for column in table.columns if column.name in row.names)
                self.position.shapes[name].check_columns(name, columns, row, strict=self.reading.strict)
                after = self.position.after(name)
                for chunk in chunks_of(session, table, columns, after, self.reading.split_size, exported):
                    with self.lock:
                        self.chunks.append(chunk)
                    if not self._wait_until(lambda: len(self.chunks) < MAX_CHUNKS, session):
                        return
            self._wait_until(lambda: self.tables_read, session)

    def _wait_for_transactions(self, connection: psycopg.Connection[Any]) -> None:
        """Wait for the end of transactions that began before the slot existed. Such a transaction may precede the slot's changes
        in the log and not be visible yet."""
        _, bound = oldest_running(connection)
        began, told = time.monotonic(), False
        while oldest_running(connection)[0] < bound and not self._closed.wait(POLL_S):
            if not told and time.monotonic() > began + 5:
                log.warning("PostgresSource: waiting for running transactions to end before reading the tables")
                told = True

    def _wait_until(self, holds: Callable[[], bool], session: psycopg.Connection[Any]) -> bool:
        """Wait for a condition. Returns False if the feed is closed. Raises psycopg's errors if the session is lost."""
        while not holds():
            self._wake.wait(1.0)
            self._wake.clear()
            if self._closed.is_set():
                return False
            session.execute("SELECT 1")
        return True

    # -- for _SlotFollower

    def pause(self, seconds: float) -> bool:
        """Wait. Returns False if the feed is closed."""
        self._wake.wait(seconds)
        self._wake.clear()
        return not self._closed.is_set()

    def take_confirm(self) -> int | None:
        lsn = self._confirm
        return lsn if lsn is not None and lsn > self._confirmed else None

    def confirmed(self, lsn: int) -> None:
        self._confirmed = lsn

    def offer(self, entries: Sequence[Entry], read: tuple[int, int]) -> None:
        with self.lock:
            self.entries.extend(entries)
            self.bytes += sum(len(entry.data) for entry in entries)
            self.read = read
        if entries:
            self._found_input()

    @property
    def closed(self) -> bool:
        return self._closed.is_set()


def _shape(table: Table, row: RecordType, known: Collection[str]) -> Shape:
    """The shape of a table that is new to the source, or that an older release has read without noting its columns."""
    columns = () if table.given in known else (column.name for column in table.columns)
    return Shape(table.oid, frozenset(columns).intersection(row.names))


class _SlotFollower:
    """Peeks at the slot repeatedly, starting at the feed's position."""

    def __init__(self, feed: Feed, connection: psycopg.Connection[Any], tables: Mapping[str, Table]) -> None:
        self._feed, self._connection, self._tables = feed, connection, tables
        assert feed.position is not None
        if feed.reading.bounded and feed.position.stop is None:
            with feed.lock:
                feed.position = replace(feed.position, stop=max(inserted(connection), feed.position.lsn))
        self._parts = feed.position.tables
        self._transactions = Transactions(tables, feed.position, truncate=feed.reading.truncate)
        self._limit = PEEK_ROWS
        self._seen = -1
        self._next_advance = self._next_check = self._next_peek = 0.0

    def run(self) -> None:
        feed = self._feed
        while not feed.closed:
            now = time.monotonic()
            if now >= self._next_check:
                self._check_tables()
                self._next_check = now + CHECK_S
            if now >= self._next_advance:
                self._advance()
            end = flushed(self._connection)
            if now >= self._next_peek and end > self._seen and not feed.full and not self._transactions.stopped:
                self._peek(end)
                took = time.monotonic() - now
                self._next_peek = time.monotonic() + took  # peeks take at most half of the server's time
            elif not feed.pause(POLL_S):
                break
        self._advance()

    def _advance(self) -> None:
        lsn = self._feed.take_confirm()
        if lsn is None:
            return
        began = time.monotonic()
        advance(self._connection, self._feed.reading.slot, lsn)
        self._feed.confirmed(lsn)
        self._limit = PEEK_ROWS
        self._next_advance = time.monotonic() + max(ADVANCE_S, 10 * (time.monotonic() - began))

    def _peek(self, end: int) -> None:
        """Read the slot's transactions up to ``end``, or the first of them."""
        feed, transactions, run = self._feed, self._transactions, self._connection.execute
        run(
            "DECLARE changes CURSOR WITH HOLD FOR SELECT data FROM pg_logical_slot_peek_binary_changes("
            f"'{feed.reading.slot}', '{lsn_text(end)}', {self._limit}, 'proto_version', '1', 'publication_names', "
            f"{literal(quote(feed.reading.publication))})"
        )
        try:
            self._check_slot()
            transactions.begin_peek()
            count, size = 0, 200
            while True:
                rows = self._connection.execute(f"FETCH {size} FROM changes", binary=True).fetchall()
                if not rows:
                    break
                count += len(rows)
                messages = [row[0] for row in rows]
                mean = sum(map(len, messages)) // len(messages) + 1
                size = max(1, min(5000, FETCH_BYTES // mean))
                feed.offer(self._resolve(list(transactions.read(messages))), (transactions.lsn, transactions.skip))
                while feed.full:
                    if not feed.pause(1.0):
                        return
        finally:
            if not self._connection.closed and not self._connection.broken:
                run("CLOSE changes")
        if count < self._limit:
            transactions.end_peek(end)
            self._seen = end
        elif not transactions.new:
            self._limit *= 2
        feed.offer([], (transactions.lsn, transactions.skip))

    def _check_tables(self) -> None:
        """Check that the tables exist and are published: the log does not report when that ends."""
        for name, oid in read_oids(self._connection, self._tables).items():
            check_oid(name, self._tables[name].oid, oid)
        check_publication(self._connection, self._feed.reading.publication, self._tables, running=True)

    def _check_slot(self) -> None:
        """Check that the slot still had all changes: those that another run has confirmed are gone."""
        feed = self._feed
        slot = find_slot(self._connection, feed.reading.slot)
        if slot is None:
            raise InputLost(f"slot {feed.reading.slot!r} was dropped. Give the source a new uid to read the tables afresh")
        assert feed.position is not None
        check_slot(self._connection, feed.reading.slot, slot, replace(feed.position, lsn=self._transactions.lsn))

    def _resolve(self, found: list[Entry | UndecidedChange]) -> list[Entry]:
        """Resolve undecided changes: the server determines the ranges of their keys."""
        places: dict[tuple[str, Any], int] = {}
        for name, table in self._tables.items():
            keys = {
                key
                for each in found
                if isinstance(each, UndecidedChange) and each.table == name
                for key in (each.old, each.new)
                if key is not None
            }
            if keys:
                bounds = [part.upto for part in self._parts[name] if part.upto is not None]
                ordered = sorted(keys)
                numbers = parts_of_keys(self._connection, table, bounds, ordered)
                places |= {(name, key): number for key, number in zip(ordered, numbers, strict=True)}
        out: list[Entry] = []
        for each in found:
            if isinstance(each, Entry):
                out.append(each)
            elif (
                left := each.decided(
                    None if each.old is None else places[each.table, each.old],
                    None if each.new is None else places[each.table, each.new],
                )
            ) is not None:
                out.append(left)
        return out

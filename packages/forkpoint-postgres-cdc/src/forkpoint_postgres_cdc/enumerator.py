"""Plans an epoch's input from PostgreSQL: ranges of tables, then changes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from itertools import islice

from forkpoint.contract.source import JSON, SplitEnumerator, SplitRange
from forkpoint.errors import ForkpointError
from forkpoint_postgres_cdc.errors import naming
from forkpoint_postgres_cdc.feed import BUFFER_BYTES, BUFFER_ROWS, Feed, ReadSettings
from forkpoint_postgres_cdc.pgoutput import Relation, decode
from forkpoint_postgres_cdc.position import NOWHERE, Position, lsn_text
from forkpoint_postgres_cdc.transactions import Entry, pack

SPLIT = "changes"
HEARTBEAT_BYTES = 16 << 20  # of the server's log without changes of the tables, before the position is committed


class PostgresEnumerator(SplitEnumerator):
    """Has a single split, because changes are totally ordered. Ranges of changes contain the changes' bytes, because only one
    session can read a slot at a time. Tasks read tables' rows."""

    def __init__(self, reading: ReadSettings, position: Position | None) -> None:
        self._reading = reading
        self._position = position
        self._feed: Feed | None = None
        self._paused = False
        self._wake: Callable[[], None] = lambda: None

    def on_input(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def plan(self, max_rows: int, parallelism_hint: int = 2) -> list[SplitRange]:
        with naming(self._reading.uid):
            return self._plan(max_rows, parallelism_hint)

    def _plan(self, max_rows: int, parallelism_hint: int) -> list[SplitRange]:
        if self._feed is None:
            self._feed = Feed(self._reading, self._position, self._wake)
        feed = self._feed
        feed.check()
        if self._paused:
            return []
        with feed.lock:
            before = feed.position
            if before is None:
                return []
            if before.unread(self._reading.tables):
                ranges = _ranges_of_tables(feed, max_rows)
            else:
                feed.tables_read = True
                ranges = self._changes(feed, max_rows, parallelism_hint)
            self._position = feed.position
        feed.wake()
        return ranges

    def _changes(self, feed: Feed, max_rows: int, pieces: int) -> list[SplitRange]:
        assert feed.position is not None
        start = feed.position.lsn
        entries = self._until_altered(feed, _take(feed, max_rows))
        if entries:
            feed.position = feed.position.at(entries[-1].lsn, entries[-1].skip)
        if not feed.entries and feed.read is not None:
            feed.position = feed.position.at(*feed.read)
        end = feed.position.lsn
        if not entries:
            far = end >= start + HEARTBEAT_BYTES
            return [SplitRange(SPLIT, 0, lsn_text(start), lsn_text(end), 0)] if far else []
        size = -(-len(entries) // max(1, pieces))
        runs = [entries[at : at + size] for at in range(0, len(entries), size)]
        return [
            SplitRange(
                SPLIT,
                piece,
                lsn_text(start),
                lsn_text(run[-1].lsn),
                len(run),
                {"changes": pack(run), "database": feed.database_name, "tables": feed.names},
            )
            for piece, run in enumerate(runs)
        ]

    def _until_altered(self, feed: Feed, entries: list[Entry]) -> list[Entry]:
        """The changes before the first unsuitable change of a table's definition. The next plan raises the error; a corrected
        program resumes there."""
        assert feed.position is not None
        shapes, row, strict = dict(feed.position.shapes), self._reading.row, self._reading.strict
        seen: set[int] = set()
        for place, entry in enumerate(entries):
            if id(entry.relation) in seen:
                continue
            seen.add(id(entry.relation))
            relation = decode(entry.relation)
            assert isinstance(relation, Relation)
            table = feed.names[f"{relation.schema}.{relation.name}"]
            try:
                shapes[table] = shapes[table].followed(table, relation, row, strict=strict)
            except ForkpointError:
                if not place:
                    raise
                feed.put_back(entries[place:])
                entries = entries[:place]
                break
        feed.position = replace(feed.position, shapes=shapes)
        return entries

    @property
    def position(self) -> JSON:
        return NOWHERE if self._position is None else self._position.to_json()

    @property
    def finished(self) -> bool:
        position = self._position
        return (
            position is not None
            and position.stop is not None
            and position.lsn >= position.stop
            and not position.unread(self._reading.tables)
        )

    def pause_splits(self, splits: Collection[str]) -> bool:
        self._paused = SPLIT in splits
        return True

    @property
    def problem(self) -> str | None:
        return None if self._feed is None else self._feed.problem

    def committed(self, position: JSON) -> None:
        if self._feed is not None and (committed := Position.from_json(position)) is not None:
            self._feed.confirm(committed.lsn)

    def close(self) -> None:
        if self._feed is not None:
            self._feed.close()


def _ranges_of_tables(feed: Feed, max_rows: int) -> list[SplitRange]:
    ranges: list[SplitRange] = []
    rows = 0
    assert feed.position is not None
    while feed.chunks and (not ranges or rows + feed.chunks[0].rows <= max_rows):
        chunk = feed.chunks.popleft()
        rows += chunk.rows
        feed.position = feed.position.read(chunk.table.given, chunk.part)
        ranges.append(SplitRange(SPLIT, len(ranges), chunk.lower, chunk.upper, chunk.rows, chunk.to_json(feed.database_name)))
    return ranges


def _take(feed: Feed, max_rows: int) -> list[Entry]:
    """Take whole transactions. Splits the first one only if it is larger than an epoch."""
    size = complete = count = 0
    for count, entry in enumerate(islice(feed.entries, max_rows), 1):
        size += len(entry.data)
        if not entry.skip:
            complete = count
        if size >= BUFFER_BYTES:
            break
    if not complete and (count >= min(max_rows, BUFFER_ROWS) or size >= BUFFER_BYTES):
        complete = count
    taken = [feed.entries.popleft() for _ in range(complete)]
    feed.bytes -= sum(len(entry.data) for entry in taken)
    return taken

"""Turns a slot's messages into unread changes and the positions after them."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from forkpoint.errors import InputLost
from forkpoint_postgres_cdc.catalog import Table
from forkpoint_postgres_cdc.pgoutput import (
    Begin,
    Commit,
    Delete,
    Insert,
    Relation,
    Row,
    Update,
    decode,
    encode,
    relations_of,
)
from forkpoint_postgres_cdc.position import Key, Part, Position


@dataclass(slots=True)
class Entry:
    """A change. ``relation`` and ``begin``: the messages it refers to. ``lsn`` and ``skip``: the position after it."""

    relation: bytes
    begin: bytes
    data: bytes
    lsn: int
    skip: int


@dataclass(frozen=True, slots=True)
class UndecidedChange:
    """A change in a transaction that only some of a table's snapshots contain. ``sees``: whether a range's snapshot does."""

    entry: Entry
    table: str
    old: Key | None
    new: Key | None
    sees: tuple[bool, ...]

    def decided(self, old: int | None, new: int | None) -> Entry | None:
        """The part of the change that is still to be read, given its rows' ranges; None if there is none."""
        before, after = (at is not None and not self.sees[at] for at in (old, new))
        if before == after or old is None or new is None:
            return self.entry if before or after else None
        change = decode(self.entry.data)
        assert isinstance(change, Update)
        assert change.before is not None
        # The row moved from a range that was read earlier to one that was read later, or the other way round.
        rest = Delete(change.relation, change.before) if before else Insert(change.relation, change.completed().after)
        self.entry.data = encode(rest)
        return self.entry


class Transactions:
    """Reads messages in order; a peek starts where the slot was confirmed. ``lsn`` and ``skip``: the position after the messages
    read so far."""

    def __init__(self, tables: Mapping[str, Table], position: Position, *, truncate: bool) -> None:
        self._tables = {(table.schema, table.name): table for table in tables.values()}
        self._parts = position.tables
        self._stop = position.stop
        self._truncate = truncate
        self.lsn, self.skip = position.lsn, position.skip
        self.new = 0
        self.begin_peek()

    def begin_peek(self) -> None:
        """Start a peek, which decodes from the start and defines tables again."""
        self._relations: dict[int, tuple[bytes, Relation, Table | None]] = {}
        self._begin: tuple[bytes, Begin] | None = None
        self._old = True
        self._count = 0
        self._sees: dict[str, tuple[bool, ...]] = {}
        self._last: Entry | None = None
        self.new = 0

    def end_peek(self, end: int) -> None:
        """End a peek: everything before ``end`` has been read."""
        if end > self.lsn:
            self.lsn, self.skip = end, 0

    @property
    def stopped(self) -> bool:
        return self._stop is not None and self.lsn >= self._stop

    def read(self, messages: Sequence[bytes]) -> Iterator[Entry | UndecidedChange]:
        """The unread changes in these messages."""
        for data in messages:
            kind = data[0]
            if kind in b"IUDT":
                self._count += 1
                if not self._old and (self._count > self.skip):
                    self.skip = self._count
                    yield from self._change(data, kind)
            elif kind == 0x42:  # "B"
                begin = decode(data)
                assert isinstance(begin, Begin)
                self._begin, self._count, self._sees, self._last = (data, begin), 0, {}, None
                self._old = begin.lsn < self.lsn or (self._stop is not None and begin.lsn >= self._stop)
                self.new += not self._old
            elif kind == 0x43:  # "C"
                self._commit(data)
            elif kind == 0x52:  # "R"
                relation = decode(data)
                assert isinstance(relation, Relation)
                table = self._tables.get((relation.schema, relation.name))
                self._relations[relation.id] = data, relation, table

    def _commit(self, data: bytes) -> None:
        commit = decode(data)
        assert isinstance(commit, Commit)
        if self._stop is not None and commit.lsn >= self._stop:
            self.end_peek(self._stop)
        elif not self._old:
            self.lsn, self.skip = commit.end, 0
            if self._last is not None:
                self._last.lsn, self._last.skip = commit.end, 0
        self._old = True

    def _change(self, data: bytes, kind: int) -> Iterator[Entry | UndecidedChange]:
        assert self._begin is not None
        if kind == 0x54:  # "T"
            yield from self._truncated(data)
            return
        raw, relation, table = self._relations[relations_of(data)[0]]
        if table is None:
            return
        sees = self._seen(table)
        if all(sees):
            return
        entry = Entry(raw, self._begin[0], data, self.lsn, self.skip)
        self._last = entry
        yield self._undecided(entry, relation, table, sees) if any(sees) else entry

    def _truncated(self, data: bytes) -> Iterator[Entry]:
        assert self._begin is not None
        for id in relations_of(data) if self._truncate else ():
            raw, _, table = self._relations[id]
            if table is not None and not all(self._seen(table)):
                self._last = Entry(raw, self._begin[0], data, self.lsn, self.skip)
                yield self._last
                return

    def _seen(self, table: Table) -> tuple[bool, ...]:
        """By range of a table, whether it was read in a snapshot that contains the current transaction."""
        sees = self._sees.get(table.given)
        if sees is None:
            assert self._begin is not None
            begin = self._begin[1]
            parts: tuple[Part, ...] = self._parts.get(table.given, ())
            sees = self._sees[table.given] = tuple(part.sees(begin.lsn, begin.xid) for part in parts)
        return sees

    def _undecided(self, entry: Entry, relation: Relation, table: Table, sees: tuple[bool, ...]) -> UndecidedChange:
        change = decode(entry.data)
        new = (
            _key(relation, table, change.completed().after if isinstance(change, Update) else change.after)
            if isinstance(change, Insert | Update)
            else None
        )
        before: Row | None = change.before if isinstance(change, Update | Delete) else None
        old = _key(relation, table, before.values) if before is not None else new if isinstance(change, Update) else None
        return UndecidedChange(entry, table.given, old, new, sees)


def _key(relation: Relation, table: Table, values: Sequence[object]) -> Key:
    by_name = {column.name: value for column, value in zip(relation.columns, values, strict=True)}
    key = [by_name.get(column.name) for column in table.key]
    if not all(isinstance(value, bytes) for value in key):
        raise InputLost(
            f"a change of table {table.given!r} lacks its primary key: the key or the replica identity was "
            "changed while the table was read. Give the source a new uid to read it afresh"
        )
    return tuple(value.decode() for value in key if isinstance(value, bytes))


_LENGTH = struct.Struct(">I")


def pack(entries: Sequence[Entry]) -> str:
    """Packs changes, and the messages they refer to, for a task."""
    out: list[bytes] = []
    relations: dict[int, bytes] = {}
    begin = None
    for entry in entries:
        if entry.begin is not begin:
            begin = entry.begin
            out += _LENGTH.pack(len(begin)), begin
        (id,) = _LENGTH.unpack_from(entry.relation, 1)
        if relations.get(id) is not entry.relation:
            relations[id] = entry.relation
            out += _LENGTH.pack(len(entry.relation)), entry.relation
        out += _LENGTH.pack(len(entry.data)), entry.data
    return base64.b64encode(b"".join(out)).decode("ascii")


def unpack(packed: str) -> Iterator[bytes]:
    """The messages packed by ``pack``."""
    data = base64.b64decode(packed)
    at = 0
    while at < len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += 4
        yield data[at : at + length]
        at += length

"""Messages of PostgreSQL's logical replication: plugin ``pgoutput``, protocol version 1. Pure."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final, TypeAlias

_BEGIN = struct.Struct(">qqI")
_COMMIT = struct.Struct(">bqqq")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_U32 = struct.Struct(">I")
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


class Unchanged(Enum):
    """A large value that the server does not send because an update did not change it."""

    VALUE = "unchanged"


UNCHANGED: Final = Unchanged.VALUE

Tuple: TypeAlias = tuple[bytes | Unchanged | None, ...]
"""A row's values as text; None for NULL."""


class Malformed(ValueError):
    """Bytes that are not a message of the protocol."""


@dataclass(frozen=True, slots=True)
class Begin:
    """The begin of a transaction. ``lsn``: the start of its commit record. ``xid``: its 32-bit id."""

    lsn: int
    time_us: int
    xid: int

    @property
    def time(self) -> datetime:
        """The time of the commit."""
        return _EPOCH + timedelta(microseconds=self.time_us)


@dataclass(frozen=True, slots=True)
class Commit:
    """The end of a transaction. ``end``: the end of its commit record."""

    lsn: int
    end: int
    time_us: int


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    is_key: bool
    type: int
    modifier: int


@dataclass(frozen=True, slots=True)
class Relation:
    """The definition of a table for the changes that follow."""

    id: int
    schema: str
    name: str
    identity: str
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a change. ``whole``: whether it has all columns, not only the replica identity."""

    values: Tuple
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Insert:
    relation: int
    after: Tuple


@dataclass(frozen=True, slots=True)
class Update:
    """``before``: None unless the replica identity changed or is FULL."""

    relation: int
    before: Row | None
    after: Tuple

    def completed(self) -> Update:
        """The update with unchanged values filled in from ``before``, if it has them."""
        if self.before is None or not self.before.whole or UNCHANGED not in self.after:
            return self
        pairs = zip(self.before.values, self.after, strict=True)
        return replace(self, after=tuple(old if new is UNCHANGED else new for old, new in pairs))


@dataclass(frozen=True, slots=True)
class Delete:
    relation: int
    before: Row


@dataclass(frozen=True, slots=True)
class Truncate:
    relations: tuple[int, ...]
    options: int


@dataclass(frozen=True, slots=True)
class Other:
    """A message without changes: a type, an origin."""

    kind: str


Change: TypeAlias = Insert | Update | Delete | Truncate
Message: TypeAlias = Begin | Commit | Relation | Change | Other


def decode(data: bytes) -> Message:
    """Decode a message. Raises Malformed."""
    try:
        return _decode(data)
    except (struct.error, IndexError, UnicodeDecodeError, ValueError) as error:
        raise Malformed(f"not a message of pgoutput: {data[:40]!r} ({error})") from error


def _decode(data: bytes) -> Message:
    kind = data[:1]
    if kind == b"I":
        _expect(data[5:6] == b"N", data)
        after, end = _tuple(data, 6)
        _expect(end == len(data), data)
        return Insert(_U32.unpack_from(data, 1)[0], after)
    if kind == b"U":
        return _update(data)
    if kind == b"D":
        _expect(data[5:6] in (b"K", b"O"), data)
        values, end = _tuple(data, 6)
        _expect(end == len(data), data)
        return Delete(_U32.unpack_from(data, 1)[0], Row(values, data[5:6] == b"O"))
    if kind == b"B":
        _expect(len(data) == 1 + _BEGIN.size, data)
        return Begin(*_BEGIN.unpack_from(data, 1))
    if kind == b"C":
        _expect(len(data) == 1 + _COMMIT.size, data)
        return Commit(*_COMMIT.unpack_from(data, 1)[1:])
    if kind == b"R":
        return _relation(data)
    if kind == b"T":
        count, options = struct.unpack_from(">ib", data, 1)
        _expect(len(data) == 6 + 4 * count, data)
        return Truncate(struct.unpack_from(f">{count}I", data, 6), options)
    _expect(kind in (b"Y", b"O", b"M"), data)
    return Other(kind.decode())


def _update(data: bytes) -> Update:
    relation, at, before = _U32.unpack_from(data, 1)[0], 5, None
    if data[5:6] in (b"K", b"O"):
        values, at = _tuple(data, 6)
        before = Row(values, data[5:6] == b"O")
    _expect(data[at : at + 1] == b"N", data)
    after, end = _tuple(data, at + 1)
    _expect(end == len(data), data)
    return Update(relation, before, after)


def _relation(data: bytes) -> Relation:
    schema, at = _string(data, 5)
    name, at = _string(data, at)
    identity, count = chr(data[at]), _I16.unpack_from(data, at + 1)[0]
    at += 3
    columns = []
    for _ in range(count):
        key = data[at] & 1 == 1
        column, at = _string(data, at + 1)
        type, modifier = struct.unpack_from(">Ii", data, at)
        at += 8
        columns.append(Column(column, key, type, modifier))
    _expect(at == len(data), data)
    return Relation(_U32.unpack_from(data, 1)[0], schema or "pg_catalog", name, identity, tuple(columns))


def _string(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(b"\0", at)
    return data[at:end].decode(), end + 1


def _tuple(data: bytes, at: int) -> tuple[Tuple, int]:
    (count,) = _I16.unpack_from(data, at)
    at += 2
    values: list[bytes | Unchanged | None] = []
    for _ in range(count):
        kind = data[at]
        at += 1
        if kind == 0x74:  # "t"
            (length,) = _I32.unpack_from(data, at)
            at += 4
            _expect(0 <= length <= len(data) - at, data)
            values.append(data[at : at + length])
            at += length
        else:
            _expect(kind in (0x6E, 0x75), data)  # "n", "u"
            values.append(None if kind == 0x6E else UNCHANGED)
    return tuple(values), at


def _expect(holds: bool, data: bytes) -> None:
    if not holds:
        raise ValueError(f"unexpected in {len(data)} bytes")


def encode(change: Insert | Update | Delete) -> bytes:
    """Encode a change as a message: the inverse of ``decode``."""
    head = _U32.pack(change.relation)
    if isinstance(change, Insert):
        return b"I" + head + b"N" + _encode_tuple(change.after)
    if isinstance(change, Delete):
        return b"D" + head + _encode_row(change.before)
    before = b"" if change.before is None else _encode_row(change.before)
    return b"U" + head + before + b"N" + _encode_tuple(change.after)


def _encode_row(row: Row) -> bytes:
    return (b"O" if row.whole else b"K") + _encode_tuple(row.values)


def _encode_tuple(values: Tuple) -> bytes:
    parts = [_I16.pack(len(values))]
    for value in values:
        if value is None:
            parts.append(b"n")
        elif isinstance(value, Unchanged):
            parts.append(b"u")
        else:
            parts.append(b"t" + _I32.pack(len(value)) + value)
    return b"".join(parts)


def relations_of(data: bytes) -> tuple[int, ...]:
    """The tables that an Insert, Update, Delete or Truncate changes."""
    if data[:1] == b"T":
        change = decode(data)
        assert isinstance(change, Truncate)
        return change.relations
    return _U32.unpack_from(data, 1)

"""Writes rows to a table, in the fastest transactional way of each database."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from forkpoint.connectors.formats.jsonable import to_jsonable
from forkpoint.errors import JobFailed
from forkpoint.types.kinds.containers import MapType, OptionalType, SequenceType
from forkpoint.types.kinds.records import RecordType

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table

Row = tuple[Any, ...]
_encode = msgspec.json.Encoder(enc_hook=to_jsonable).encode
CHUNK = 5_000  # rows in a statement


@dataclass(frozen=True)
class Target:
    """A table, the columns of the rows, and the key columns (none if rows are only inserted)."""

    table: Table
    columns: tuple[str, ...]
    key: tuple[str, ...] = ()

    @property
    def key_indices(self) -> list[int]:
        return [self.columns.index(name) for name in self.key]


def insert(connection: Connection, target: Target, rows: Sequence[Row]) -> None:
    """Insert rows in order."""
    if connection.dialect.name == "postgresql":
        _copy(connection, _quoted(connection, target.table), target, rows)
    else:
        _execute(connection, target.table.insert(), target.columns, rows)


def upsert(connection: Connection, target: Target, rows: Sequence[Row]) -> None:
    """Insert rows, or update rows whose key exists. Every key must occur only once."""
    if connection.dialect.name == "postgresql":
        _upsert_copy(connection, target, rows)
    else:
        _execute(connection, _upsert_statement(connection, target), target.columns, rows)


def delete(connection: Connection, target: Target, keys: Sequence[Row]) -> None:
    """Delete the rows with these keys, if any."""
    from sqlalchemy import and_, bindparam

    matches = [target.table.c[name] == bindparam(f"k_{name}") for name in target.key]
    _execute(connection, target.table.delete().where(and_(*matches)), [f"k_{name}" for name in target.key], keys)


def _execute(connection: Connection, statement: Any, names: Sequence[str], rows: Sequence[Row]) -> None:
    for start in range(0, len(rows), CHUNK):
        connection.execute(statement, [dict(zip(names, row, strict=True)) for row in rows[start : start + CHUNK]])


def _upsert_statement(connection: Connection, target: Target) -> Any:
    others = [name for name in target.columns if name not in target.key]
    if connection.dialect.name == "sqlite":
        from sqlalchemy.dialects.sqlite import insert as sqlite

        statement = sqlite(target.table)
        if not others:
            return statement.on_conflict_do_nothing(target.key)
        return statement.on_conflict_do_update(target.key, set_={name: statement.excluded[name] for name in others})
    from sqlalchemy.dialects.mysql import insert as mysql

    changing = mysql(target.table)
    return changing.on_duplicate_key_update({name: changing.inserted[name] for name in others or target.key})


# -- PostgreSQL: COPY


def _copy(connection: Connection, into: str, target: Target, rows: Iterable[Row]) -> None:
    names = ", ".join(_quoted(connection, name) for name in target.columns)
    with connection.connection.driver_connection.cursor() as cursor, cursor.copy(f"COPY {into} ({names}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)


def _upsert_copy(connection: Connection, target: Target, rows: Sequence[Row]) -> None:
    """Upsert rows in one statement, from a temporary table of the session."""
    from sqlalchemy import text

    table = _quoted(connection, target.table)
    names = ", ".join(_quoted(connection, name) for name in target.columns)
    key = ", ".join(_quoted(connection, name) for name in target.key)
    others = [_quoted(connection, name) for name in target.columns if name not in target.key]
    updates = f"UPDATE SET {', '.join(f'{name} = EXCLUDED.{name}' for name in others)}" if others else "NOTHING"
    connection.execute(text(f"CREATE TEMPORARY TABLE forkpoint_rows ON COMMIT DROP AS SELECT {names} FROM {table} WITH NO DATA"))
    _copy(connection, "forkpoint_rows", target, rows)
    connection.execute(text(f"INSERT INTO {table} ({names}) SELECT {names} FROM forkpoint_rows ON CONFLICT ({key}) DO {updates}"))
    connection.execute(text("DROP TABLE forkpoint_rows"))


def _quoted(connection: Connection, name: Any) -> str:
    preparer = connection.dialect.identifier_preparer
    return str(preparer.quote(name) if isinstance(name, str) else preparer.format_table(name))


# -- values


def converters(connection: Connection, target: Target, row: RecordType) -> list[Callable[[Any], Any] | None]:
    """For each column, a function from a field's value to the driver's; None if they are the same."""
    from sqlalchemy import ARRAY, JSON, DateTime, Numeric

    postgres, sqlite = (connection.dialect.name == name for name in ("postgresql", "sqlite"))
    found: list[Callable[[Any], Any] | None] = []
    for name, of in zip(target.columns, row.children, strict=True):
        type = target.table.c[name].type
        of = of.of if isinstance(of, OptionalType) else of
        if isinstance(type, JSON):
            as_text: Callable[[Any], str] = str if of.python_class is str else _json  # a str is JSON already
            found.append(partial(_jsonb, as_text) if postgres else partial(_json_object, name, as_text))
        elif isinstance(of, RecordType | SequenceType | MapType) and not isinstance(type, ARRAY):
            found.append(lambda value: None if value is None else _json(value))  # MariaDB's JSON is text, too
        elif sqlite and of.python_class in _TEXT_IN_SQLITE and not (of.python_class is Decimal and isinstance(type, Numeric)):
            found.append(msgspec.to_builtins)
        elif isinstance(type, DateTime) and not (postgres and type.timezone):
            found.append(_naive_utc)
        else:
            found.append(None if of.python_class in _UNCHANGED else plain)
    return found


def _json(value: Any) -> str:
    """The JSON of file sinks."""
    return _encode(to_jsonable(value)).decode()


def _jsonb(as_text: Callable[[Any], str], value: Any) -> Any:
    from psycopg.types.json import Jsonb

    return None if value is None else Jsonb(value, dumps=as_text)


def _json_object(column: str, as_text: Callable[[Any], str], value: Any) -> Any:
    """The value that SQLAlchemy serializes to JSON."""
    try:
        return None if value is None else json.loads(as_text(value))
    except ValueError as error:
        raise JobFailed(f"column {column!r} takes JSON, which {value!r} is not: {error}") from None


def _naive_utc(value: Any) -> Any:
    """A time in UTC, for a column without a time zone."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        from datetime import UTC

        return value.astimezone(UTC).replace(tzinfo=None)
    return value


_TEXT_IN_SQLITE = (Decimal, timedelta, UUID)  # which its driver does not take; text as in JSON
_UNCHANGED = (str, int, float, bytes, bool, datetime, date, time, type(None))


def plain(value: Any) -> Any:
    """A value in a driver's types: nested records become dicts, Enums their values, sets and tuples lists."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, _UNCHANGED):
        return value
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if hasattr(value, "_fields"):
        return {name: plain(each) for name, each in zip(value._fields, value, strict=True)}
    if hasattr(value, "as_dict"):
        return {name: plain(each) for name, each in value.as_dict().items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    return value

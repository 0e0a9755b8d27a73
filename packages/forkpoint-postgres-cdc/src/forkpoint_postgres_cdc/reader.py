"""Makes elements from ranges of tables and from changes, in a task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from forkpoint.connectors.formats.changes import change_type
from forkpoint.contract.source import JSON, SourceReader, SplitRange
from forkpoint.errors import ForkpointError, InputLost, RecordParseError
from forkpoint.types import RowKind
from forkpoint.types.kinds.records import RecordType
from forkpoint_postgres_cdc.chunks import read_chunk
from forkpoint_postgres_cdc.connection import Database
from forkpoint_postgres_cdc.errors import naming, raising_errors
from forkpoint_postgres_cdc.pgoutput import (
    UNCHANGED,
    Begin,
    Delete,
    Insert,
    Relation,
    Truncate,
    Update,
    decode,
)
from forkpoint_postgres_cdc.transactions import unpack
from forkpoint_postgres_cdc.values import Read, reader

if TYPE_CHECKING:
    import psycopg

_RUN = 5000


class PostgresReader(SourceReader[Any]):
    """``strict``: the row type comes from the catalog, so it has all columns."""

    def __init__(self, uid: str | None, database: Database, row: RecordType, *, strict: bool, fails: bool) -> None:
        self._uid = uid
        self._database = database
        self._row = row
        self._strict = strict
        self._fails = fails
        self._reads: Mapping[str, Read] = {field.name: reader(field.type, field.name) for field in row.members}
        self._change = change_type(row).python_class
        self._connection: psycopg.Connection[Any] | None = None

    def read(self, range: SplitRange) -> Iterator[list[Any]]:
        with naming(self._uid):
            yield from self._read(range)

    def _read(self, range: SplitRange) -> Iterator[list[Any]]:
        info = range.info
        if info is None:
            return
        if "changes" in info:
            yield from self._changes(info)
            return
        with raising_errors(self._database.place):
            if self._connection is None:
                self._connection = self._database.connect()
            rows = _Rows(info["table"], info["columns"], self)
            time = datetime.fromisoformat(info["time"])
            for run in read_chunk(self._connection, info):
                yield [
                    self._change(RowKind.INSERT, None, rows.of_text(values), info["database"], info["table"], time)
                    for values in run
                ]

    def _changes(self, info: JSON) -> Iterator[list[Any]]:
        names: Mapping[str, str] = info["tables"]
        relations: dict[int, _Rows] = {}
        time: datetime | None = None
        out: list[Any] = []
        for data in unpack(info["changes"]):
            message = decode(data)
            if isinstance(message, Begin):
                time = message.time
                continue
            if isinstance(message, Relation):
                table = names[f"{message.schema}.{message.name}"]
                columns = [column.name for column in message.columns]
                keys = {column.name for column in message.columns if column.is_key}
                relations[message.id] = _Rows(table, columns, self, keys)
                continue
            if isinstance(message, Truncate):
                table = next(relations[id].table for id in message.relations if id in relations)
                raise InputLost(
                    f"table {table!r} was truncated, which does not report the deleted rows. Give the source "
                    'on_truncate="ignore" to continue, or a new uid to read the table afresh'
                )
            assert isinstance(message, Insert | Update | Delete)
            rows = relations[message.relation]
            if isinstance(message, Insert):
                kind, before, after = RowKind.INSERT, None, rows.whole(message.after)
            elif isinstance(message, Update):
                kind, after = RowKind.UPDATE_AFTER, rows.whole(message.completed().after)
                old = message.before
                before = None if old is None else rows.whole(old.values) if old.whole else rows.key(old.values)
            else:
                kind, after, old = RowKind.DELETE, None, message.before
                before = rows.whole(old.values) if old.whole else rows.key(old.values)
            out.append(self._change(kind, before, after, info["database"], rows.table, time))
            if len(out) == _RUN:
                yield out
                out = []
        if out:
            yield out

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


class _Rows:
    """Makes a table's rows from text."""

    def __init__(self, table: str, columns: Sequence[str], of: PostgresReader, keys: set[str] | None = None) -> None:
        self.table = table
        self._make = of._row._make
        self._fails = of._fails
        self._strict = of._strict
        self._keys = keys or set()
        places = {column: place for place, column in enumerate(columns)}
        self._fields = [(field.name, places.get(field.name), of._reads[field.name], field) for field in of._row.members]

    def of_text(self, values: Sequence[str | None]) -> Any:
        return self._make([self._value(each, values) for each in self._fields])

    def whole(self, values: Sequence[Any]) -> Any:
        return self.of_text([value.decode() if isinstance(value, bytes) else value for value in values])

    def key(self, values: Sequence[Any]) -> Any:
        """A row with only the replica identity."""
        return self.whole(values)

    def _value(self, each: tuple[str, int | None, Read, Any], values: Sequence[Any]) -> Any:
        name, place, read, field = each
        if place is None:
            if field.has_default:
                return field.make_default()
            value = None
        else:
            value = values[place]
        if value is None:
            if not field.type.nullable:
                raise self._bad(name, "it is NULL or unknown, but the field is not optional")
            return None
        if value is UNCHANGED:
            if self._fails or not field.type.nullable:
                raise InputLost(
                    f"table {self.table!r}, column {name!r}: an update did not change a large value, and the "
                    f"server does not send it. ALTER TABLE {self.table} REPLICA IDENTITY FULL, for later updates, and give the "
                    'source on_missing_value="none", to get past this update'
                )
            return None
        try:
            return read(value)
        except (ValueError, ArithmeticError, LookupError) as error:
            shown = value if len(value) <= 80 else value[:80] + "…"
            raise self._bad(name, f"cannot read {shown!r} ({error or type(error).__name__})") from error

    def _bad(self, name: str, problem: str) -> ForkpointError:
        remedy = (
            "If the column's type was changed, start the program again; or give type_info"
            if self._strict
            else "Correct the field's type in type_info, say to str"
        )
        return RecordParseError(f"table {self.table!r}, column {name!r}: {problem}. {remedy}")

"""DatabaseSink writes rows to a table, exactly once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from forkpoint.connectors.database.committer import DatabaseCommitter
from forkpoint.connectors.database.engine import check_url, create_engine, shown
from forkpoint.connectors.database.errors import raising_errors
from forkpoint.connectors.database.staging import RowWriter, record_type
from forkpoint.connectors.database.target import check_size, has_table, target_table, warn_of_collations, warn_of_texts
from forkpoint.connectors.formats.changes import changed_row
from forkpoint.contract.sink import Committer, CommitterContext, CommittingSink, SinkContext, SinkWriter
from forkpoint.contract.source import JSON
from forkpoint.types import TypeInformation, from_description
from forkpoint.types.kinds.records import RecordType
from forkpoint.types.variables import T_contra

if TYPE_CHECKING:
    from sqlalchemy import Connection


class DatabaseSink(CommittingSink[T_contra]):
    """Writes records to a table of PostgreSQL, MySQL, MariaDB or SQLite, exactly once: an epoch is one transaction, which also
    records the epoch's number in the table ``forkpoint_epochs``. Readers see whole epochs.

    ``url`` has SQLAlchemy's form, such as ``postgresql://user:password@host/database``. ``table``, in ``schema`` (default: the
    connection's), must exist, with a column for each field of the records. ``key``: the columns of its primary key or a unique
    index. With a key, rows replace those of the same key, and `Change` records update and delete; without it, rows are inserted.

    Raises ConfigError for a URL that is not supported.
    """

    def __init__(self, url: str, table: str, *, key: Sequence[str] | str | None = None, schema: str | None = None) -> None:
        self._url = check_url(url, "DatabaseSink")
        self._table = table
        self._schema = schema
        self._key = (key,) if isinstance(key, str) else tuple(key or ())
        self._checked: list[JSON] = []

    def create_writer(self, context: SinkContext) -> SinkWriter[T_contra]:
        return RowWriter(context, "DatabaseSink")

    def check_type(self, type: TypeInformation[Any]) -> None:
        record = record_type(type, "DatabaseSink")
        with self._connected() as connection:
            if has_table(connection, self._table, self._schema):
                self._check(connection, record)

    def check(self, committables: list[JSON]) -> None:
        types = [each["type"] for each in committables if each["type"] not in self._checked]
        largest = max((each.get("largest", 0) for each in committables), default=0)
        if not types and not largest:
            return
        with self._connected() as connection:
            for described in types:
                if described not in self._checked:
                    type = from_description(described)
                    assert isinstance(type, RecordType)
                    self._check(connection, type)
            check_size(connection, self._table, largest)

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        what = f"inspecting table {self._table!r} of {shown(self._url)}"
        with raising_errors(what), create_engine(self._url).connect() as connection:
            yield connection

    def _check(self, connection: Connection, type: RecordType) -> None:
        target = target_table(connection, self._table, self._schema, self._key, type)
        warn_of_collations(connection, target)
        warn_of_texts(connection, target, changed_row(type) or type)
        self._checked.append(type.describe())

    def create_committer(self, context: CommitterContext) -> Committer:
        return DatabaseCommitter(context, self._url, self._table, self._schema, self._key)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_checked": []}

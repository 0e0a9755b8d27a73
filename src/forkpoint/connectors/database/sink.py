"""DatabaseSink: rows of a stream to a table, exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from forkpoint.connectors.base import JSON, SinkContext, SinkWriter
from forkpoint.connectors.committing import Committer, CommitterContext, CommittingSink
from forkpoint.connectors.database.committing import DatabaseCommitter
from forkpoint.connectors.database.engine import check_url, create_engine, shown
from forkpoint.connectors.database.errors import raising_errors
from forkpoint.connectors.database.staging import RowWriter
from forkpoint.connectors.database.target import target_table, warn_of_collations
from forkpoint.types import from_description
from forkpoint.types.records import RecordType
from forkpoint.types.variables import T_contra


class DatabaseSink(CommittingSink[T_contra]):
    """Writes records to a table of PostgreSQL, MySQL, MariaDB or SQLite, exactly once: each epoch in one transaction, which also
    notes the epoch's number in the table ``forkpoint_epochs``. Readers see whole epochs.

    ``url``: SQLAlchemy's, such as ``postgresql://user:password@host/database``. ``table``, in ``schema`` (default: the
    connection's): exists, with a column for each field of the records. ``key``: the columns of its primary key or a unique
    index. With it, rows replace those of the same key, and `Change` records update and delete; without it, rows are inserted.

    Raises ConfigError for a URL that is not supported.
    """

    def __init__(
        self, url: str, table: str, *, key: Sequence[str] | str | None = None, schema: str | None = None
    ) -> None:
        self._url = check_url(url, "DatabaseSink")
        self._table = table
        self._schema = schema
        self._key = (key,) if isinstance(key, str) else tuple(key or ())
        self._checked: list[JSON] = []

    def create_writer(self, context: SinkContext) -> SinkWriter[T_contra]:
        return RowWriter(context, "DatabaseSink")

    def check(self, committables: list[JSON]) -> None:
        for described in (each["type"] for each in committables):
            if described in self._checked:
                continue
            type = from_description(described)
            assert isinstance(type, RecordType)
            engine = create_engine(self._url)
            with (
                raising_errors(f"looking at table {self._table!r} of {shown(self._url)}"),
                engine.connect() as connection,
            ):
                target = target_table(connection, self._table, self._schema, self._key, type)
                warn_of_collations(connection, target)
            self._checked.append(described)

    def create_committer(self, context: CommitterContext) -> Committer:
        return DatabaseCommitter(context, self._url, self._table, self._schema, self._key)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_checked": []}

"""Tables of databases: rows are inserted, or with a primary key updated and deleted by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from forkpoint.connectors.database.sink import DatabaseSink
from forkpoint.connectors.database.staging import RowWriter
from forkpoint.connectors.formats.changes import change_type
from forkpoint.contract.sink import SinkBatch, SinkContext, SinkWriter
from forkpoint.relational.changes import Longs, row_type, weights_of, without_weights
from forkpoint.runtime.columnar.objects import columns_of
from forkpoint.table.connectors.batches import Columns, structs
from forkpoint.table.connectors.options import TableOptions
from forkpoint.types import RowKind, TypeInformation
from forkpoint.types.kinds.records import RecordType

_EPOCHS = "an epoch is written in one transaction, once"
_REFUSED = {
    "driver": "the URL says which database it is",
    "sink.buffer-flush.max-rows": _EPOCHS,
    "sink.buffer-flush.interval": "'execution.checkpointing.interval' says how often rows are written",
    "sink.max-retries": "a commit is repeated until the database is available",
    "sink.parallelism": "one task commits an epoch",
}

LOOKUP_OPTIONS = (
    *("lookup.cache", "lookup.max-retries", "lookup.partial-cache.cache-missing-key"),
    *("lookup.partial-cache.expire-after-write", "lookup.partial-cache.expire-after-access", "lookup.partial-cache.max-rows"),
)


def jdbc_sink(options: TableOptions) -> DatabaseSink[Any]:
    options.refuse(_REFUSED)
    options.ignore(*LOOKUP_OPTIONS)
    table = options.table
    schema, _, name = options.required("table-name").rpartition(".")
    return TableSink(jdbc_url(options), name, row_type(table.schema), key=table.primary_key, schema=schema or None)


def jdbc_url(options: TableOptions) -> str:
    """The URL as SQLAlchemy has it, with user and password."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    given = options.required("url").removeprefix("jdbc:")
    if given.startswith("sqlite:") and "//" not in given:
        given = given.replace("sqlite:", "sqlite:///", 1)
    try:
        url = make_url(given)
    except (ArgumentError, ValueError):
        raise options.error(
            "url", "option 'url' is no URL of a database; one looks like jdbc:postgresql://host/database"
        ) from None
    user, password = options.get("username"), options.get("password")
    url = url.set(username=user or url.username, password=password or url.password)
    return str(url.render_as_string(hide_password=False))


class TableSink(DatabaseSink[Any]):
    """Takes rows of ``row``, and changes of such rows with weights."""

    def __init__(self, url: str, table: str, row: RecordType, *, key: tuple[str, ...], schema: str | None) -> None:
        super().__init__(url, table, key=key, schema=schema)
        self._row = row

    def check_type(self, type: TypeInformation[Any]) -> None:
        super().check_type(self._row)

    def create_writer(self, context: SinkContext) -> SinkWriter[Any]:
        return _Writer(context, self._row)


class _Writer(RowWriter):
    """Stages rows, and changes as records of the change type."""

    def __init__(self, context: SinkContext, row: RecordType) -> None:
        super().__init__(context, "connector 'jdbc'")
        self._row = row

    def write(self, batch: SinkBatch[Any]) -> None:
        table = columns_of(batch, batch.type)
        weights, rows = weights_of(table), without_weights(table)
        type = self._row if weights is None else change_type(self._row)
        columns = rows.columns if weights is None else _changes(rows, weights, type)
        super().write(Columns(pa.RecordBatch.from_arrays(columns, schema=type.arrow_schema), type))


def _changes(rows: pa.RecordBatch, weights: Longs, type: RecordType) -> list[pa.Array]:
    """The columns of change records: rows that are added are ``after``, those that are removed ``before``."""
    schema, added = type.arrow_schema, weights > 0
    kinds = np.where(added, RowKind.UPDATE_AFTER.value, RowKind.DELETE.value).astype(np.int64)
    before, after = (structs(rows, schema.field(name).type, which) for name, which in (("before", ~added), ("after", added)))
    found = {"kind": pa.array(kinds), "before": before, "after": after}
    return [found[field.name] if field.name in found else pa.nulls(len(rows), field.type) for field in schema]

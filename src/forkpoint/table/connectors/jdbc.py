"""Tables of databases: rows are inserted, or with a primary key updated and deleted by it."""

from __future__ import annotations

from typing import Any

from forkpoint.connectors.database.sink import DatabaseSink
from forkpoint.table.connectors.options import TableOptions

_EPOCHS = "an epoch is written in one transaction, once"
UNNEEDED = {
    "driver": "the URL says which database it is",
    "sink.buffer-flush.max-rows": _EPOCHS,
    "sink.buffer-flush.interval": "'execution.checkpointing.interval' says how often rows are written",
    "sink.max-retries": "a commit is repeated until the database is available",
    "sink.parallelism": "one task commits an epoch",
    "connection.max-retry-timeout": "a connection is made again until the database is available",
    "scan.auto-commit": "rows are read in one transaction for each query",
}

SCAN_OPTIONS = (
    *("scan.partition.column", "scan.partition.num", "scan.partition.lower-bound", "scan.partition.upper-bound"),
    "scan.fetch-size",
)
LOOKUP_OPTIONS = (
    *("lookup.cache", "lookup.max-retries", "lookup.partial-cache.cache-missing-key"),
    *("lookup.partial-cache.expire-after-write", "lookup.partial-cache.expire-after-access", "lookup.partial-cache.max-rows"),
)


def jdbc_sink(options: TableOptions) -> DatabaseSink[Any]:
    options.unneeded(UNNEEDED)
    options.ignore(*LOOKUP_OPTIONS, *SCAN_OPTIONS)
    table = options.table
    schema, _, name = options.required("table-name").rpartition(".")
    return DatabaseSink(jdbc_url(options), name, key=table.primary_key, schema=schema or None)


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

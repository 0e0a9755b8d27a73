"""Whether server, tables and type are fit for reading changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forkpoint.connectors.postgres.catalog import Table
from forkpoint.errors import ConfigError
from forkpoint.types.records import RecordType

if TYPE_CHECKING:
    import psycopg


def check_server(connection: psycopg.Connection[Any]) -> None:
    """Raise ConfigError unless the server has logical replication."""
    row = connection.execute("SELECT current_setting('wal_level'), pg_is_in_recovery()").fetchone()
    assert row is not None
    level, standby = row
    if connection.info.server_version < 130000:
        raise ConfigError(
            f"PostgresSource: the server has version {connection.info.server_version // 10000}; it needs PostgreSQL 13 or later"
        )
    if standby:
        raise ConfigError("PostgresSource: the server is a standby; connect to the primary")
    if level != "logical":
        raise ConfigError(
            f"PostgresSource: the server's wal_level is {level!r}; set wal_level = logical in postgresql.conf and restart it"
        )


def check_fields(table: Table, row: RecordType) -> None:
    """Raise ConfigError if rows of the table cannot be of the type."""
    columns = {column.name for column in table.columns}
    sent = columns if table.identity == "f" else {column.name for column in table.key}
    for member in row.members:
        name = member.name
        if member.type.nullable or member.has_default:
            continue
        if name not in columns:
            raise ConfigError(
                f"PostgresSource: table {table.given!r} has no column {name!r}; give the field a default, or leave it out"
            )
        if name not in sent:
            raise ConfigError(
                f"PostgresSource: a delete in table {table.given!r} does not have column {name!r}, and the field cannot be None. "
                f"ALTER TABLE {table.given} REPLICA IDENTITY FULL, or declare the field as optional"
            )

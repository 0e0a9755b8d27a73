"""Checks whether server, tables and type allow reading changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from forkpoint.errors import ConfigError
from forkpoint.types.kinds.records import RecordType
from forkpoint_postgres_cdc.catalog import Table
from forkpoint_postgres_cdc.shapes import Shape

if TYPE_CHECKING:
    import psycopg


def check_server(connection: psycopg.Connection[Any]) -> None:
    """Raise ConfigError unless the server supports logical replication."""
    row = connection.execute("SELECT current_setting('wal_level'), pg_is_in_recovery()").fetchone()
    assert row is not None
    level, standby = row
    if connection.info.server_version < 130000:
        raise ConfigError(f"the server has version {connection.info.server_version // 10000}; it needs PostgreSQL 13 or later")
    if standby:
        raise ConfigError("the server is a standby; connect to the primary")
    if level != "logical":
        raise ConfigError(f"the server's wal_level is {level!r}; set wal_level = logical in postgresql.conf and restart it")


def check_fields(tables: Mapping[str, Table], row: RecordType, shapes: Mapping[str, Shape]) -> None:
    """Raise ConfigError if the tables' rows do not fit the type. Ignores a column of a table's shape that is gone, because
    earlier changes may need it. The first change without the column raises."""
    everywhere = {column.name for table in tables.values() for column in table.columns}
    for table in tables.values():
        columns = {column.name for column in table.columns}
        sent = columns if table.identity == "f" else {column.name for column in table.key}
        known = shapes[table.given].columns
        for member in row.members:
            name, nullable = member.name, member.type.nullable
            if member.has_default or (name in known and name not in columns):
                continue
            if name not in columns and not (nullable and name in everywhere):
                raise ConfigError(
                    f"table {table.given!r} has no column {name!r}; correct the field's name in type_info, give it a default, or "
                    "remove it"
                )
            if name not in sent and not nullable:
                raise ConfigError(
                    f"a delete in table {table.given!r} does not have column {name!r}, and the field cannot be None. "
                    f"ALTER TABLE {table.given} REPLICA IDENTITY FULL, or declare the field as optional"
                )

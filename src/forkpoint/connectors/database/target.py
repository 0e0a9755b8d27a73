"""Checks whether a table can take a stream's rows."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from forkpoint.connectors.database.engine import max_packet, too_large
from forkpoint.connectors.database.statements import Target
from forkpoint.connectors.database.type_compatibility import column_family, family, refusing
from forkpoint.connectors.formats.changes import changed_row
from forkpoint.errors import ConfigError
from forkpoint.types.kinds.records import RecordType

if TYPE_CHECKING:
    from sqlalchemy import Connection


log = logging.getLogger("forkpoint")


def target_table(connection: Connection, name: str, schema: str | None, key: tuple[str, ...], type: RecordType) -> Target:
    """The table with the columns of ``type``. Raises ConfigError if it cannot take such rows."""
    import sqlalchemy
    from sqlalchemy.exc import NoSuchTableError

    shown = name if schema is None else f"{schema}.{name}"
    row = changed_row(type)
    if row is not None and not key:
        raise ConfigError(f"table {shown!r}: changes of rows need a key that identifies the rows; give key=(…)")
    columns = (row or type).names
    if not has_table(connection, name, schema) and has_table(connection, name.lower(), schema):  # as _column
        name = name.lower()
    try:
        table = sqlalchemy.Table(name, sqlalchemy.MetaData(), schema=schema, autoload_with=connection)
    except NoSuchTableError:
        before, dot, after = name.rpartition(".")
        hint = f". Or is it {after!r} in a schema? Then give table={after!r}, schema={before!r}" if dot and not schema else ""
        raise ConfigError(f"there is no table {shown!r}; create it, with the columns {', '.join(columns)}{hint}") from None
    columns, key = (tuple(_column(table, name) for name in names) for names in (columns, key))
    _check_columns(table, shown, columns, key)
    _check_types(connection, table, shown, row or type, columns)
    if key:
        _check_key(connection, table, shown, key)
    _check_transactional(connection, table, shown)
    return Target(table, columns, key)


def has_table(connection: Connection, name: str, schema: str | None) -> bool:
    from sqlalchemy import inspect

    return bool(inspect(connection).has_table(name, schema))


def _column(table: Any, name: str) -> str:
    """The name of a table's column. PostgreSQL has the names of CREATE TABLE in lower case unless they are quoted."""
    alike = [] if name in table.c else [known for known in table.c.keys() if known.lower() == name.lower()]  # noqa: SIM118
    return alike[0] if len(alike) == 1 else name


def _check_types(connection: Connection, table: Any, shown: str, row: RecordType, columns: tuple[str, ...]) -> None:
    refused = refusing(connection)
    for field, name in zip(row.members, columns, strict=True):
        column = table.c[name]
        if column_family(column.type) in refused.get(family(field.type), ()):
            raise ConfigError(
                f"table {shown!r}: column {field.name!r} is {column.type!r}, which takes no value of the field's type "
                f"{field.type!r}; change the column, or map the elements"
            )


def warn_of_texts(connection: Connection, target: Target, row: RecordType) -> None:
    """Warn of texts for columns of numbers: only the commit of an epoch shows whether they are numbers."""
    if connection.dialect.name == "sqlite":  # it takes any text
        return
    for field, name in zip(row.members, target.columns, strict=True):
        column = target.table.c[name]
        if family(field.type) == "text" and column_family(column.type) in ("integer", "number"):
            log.warning(
                "table %r: column %r is %r, and the field is a str: a text that is not a number fails the job after its epoch "
                "is committed. Declare the field as a number",
                target.table.fullname,
                field.name,
                column.type,
            )


def check_size(connection: Connection, table: str, largest: int) -> None:
    """Raise ConfigError if a row of this size is beyond the server's limit."""
    if largest and connection.dialect.name in ("mysql", "mariadb"):
        limit = max_packet(connection)
        if largest > limit:
            raise ConfigError(too_large(f"table {table!r}: a row has {largest} bytes", limit))


def _check_columns(table: Any, shown: str, columns: tuple[str, ...], key: tuple[str, ...]) -> None:
    if unknown := [name for name in columns if name not in table.c]:
        raise ConfigError(
            f"table {shown!r} has no column {unknown[0]!r}, which the stream's rows have; its columns are "
            f"{', '.join(table.c.keys())}. Add it, or map the elements to rows of these names"
        )
    if missing := [name for name in key if name not in columns]:
        raise ConfigError(
            f"key {missing[0]!r} is no field of the rows for table {shown!r}: {', '.join(columns)}; correct key=, or add the "
            "field"
        )
    needed = [
        column.name
        for column in table.c
        if column.name not in columns
        and not (column.nullable or column.server_default or column.identity or column.computed)
        and column is not table.autoincrement_column
    ]
    if needed:
        raise ConfigError(
            f"column {needed[0]!r} of table {shown!r} needs a value, which the stream's rows do not have; give the column a "
            "default, let it be null, or add the field"
        )


def _check_key(connection: Connection, table: Any, shown: str, key: tuple[str, ...]) -> None:
    from sqlalchemy import inspect

    inspector = inspect(connection)
    unique = [inspector.get_pk_constraint(table.name, table.schema)["constrained_columns"]]
    unique += [each["column_names"] for each in inspector.get_unique_constraints(table.name, table.schema)]
    unique += [each["column_names"] for each in inspector.get_indexes(table.name, table.schema) if each["unique"]]
    if not any(set(columns) == set(key) for columns in unique):
        raise ConfigError(
            f"table {shown!r} has no primary key or unique index of exactly {', '.join(key)}; create one, or correct key"
        )


def warn_of_collations(connection: Connection, target: Target) -> None:
    """Warn of key columns whose collation treats different keys as equal: keys that differ only in case or trailing spaces."""
    from sqlalchemy import text

    if connection.dialect.name not in ("mysql", "mariadb"):
        return
    query = (
        "SELECT column_name, collation_name FROM information_schema.columns WHERE table_name = :t "
        "AND table_schema = COALESCE(:s, DATABASE()) AND collation_name IS NOT NULL"
    )
    table = target.table
    found = dict(map(tuple, connection.execute(text(query), {"t": table.name, "s": table.schema})))
    for name in target.key:
        if name in found and not found[name].endswith(("nopad_bin", "0900_bin")):
            log.warning(
                "table %r: key column %r has the collation %s, in which different keys may be equal, such as 'a' and 'A' or "
                "'a '; their rows replace each other. A binary collation without padding distinguishes them",
                table.fullname,
                name,
                found[name],
            )


def _check_transactional(connection: Connection, table: Any, shown: str) -> None:
    from sqlalchemy import text

    if connection.dialect.name not in ("mysql", "mariadb"):
        return
    query = "SELECT engine FROM information_schema.tables WHERE table_name = :t AND table_schema = COALESCE(:s, DATABASE())"
    engine = connection.execute(text(query), {"t": table.name, "s": table.schema}).scalar()
    if engine is not None and engine.lower() != "innodb":
        raise ConfigError(
            f"table {shown!r} has the storage engine {engine}, without transactions; run ALTER TABLE … ENGINE=InnoDB"
        )

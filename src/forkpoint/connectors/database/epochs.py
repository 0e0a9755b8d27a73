"""Records each sink's newest epoch in a database, in forkpoint's own table, in the transaction that writes the epoch."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table

TABLE = "forkpoint_epochs"


@cache
def _table(schema: str | None) -> Table:
    from sqlalchemy import BigInteger, Column, MetaData, String, Table

    columns = Column("sink", String(400), primary_key=True), Column("epoch", BigInteger, nullable=False)
    return Table(TABLE, MetaData(), *columns, schema=schema)


def create(connection: Connection, schema: str | None) -> None:
    """Create the table if it is missing, in a separate transaction."""
    from sqlalchemy import inspect
    from sqlalchemy.exc import IntegrityError, ProgrammingError
    from sqlalchemy.schema import CreateTable

    with connection.begin():
        if inspect(connection).has_table(TABLE, schema):
            return
    try:
        with connection.begin():
            connection.execute(CreateTable(_table(schema), if_not_exists=True))
    except (IntegrityError, ProgrammingError):  # another task creates it; PostgreSQL reports a conflict in its catalogs
        with connection.begin():
            if not inspect(connection).has_table(TABLE, schema):
                raise


def newest(connection: Connection, schema: str | None, sink: str) -> int:
    """The newest epoch of a sink, or 0. Other callers wait until this transaction ends."""
    from sqlalchemy import select

    table = _table(schema)
    # Insert first: it locks the row, and in SQLite the database, which a SELECT would not.
    connection.execute(_insert_unless_present(connection, table), {"sink": sink, "epoch": 0})
    return int(connection.execute(select(table.c.epoch).where(table.c.sink == sink).with_for_update()).scalar_one())


def note(connection: Connection, schema: str | None, sink: str, epoch: int) -> None:
    table = _table(schema)
    connection.execute(table.update().where(table.c.sink == sink).values(epoch=epoch))


def end_others(connection: Connection, name: str) -> None:
    """End PostgreSQL's other connections of this name, which rolls their transactions back."""
    from sqlalchemy import text

    query = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = :name AND usename = current_user AND pid <> pg_backend_pid()"
    )
    with connection.begin():
        connection.execute(text(query), {"name": name})


def _insert_unless_present(connection: Connection, table: Table) -> object:
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert as postgresql

        return postgresql(table).on_conflict_do_nothing()
    if connection.dialect.name == "sqlite":
        from sqlalchemy.dialects.sqlite import insert as sqlite

        return sqlite(table).on_conflict_do_nothing()
    from sqlalchemy.dialects.mysql import insert as mysql

    changing = mysql(table)
    return changing.on_duplicate_key_update(sink=changing.inserted.sink)

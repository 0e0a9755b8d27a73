"""Checks that a table is still the one that has been read and has the columns of the row type. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from forkpoint.errors import ConfigError, InputLost
from forkpoint.types.kinds.records import RecordType
from forkpoint_postgres_cdc.pgoutput import Relation


@dataclass(frozen=True)
class Shape:
    """A table's definition when it was read. ``oid``: its identity, whatever its name. ``columns``: the columns that fields have
    been read from. The column of any other field has not existed so far."""

    oid: int
    columns: frozenset[str] = frozenset()

    def followed(self, table: str, relation: Relation, row: RecordType, *, strict: bool) -> Shape:
        """The shape after a new definition of the table. ``strict``: the type comes from the catalog, so it has all columns.
        Raises InputLost for another table, ConfigError for columns that do not match the type."""
        check_oid(table, self.oid, relation.id)
        columns = {column.name for column in relation.columns}
        new = ", ".join(column.name for column in relation.columns if column.name not in row.names)
        if strict and new:
            raise ConfigError(
                f"table {table!r} has columns that it did not have when the program was started: {new}. Start it again to "
                "read them, or give type_info to leave them out"
            )
        self.check_columns(table, columns, row, strict=strict)
        return replace(self, columns=self.columns | columns.intersection(row.names))

    def check_columns(self, table: str, columns: Collection[str], row: RecordType, *, strict: bool) -> None:
        """Raise ConfigError if a column that a field was read from is gone: a renamed column is not NULL."""
        gone = [name for name in row.names if name in self.columns and name not in columns]
        absent = gone or [
            member.name
            for member in row.members
            if member.name not in columns and not member.has_default and not member.type.nullable
        ]
        if not absent:
            return
        named = ", ".join(map(repr, absent))
        if not gone:
            raise ConfigError(
                f"table {table!r} had no column {named} when it was changed; give the field a default, or declare it as optional"
            )
        remedy = (
            "Start the program again to continue with the existing columns, or give the source a new uid to read the table afresh"
            if strict
            else "Rename the field in type_info like the column, or remove it, and start the program again, which resumes here; "
            "or give the source a new uid to read the table afresh"
        )
        raise ConfigError(f"table {table!r} has no column {named} any more: it was renamed or dropped. {remedy}")


def check_oid(table: str, known: int, oid: int | None) -> None:
    """Raise InputLost unless the table is the one that has been read. ``oid``: None if no table has its name."""
    if oid is None:
        raise InputLost(
            f"table {table!r} does not exist any more: it was dropped or renamed. Name existing tables, or give the "
            "source a new uid to read them afresh"
        )
    if oid != known:
        raise InputLost(
            f"table {table!r} is not the one that has been read: it was dropped and created again, or another table has its name "
            "now. Its rows are different, and changes may be missing. Give the source a new uid to read it afresh; the "
            "publication has to contain it"
        )

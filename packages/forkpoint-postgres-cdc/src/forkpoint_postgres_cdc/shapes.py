"""Whether a table is still the one that has been read, with the columns that the rows' type needs. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from forkpoint.errors import ConfigError, InputLost
from forkpoint.types.kinds.records import RecordType
from forkpoint_postgres_cdc.pgoutput import Relation


@dataclass(frozen=True)
class Shape:
    """What a table was when it was read. ``oid``: its identity, whatever its name. ``columns``: those that fields have been read
    from; a field's column that is not among them has not existed so far."""

    oid: int
    columns: frozenset[str] = frozenset()

    def followed(self, table: str, relation: Relation, row: RecordType, *, strict: bool) -> Shape:
        """The shape after a description of the table that changes refer to. ``strict``: the type was made from the catalog, so it
        has all columns. Raises InputLost for another table, ConfigError for other columns than the type's."""
        check_oid(table, self.oid, relation.id)
        columns = {column.name for column in relation.columns}
        new = ", ".join(column.name for column in relation.columns if column.name not in row.names)
        if strict and new:
            raise ConfigError(
                f"table {table!r} has columns that it did not have when the program was started: {new}. Start it again, to "
                "read them, or give type_info, to leave them out"
            )
        self.check_columns(table, columns, row, strict=strict)
        return replace(self, columns=self.columns | columns.intersection(row.names))

    def check_columns(self, table: str, columns: Collection[str], row: RecordType, *, strict: bool) -> None:
        """Raise ConfigError if a column is gone that a field was read from: that it was renamed does not make it NULL."""
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
            "Start the program again, to go on with the columns that there are, or give the source a new uid, to read the table "
            "afresh"
            if strict
            else "Rename the field in type_info as the column was, or leave it out, and start the program again, which goes on "
            "here; or give the source a new uid, to read the table afresh"
        )
        raise ConfigError(f"table {table!r} has no column {named} any more, as it was renamed or dropped. {remedy}")


def check_oid(table: str, known: int, oid: int | None) -> None:
    """Raise InputLost unless a table is the one that has been read. ``oid``: None if there is none by its name."""
    if oid is None:
        raise InputLost(
            f"table {table!r} does not exist any more: it was dropped or renamed. Name the tables that there are, or give the "
            "source a new uid, to read them afresh"
        )
    if oid != known:
        raise InputLost(
            f"table {table!r} is not the one that has been read: it was dropped and created again, or another one has its name "
            "now. Its rows are others, and changes may be missing. Give the source a new uid, to read it afresh; the publication "
            "has to have it"
        )

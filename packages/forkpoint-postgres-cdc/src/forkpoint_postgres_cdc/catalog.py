"""Reads tables and publications from the database's catalog."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forkpoint.errors import ConfigError, InputLost
from forkpoint.types import Field, TypeInformation, Types
from forkpoint.types.kinds.containers import optional
from forkpoint.types.kinds.records import RecordType, classless

if TYPE_CHECKING:
    import psycopg

_TYPES: dict[int, TypeInformation[Any]] = {
    16: Types.BOOLEAN(),
    17: Types.BYTES(),
    20: Types.LONG(),
    21: Types.LONG(),
    23: Types.LONG(),
    26: Types.LONG(),
    700: Types.DOUBLE(),
    701: Types.DOUBLE(),
    1700: Types.BIG_DEC(),
    1082: Types.SQL_DATE(),
    1083: Types.SQL_TIME(),
    1114: Types.SQL_TIMESTAMP(),
    1184: Types.INSTANT(),
}

_COLUMNS = """
WITH RECURSIVE base (id, kind, of, element, domain) AS (
    SELECT oid, oid, typbasetype, typelem, typtype FROM pg_type
    UNION ALL
    SELECT base.id, t.oid, t.typbasetype, t.typelem, t.typtype FROM base JOIN pg_type t ON t.oid = base.of
    WHERE base.domain = 'd'
)
SELECT a.attname, base.kind::int8, CASE WHEN t.typcategory = 'A' THEN base.element::int8 ELSE 0 END,
       format_type(a.atttypid, NULL),
       CASE WHEN a.attcollation <> declared.typcollation
            THEN (SELECT format(' COLLATE %%I.%%I', n.nspname, c.collname) FROM pg_collation c
                  JOIN pg_namespace n ON n.oid = c.collnamespace WHERE c.oid = a.attcollation)
            ELSE '' END
FROM pg_attribute a
JOIN pg_type declared ON declared.oid = a.atttypid
JOIN base ON base.id = a.atttypid AND base.domain <> 'd'
JOIN pg_type t ON t.oid = base.kind
WHERE a.attrelid = %s::oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
ORDER BY a.attnum
"""

_TABLE = """
SELECT c.oid::int8, n.nspname, c.relname, c.relkind::text, c.relreplident::text, c.relpersistence::text,
       greatest(c.reltuples, 0)::int8,
       ARRAY(SELECT a.attname::text FROM pg_index i
             CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, place)
             JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
             WHERE i.indrelid = c.oid AND i.indisprimary ORDER BY k.place),
       has_table_privilege(c.oid, 'SELECT')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)
"""


@dataclass(frozen=True)
class TableColumn:
    """``kind``: the oid of its type, or of a domain's base type. ``element``: the oid of an array's element type. ``comparable``:
    the cast and collation that make text compare like this column."""

    name: str
    kind: int
    element: int
    comparable: str


@dataclass(frozen=True)
class Table:
    """A table. ``given``: its name as given to the source. ``oid``: its identity, which survives a rename. ``key``: the columns
    for reading it in ranges."""

    given: str
    oid: int
    schema: str
    name: str
    kind: str
    identity: str
    rows: int
    key: tuple[TableColumn, ...]
    columns: tuple[TableColumn, ...]

    @property
    def sql(self) -> str:
        """The table in a FROM clause. Excludes tables that inherit from it, because they are published separately."""
        quoted = f"{quote(self.schema)}.{quote(self.name)}"
        return quoted if self.kind == "p" else f"ONLY {quoted}"

    @property
    def fields(self) -> dict[str, TypeInformation[Any]]:
        """The columns' types. All but the key are optional, because a delete may contain only the key."""
        keys = {column.name for column in self.key} if self.identity in "df" else set()
        types = {column.name: _type(column) for column in self.columns}
        return {name: type if name in keys else optional(type) for name, type in types.items()}


def quote(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _type(column: TableColumn) -> TypeInformation[Any]:
    if column.element:
        return Types.LIST(_TYPES.get(column.element, Types.STRING()))
    return _TYPES.get(column.kind, Types.STRING())


def read_tables(connection: psycopg.Connection[Any], names: Sequence[str]) -> dict[str, Table]:
    """The tables with these names. Raises ConfigError if a table cannot be read."""
    return {name: _read(connection, name) for name in names}


def read_oids(connection: psycopg.Connection[Any], names: Collection[str]) -> dict[str, int | None]:
    """The current oids of the names; None if there is no such table."""
    query = "SELECT name, to_regclass(name)::oid::int8 FROM unnest(%s::text[]) AS name"
    return dict(connection.execute(query, [list(names)]).fetchall())


def _read(connection: psycopg.Connection[Any], given: str) -> Table:
    row = connection.execute(_TABLE, [given]).fetchone()
    if row is None:
        raise ConfigError(f"there is no table {given!r}; create it, or correct its name: schema.table, quoted as in SQL")
    oid, schema, name, kind, identity, persistence, rows, key, readable = row
    if kind not in "rp" or persistence != "p":
        raise ConfigError(f"{given!r} is not a table that logs its changes (it is a view, UNLOGGED or TEMPORARY); name tables")
    if not readable:
        raise ConfigError(f"this user may not read {given!r}: GRANT SELECT ON {given} TO its role")
    columns = tuple(
        TableColumn(column, type, element, f"::{declared}{collation}")
        for column, type, element, declared, collation in connection.execute(_COLUMNS, [oid])
    )
    by_name = {column.name: column for column in columns}
    # A change contains the row's replica identity. Only if that includes the key, a change can be assigned to a range of keys.
    keyed = identity in ("d", "f") and all(column in by_name for column in key)
    return Table(given, oid, schema, name, kind, identity, rows, tuple(by_name[k] for k in key) if keyed else (), columns)


def row_type(tables: Mapping[str, Table]) -> RecordType:
    """A namedtuple of all columns of the tables. Raises ConfigError if they do not fit together."""
    fields: dict[str, TypeInformation[Any]] = {}
    for table in tables.values():
        for name, type in table.fields.items():
            known = fields.setdefault(name, type)
            if optional(known) != optional(type):
                raise ConfigError(
                    f"column {name!r} of table {table.given!r} is {type!r}, but {known!r} in another table; give "
                    "type_info, or use a separate source for each table"
                )
    everywhere = {name for name in fields if all(name in table.fields for table in tables.values())}
    kept = {
        name: type if name in everywhere and all(t.fields[name] == type for t in tables.values()) else optional(type)
        for name, type in fields.items()
    }
    name = next(iter(tables.values())).name if len(tables) == 1 else "Row"
    return classless("namedtuple", name if name.isidentifier() else "Row", tuple(Field(n, t) for n, t in kept.items()))


_PUBLICATION = """
SELECT pubinsert AND pubupdate AND pubdelete, pubviaroot FROM pg_publication WHERE pubname = %s
"""


def check_publication(
    connection: psycopg.Connection[Any], publication: str, tables: Mapping[str, Table], *, running: bool
) -> None:
    """Raise ConfigError unless the publication has all changes of the tables. If the job has already read them (``running``),
    raise InputLost."""
    if not tables:
        return
    names = ", ".join(table.given for table in tables.values())
    problem = None
    found = connection.execute(_PUBLICATION, [publication]).fetchone()
    if found is None:
        problem = (
            f"there is no publication {publication!r}",
            f"CREATE PUBLICATION {quote(publication)} FOR TABLE {names}",
        )
    elif not found[0]:
        problem = (
            f"publication {publication!r} lacks some kinds of changes",
            f"ALTER PUBLICATION {quote(publication)} SET (publish = 'insert, update, delete, truncate')",
        )
    else:
        problem = _publication_problem(connection, publication, tables, via_root=found[1])
    if problem is None:
        return
    what, remedy = problem
    if running:
        raise InputLost(
            f"{what} any more, so changes may be missing. Repair it ({remedy}) and give the source a new uid to "
            "read the tables afresh"
        )
    raise ConfigError(f"{what}: {remedy}")


def _publication_problem(
    connection: psycopg.Connection[Any], publication: str, tables: Mapping[str, Table], *, via_root: bool
) -> tuple[str, str] | None:
    filters = connection.info.server_version >= 150000
    extra = "rowfilter IS NOT NULL" if filters else "false"
    published = {
        (schema, name): filtered
        for schema, name, filtered in connection.execute(
            f"SELECT schemaname, tablename, {extra} FROM pg_publication_tables WHERE pubname = %s",
            [publication],
        )
    }
    for table in tables.values():
        if table.kind == "p" and not via_root:
            return (
                f"table {table.given!r} is partitioned, and publication {publication!r} has its partitions",
                f"ALTER PUBLICATION {quote(publication)} SET (publish_via_partition_root = true)",
            )
        if (table.schema, table.name) not in published:
            return (
                f"publication {publication!r} does not have table {table.given!r}",
                f"ALTER PUBLICATION {quote(publication)} ADD TABLE {table.given}",
            )
        if published[table.schema, table.name]:
            return (
                f"publication {publication!r} filters the rows of table {table.given!r}",
                f"ALTER PUBLICATION {quote(publication)} SET TABLE {table.given}",
            )
    return None

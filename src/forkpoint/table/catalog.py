"""The tables and views of one environment, in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from forkpoint.errors import ConfigError
from forkpoint.graph.transformations import Edge
from forkpoint.relational.functions.user import Functions
from forkpoint.relational.plan import Plan, Scan, Select
from forkpoint.relational.types import Field, Schema
from forkpoint.savepoint.restore.restore_plan import OPTIONS
from forkpoint.sql.catalog_statements import IN_MEMORY, STORED, CreateSpace, DropSpace, Use
from forkpoint.sql.errors import did_you_mean, public_value
from forkpoint.sql.statements import CreateTable, CreateView
from forkpoint.table.connectors.registry import makes
from forkpoint.table.function_catalog import FunctionCatalog
from forkpoint.table.state_tables import STATE, StateTables
from forkpoint.table.stored_catalogs import NEW, StoredCatalogs

if TYPE_CHECKING:
    from forkpoint.sql.binding.reading import Reading

Space = tuple[str, str]
"""A catalogue and a database of it."""
_DEFAULT: Space = ("default_catalog", "default_database")


@dataclass(frozen=True)
class StreamTable:
    """A stream of the program as a table. ``reading``: its columns in queries, if some are computed, or are event time.
    ``makes``: its changes, as those of a table's source."""

    schema: Schema
    edges: tuple[Edge, ...]
    reading: Reading | None = None
    makes: str = "added"
    primary_key: tuple[str, ...] = ()

    @property
    def read_schema(self) -> Schema:
        return self.schema


def read(name: str, table: CreateTable | StreamTable) -> Plan:
    """The plan that reads a table."""
    watermark = None if table.reading is None else table.reading.watermark
    updating = (table.makes if isinstance(table, StreamTable) else makes(table)) != "added"
    once = () if table.reading is None else table.reading.once
    fields = (*table.read_schema, *(Field(item.name, item.of.type) for item in once))
    scan = Scan(name, fields, None if watermark is None else watermark.time, updating, table.primary_key)
    return scan if table.reading is None else Select(scan, None, table.reading.columns)


def read_with(catalog: Catalog, path: str, options: Mapping[str, str]) -> Plan | None:
    """The plan that reads a table with the options of a hint. Raises ConfigError; None if there is no such table."""
    table = catalog.table(path) or catalog.unnamed.get(path)
    if not isinstance(table, CreateTable):
        if catalog.has(path):
            raise ConfigError(f"{path!r} is not a table with options")
        return None
    if options.keys() & {"connector"}:
        raise ConfigError("a hint does not change the connector; create another table")
    plan = read(path, table.with_options(options))
    given = tuple(sorted(options.items()))
    if isinstance(plan, Select):
        return msgspec.structs.replace(plan, input=msgspec.structs.replace(plan.input, options=given))
    return msgspec.structs.replace(plan, options=given)


def use_of(scan: Scan) -> str:
    """The name of a table that a plan reads, with the options of the hint. A restore tells uses of one table apart by it."""
    given = ", ".join(f"'{name}' = '{public_value(name, value)}'" for name, value in scan.options)
    return f"{scan.table}{OPTIONS}{given}) */" if given else scan.table


def _whole(path: str) -> str:
    """The name of a path in any database."""
    parts = path.split(".")
    return ".".join((*_DEFAULT[: 3 - len(parts)], *parts))


@dataclass(frozen=True)
class View:
    """``space``: where its query looks for tables."""

    statement: CreateView
    space: Space


@dataclass(frozen=True)
class ProgramView:
    """A Table of the program that has a name in SQL."""

    plan: Plan


@dataclass
class Catalog:
    """Tables, streams and views by their paths: names without the default catalogue and database, whatever ``current`` is.
    ``unnamed``: those of the program that SQL does not list, by generated names. ``states``: what the catalogue `state` has.
    ``stored``: the catalogues that are kept under the state root."""

    tables: dict[str, CreateTable] = field(default_factory=dict)
    streams: dict[str, StreamTable] = field(default_factory=dict)
    views: dict[str, View | ProgramView] = field(default_factory=dict)
    functions: FunctionCatalog = field(default_factory=FunctionCatalog)
    unnamed: dict[str, CreateTable | StreamTable | ProgramView] = field(default_factory=dict)
    databases: dict[str, list[str]] = field(default_factory=lambda: {_DEFAULT[0]: [_DEFAULT[1]]})
    current: Space = _DEFAULT
    states: StateTables = field(default_factory=StateTables)
    stored: StoredCatalogs = field(default_factory=StoredCatalogs)

    @property
    def _all(self) -> Mapping[str, Any]:
        return {**self.tables, **self.streams, **self.views}

    def names(self) -> list[str]:
        """The paths of all tables and views."""
        return sorted(self._all)

    def written(self) -> list[str]:
        """Their names, as statements write them while the current database is the one."""
        return sorted(path if self.path(path) == path else _whole(path) for path in self._all)

    def path(self, name: str, space: Space | None = None) -> str:
        """The path for a name as it is written, in ``space``, by default the current one."""
        parts = name.split(".")
        parts = [*(space or self.current)[: max(0, 3 - len(parts))], *parts]
        for size, default in ((2, _DEFAULT), (1, _DEFAULT[:1])):
            if tuple(parts[:size]) == default:
                return ".".join(parts[size:])
        return ".".join(parts)

    def table(self, path: str) -> CreateTable | None:
        """The definition of a table, also of saved state."""
        return self.tables.get(path) or self.states.table(path)

    def read(self, path: str) -> Plan | None:
        """The plan that reads a table, stream or view of the program; None if there is none."""
        found = self.streams.get(path) or self.unnamed.get(path) or self.views.get(path) or self.table(path)
        match found:
            case ProgramView(plan):
                return plan
            case None | View():
                return None
        return read(path, found)

    def source(self, scan: Scan) -> CreateTable | StreamTable:
        """The table that a plan reads, with the options that it reads it with."""
        name = scan.table
        table = self.streams.get(name) or self.unnamed.get(name) or self.table(name)
        assert isinstance(table, CreateTable | StreamTable)
        return table.with_options(dict(scan.options)) if isinstance(table, CreateTable) else table

    def add_unnamed(self, kind: str, make: Callable[[str], CreateTable | StreamTable | ProgramView]) -> str:
        """Add a table of the program under a name that begins with ``kind``; returns the name."""
        name = next(name for number in count(1) if not self.has(name := f"{kind}_{number}"))
        self.unnamed[name] = make(name)
        return name

    def functions_in(self, space: Space | None = None) -> Functions:
        """The functions that a query may call which looks for names in ``space``."""
        return self.functions.reachable(lambda name: self.path(name, space), (space or self.current)[1])

    def has(self, path: str) -> bool:
        return path in self._all or path in self.unnamed

    def missing_space(self, path: str) -> str | None:
        """What is wrong with the database of a path, if anything."""
        parts = path.split(".")
        catalog, database = [*_DEFAULT[: max(0, 3 - len(parts))], *parts][:2]
        if catalog == STATE:
            return f"catalogue {STATE!r} has the state of jobs; create tables and views elsewhere"
        return self.missing_database((catalog, database if len(parts) <= 3 else ".".join(parts[1:-1])))

    def missing_database(self, space: Space) -> str | None:
        """What is wrong with a catalogue and database, if anything."""
        catalog, database = space
        if catalog not in self.catalogs():
            return f"there is no catalogue {catalog!r}; {did_you_mean(catalog, self.catalogs())}"
        if database not in self.databases_of(catalog):
            return f"there is no database {database!r}; {did_you_mean(database, self.databases_of(catalog))}"
        return None

    def catalogs(self) -> list[str]:
        """The names of all catalogues."""
        return sorted({*self.databases, STATE})

    def databases_of(self, catalog: str) -> list[str]:
        """The databases of a catalogue; none if there is no such catalogue."""
        return self.states.databases() if catalog == STATE else self.databases.get(catalog, [])

    def type_of(self, catalog: str) -> str:
        """The type of a catalogue."""
        return STATE if catalog == STATE else STORED if catalog in self.stored.known else IN_MEMORY

    def space(self, name: str) -> Space:
        """The catalogue and database of a database's name."""
        first, _, second = name.rpartition(".")
        return first or self.current[0], second

    def change_spaces(self, statement: Use | CreateSpace | DropSpace) -> str | None:
        """USE, CREATE or DROP a catalogue or database; returns what is wrong with that, if anything."""
        if statement.what == "CATALOG":
            return self._change_catalogs(statement)
        catalog, name = self.space(statement.name)
        if catalog not in self.catalogs():
            return f"there is no catalogue {catalog!r}; {did_you_mean(catalog, self.catalogs())}"
        if catalog == STATE and not isinstance(statement, Use):
            return f"the databases of catalogue {STATE!r} are jobs; `forkpoint list -a` lists them"
        return self._change_databases(statement, catalog, name)

    def _change_catalogs(self, statement: Use | CreateSpace | DropSpace) -> str | None:
        name, exists = statement.name, statement.name in self.catalogs()
        match statement:
            case CreateSpace(first=first):
                if exists and not statement.if_not_exists:
                    return f"there already is a catalogue {name!r}"
                if statement.of == STORED and not exists:
                    self.stored.known.setdefault(name, NEW)
                self.databases.setdefault(name, [first])
            case _ if not exists:
                ignored = isinstance(statement, DropSpace) and statement.if_exists
                return None if ignored else f"there is no catalogue {name!r}; {did_you_mean(name, self.catalogs())}"
            case Use():
                self.current = name, next(iter(self.databases_of(name)), _DEFAULT[1])
            case DropSpace():
                if name in (self.current[0], _DEFAULT[0], STATE):
                    return f"catalogue {name!r} is in use"
                for database in self.databases.pop(name):
                    self._drop_tables((name, database))
        return None

    def _change_databases(self, statement: Use | CreateSpace | DropSpace, catalog: str, name: str) -> str | None:
        known, space = self.databases_of(catalog), (catalog, name)
        match statement:
            case CreateSpace():
                if name in known and not statement.if_not_exists:
                    return f"there already is a database {name!r}"
                if name not in known:
                    known.append(name)
            case _ if name not in known:
                ignored = isinstance(statement, DropSpace) and statement.if_exists
                return None if ignored else f"there is no database {name!r}; {did_you_mean(name, known)}"
            case Use():
                self.current = space
            case DropSpace(cascade=cascade):
                if space in (self.current, _DEFAULT):
                    return f"database {name!r} is in use"
                if self.tables_of(space) and not cascade:
                    return (
                        f"database {name!r} has tables ({', '.join(self.tables_of(space))}); DROP DATABASE … CASCADE drops them"
                    )
                known.remove(name)
                self._drop_tables(space)
        return None

    def _drop_tables(self, space: Space) -> None:
        for name in self.tables_of(space):
            for kind in ("TABLE", "VIEW"):
                self.drop(kind, self.path(name, space))

    def tables_of(self, space: Space) -> list[str]:
        """The names of the tables and views of a database."""
        if space[0] == STATE:
            return sorted(self.states.tables(space[1]))
        found = {path: path.rpartition(".")[2] for path in self._all}
        return sorted(name for path, name in found.items() if self.path(name, space) == path)

    def drop(self, kind: str, path: str) -> bool:
        """Remove a TABLE or VIEW; returns whether there was one."""
        kinds: list[dict[str, Any]] = [self.tables] if kind == "TABLE" else [self.streams, self.views]
        return any(found.pop(path, None) is not None for found in kinds)

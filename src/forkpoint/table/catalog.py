"""The tables and views of one environment, in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from forkpoint.graph.transformations import Edge
from forkpoint.relational.plan import Plan, Scan, Select
from forkpoint.relational.types import Schema
from forkpoint.sql.errors import did_you_mean
from forkpoint.sql.statements import CreateTable, Drop

if TYPE_CHECKING:
    from forkpoint.sql.reading import Reading

_DEFAULT = ("default_catalog", "default_database")


def plain_name(name: str) -> str:
    """A table's name without the default catalogue and database."""
    parts = name.split(".")
    for prefix in (_DEFAULT, _DEFAULT[1:]):
        if len(parts) == len(prefix) + 1 and tuple(parts[:-1]) == prefix:
            return parts[-1]
    return name


@dataclass(frozen=True)
class StreamTable:
    """A stream of the program as a table of added rows. ``reading``: its columns in queries, if some are computed, or are event
    time."""

    schema: Schema
    edges: tuple[Edge, ...]
    reading: Reading | None = None


def _read(name: str, table: CreateTable | StreamTable) -> Plan:
    """The plan that reads a table."""
    if table.reading is None:
        return Scan(name, table.schema)
    watermark = table.reading.watermark
    return Select(Scan(name, table.schema, None if watermark is None else watermark.time), None, table.reading.columns)


@dataclass
class Catalog:
    tables: dict[str, CreateTable] = field(default_factory=dict)
    streams: dict[str, StreamTable] = field(default_factory=dict)
    views: dict[str, Plan] = field(default_factory=dict)

    def names(self) -> list[str]:
        return sorted({*self.tables, *self.streams, *self.views})

    def find(self, name: str) -> Plan | None:
        """The plan that reads a table or view."""
        name = plain_name(name)
        table = self.tables.get(name) or self.streams.get(name)
        return self.views.get(name) if table is None else _read(name, table)

    def has(self, name: str) -> bool:
        return plain_name(name) in self.names()

    def drop(self, statement: Drop) -> str | None:
        """Remove a table or view; returns what is wrong with that, if anything."""
        name = plain_name(statement.name)
        found: dict[str, Any] = self.tables
        if statement.kind == "VIEW":
            found = self.streams if name in self.streams else self.views
        if found.pop(name, None) is not None or statement.if_exists:
            return None
        return f"there is no {statement.kind.lower()} {name!r}; {did_you_mean(name, found)}"

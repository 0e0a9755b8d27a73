"""The columns that an expression may name."""

from __future__ import annotations

from dataclasses import dataclass

from forkpoint.relational.expressions import Column
from forkpoint.relational.types import Schema
from forkpoint.sql.errors import Text, did_you_mean


@dataclass(frozen=True)
class Scope:
    """The columns of a table in FROM. ``alias``: the name by which they may be qualified."""

    source: Text
    alias: str
    schema: Schema

    def column(self, name: str, qualifier: str, at: int) -> Column:
        if qualifier and qualifier != self.alias:
            known = f"FROM has {self.alias}" if self.alias else "the query has no FROM"
            raise self.source.error(at, f"there is no table {qualifier!r} here; {known}")
        for field in self.schema:
            if field.name == name:
                return Column(name, field.type)
        suggestion = did_you_mean(name, (field.name for field in self.schema))
        raise self.source.error(at, f"there is no column {name!r}; {suggestion}")

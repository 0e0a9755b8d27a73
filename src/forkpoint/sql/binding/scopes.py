"""The columns and functions that an expression may name."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from forkpoint.relational.expressions import Column, Expression, replace_columns
from forkpoint.relational.functions.user import NO_FUNCTIONS, Functions
from forkpoint.relational.plan import Plan
from forkpoint.sql.errors import Text, did_you_mean

OUTER = "outer."


@dataclass(frozen=True)
class Relation:
    """A table in FROM: the columns of the plan that are its columns, by their own names. ``alias``: qualifies them."""

    alias: str
    columns: dict[str, Column]

    @staticmethod
    def of(alias: str, plan: Plan) -> Relation:
        return Relation(alias, {field.name: Column(field.name, field.type) for field in plan.schema})

    def on_side(self, side: str, *, nullable: bool = False) -> Relation:
        """The table as part of a side of a join. ``nullable``: whether rows of the join may lack it."""
        return Relation(self.alias, {name: on_side(column, side, nullable) for name, column in self.columns.items()})


def on_side(column: Column, side: str, nullable: bool) -> Column:
    return Column(side + column.name, column.type.with_null(nullable or column.type.nullable))


@dataclass(frozen=True)
class Scope:
    """The tables in FROM. ``merged``: the columns that JOIN … USING has made of two, which come first in ``*``. ``outer``: the
    scope of the query around a subquery, whose columns have names that begin with OUTER here. ``functions``: the user's."""

    source: Text
    relations: tuple[Relation, ...]
    merged: dict[str, Expression] = field(default_factory=dict)
    outer: Scope | None = None
    functions: Functions = NO_FUNCTIONS

    def on_side(self, side: str, *, nullable: bool = False) -> Scope:
        """The tables as a side of a join. ``nullable``: whether rows of the join may lack them."""
        relations = tuple(each.on_side(side, nullable=nullable) for each in self.relations)
        merged = {name: replace_columns(of, lambda column: on_side(column, side, nullable)) for name, of in self.merged.items()}
        return replace(self, relations=relations, merged=merged)

    def column(self, name: str, qualifier: str, at: int) -> Expression:
        """The column with a name. Raises SqlError for one that is unknown or that several tables have."""
        relations = [each for each in self.relations if not qualifier or each.alias == qualifier]
        if not qualifier and name in self.merged:
            return self.merged[name]
        found = [each for each in relations if name in each.columns]
        if not found and self.outer is not None and self.outer.knows(name, qualifier):
            return replace_columns(self.outer.column(name, qualifier, at), lambda column: on_side(column, OUTER, False))
        if not relations:
            known = ", ".join(each.alias for each in self.relations if each.alias)
            known = f"FROM has {known}" if known else "the query has no FROM"
            raise self.source.error(at, f"there is no table {qualifier!r} here; {known}")
        if len(found) > 1:
            names = " or ".join(f"{each.alias}.{name}" for each in found)
            raise self.source.error(at, f"column {name!r} is in several tables; write {names}")
        if found:
            return found[0].columns[name]
        suggestion = did_you_mean(name, dict.fromkeys(each for relation in relations for each in relation.columns))
        raise self.source.error(at, f"there is no column {name!r}; {suggestion}")

    def has_table(self, alias: str) -> bool:
        """Whether a table, also of the outer query, has this name."""
        return any(each.alias == alias for each in self.relations) or (self.outer is not None and self.outer.has_table(alias))

    def knows(self, name: str, qualifier: str) -> bool:
        """Whether one of its own tables has the column."""
        return any(name in each.columns for each in self.relations if not qualifier or each.alias == qualifier)

    def all_columns(self, qualifier: str, at: int) -> list[tuple[str, Expression]]:
        """What ``*`` stands for, or ``qualifier.*``: names and columns."""
        relations = [each for each in self.relations if not qualifier or each.alias == qualifier]
        if not relations:
            raise self.source.error(at, f"there is no table {qualifier!r} here")
        merged = {} if qualifier else self.merged
        rest = [(name, of) for each in relations for name, of in each.columns.items() if name not in merged]
        return [*merged.items(), *rest]

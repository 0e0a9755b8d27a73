"""What INSERT makes of a query's columns: those of the table, by position, converted, and NULL for the others."""

from __future__ import annotations

from forkpoint.relational.expressions import Call, Column, Expression, Item, Literal
from forkpoint.relational.plan import Plan, Select
from forkpoint.relational.types import Field, SqlType, widens
from forkpoint.sql.errors import Text, did_you_mean
from forkpoint.sql.statements import CreateTable, Insert


def fitted(plan: Plan, table: CreateTable, statement: Insert) -> Plan:
    """The query's columns as the table's: by position, converted as INSERT does."""
    source = statement.query.source
    fields = {each.name: each for each in table.schema}
    computed = set() if table.reading is None else {item.name for item in table.reading.columns} - fields.keys()
    for at, column in enumerate(statement.columns):
        if column in statement.columns[:at]:
            raise source.error(statement.at, f"column {column!r} is named twice")
        if column in computed:
            raise source.error(statement.at, f"column {column!r} of table {table.name!r} is computed: it cannot be written")
        if column not in fields:
            raise source.error(statement.at, f"table {table.name!r} has no column {column!r}; {did_you_mean(column, fields)}")
    targets = statement.columns or tuple(fields)
    if len(targets) != len(plan.schema):
        raise source.error(
            statement.query.start,
            f"the query has {len(plan.schema)} columns ({', '.join(each.name for each in plan.schema)}), but table "
            f"{table.name!r} takes {len(targets)} ({', '.join(targets)})",
        )
    given = {
        target: _converted(Column(each.name, each.type), fields[target], source, statement)
        for target, each in zip(targets, plan.schema, strict=True)
    }
    null = SqlType("NULL")
    items = []
    for target in table.schema:
        found = given.get(target.name)
        if found is not None and found.type.nullable and not target.type.nullable:
            name = Literal(f"{target.name!r} of table {table.name!r}", SqlType("STRING", nullable=False))
            found = Call("NOT NULL", (found, name), target.type)
        if found is None:
            if not target.type.nullable:
                raise source.error(statement.at, f"column {target.name!r} of table {table.name!r} is NOT NULL, but gets no value")
            found = Call("CAST", (Literal(None, null),), target.type)
        items.append(Item(target.name, found))
    return Select(plan, None, tuple(items))


def _converted(value: Column, target: Field, source: Text, statement: Insert) -> Expression:
    wanted, given = target.type, value.type
    if given.same_values(wanted):
        return value
    if not widens(given, wanted):
        raise source.error(
            statement.query.start,
            f"column {value.name!r} of the query is {given.label}, but column {target.name!r} of the table is {wanted.label}; "
            f"use CAST({value.name} AS {wanted.label})",
        )
    return Call("CAST", (value,), wanted.with_null(given.nullable))

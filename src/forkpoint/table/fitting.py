"""What INSERT makes of a query's columns: those of the table, by position, converted, and NULL for the others."""

from __future__ import annotations

from forkpoint.connectors.files.writer import hive_name
from forkpoint.errors import JobFailed
from forkpoint.relational.changes import rows_only
from forkpoint.relational.evaluation import evaluate
from forkpoint.relational.expressions import Call, Column, Expression, Item, Literal
from forkpoint.relational.plan import Plan, Select
from forkpoint.relational.precision import converted
from forkpoint.relational.types import STRING, Field, SqlType, widens
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
    fixed = _fixed(table, statement)
    targets = statement.columns or tuple(name for name in fields if name not in fixed)
    if again := fixed.keys() & set(targets):
        raise source.error(statement.at, f"column {min(again)!r} has a value in PARTITION; leave it out of the columns")
    if len(targets) != len(plan.schema):
        raise source.error(
            statement.query.start,
            f"the query has {len(plan.schema)} columns ({', '.join(each.name for each in plan.schema)}), but table "
            f"{table.name!r} takes {len(targets)} ({', '.join(targets)})",
        )
    given = {
        target: _converted(Column(each.name, each.type), fields[target], source, statement)
        for target, each in zip(targets, plan.schema, strict=True)
    } | fixed
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


def _fixed(table: CreateTable, statement: Insert) -> dict[str, Expression]:
    """The columns that have their value in PARTITION. Raises SqlError."""
    types = {each.name: each.type for each in table.schema}
    found: dict[str, Expression] = {}
    for name, text in statement.partition:
        if name not in table.partitions:
            problem = f"table {table.name!r} is not PARTITIONED BY {name!r}; {did_you_mean(name, table.partitions)}"
            raise statement.query.source.error(statement.at, problem)
        literal = Literal(text, STRING.with_null(False))
        found[name] = literal if types[name].name == "STRING" else Call("CAST", (literal,), types[name])
    return found


def replaced_directory(table: CreateTable, statement: Insert) -> str:
    """The directory of PARTITION, if that has a value for each column; else "". Raises SqlError."""
    fixed = _fixed(table, statement)
    if not table.partitions or len(fixed) < len(table.partitions):
        return ""
    try:
        values = {name: evaluate(of, rows_only(1))[0].as_py() for name, of in fixed.items()}
    except JobFailed as error:
        raise statement.query.source.error(statement.at, f"PARTITION: {error}") from error
    return "/".join(hive_name(name, values[name]) for name in table.partitions)


def _converted(value: Column, target: Field, source: Text, statement: Insert) -> Expression:
    wanted, given = target.type, value.type
    if not widens(given, wanted):
        raise source.error(
            statement.query.start,
            f"column {value.name!r} of the query is {given.label}, but column {target.name!r} of the table is {wanted.label}; "
            f"use CAST({value.name} AS {wanted.label})",
        )
    return converted(value, wanted)

"""What statements such as SHOW TABLES answer: rows that need no job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from forkpoint.relational.types import Field, Schema
from forkpoint.sql.catalog_statements import Show
from forkpoint.sql.errors import public_value
from forkpoint.sql.statements import AnyColumn, ComputedColumn, CreateTable, MetadataColumn, Query
from forkpoint.table.alterations import columns_of
from forkpoint.table.catalog import View


@dataclass(frozen=True)
class Answer:
    """Rows of a statement. ``is_text``: one row with a text that is shown as it is."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]
    is_text: bool = False


def text(content: str) -> Answer:
    return Answer(("result",), [(content,)], is_text=True)


def names(what: str, found: Iterable[str], statement: Show | None = None) -> Answer:
    """Names, those that the statement's pattern accepts."""
    return Answer((f"{what} name",), [(name,) for name in found if statement is None or _accepts(statement, name)])


def _accepts(statement: Show, name: str) -> bool:
    if statement.pattern is None:
        return True
    signs = {"%": ".*", "_": "."}
    pattern = "".join(signs.get(sign, re.escape(sign)) for sign in statement.pattern)
    found = re.fullmatch(pattern, name, re.DOTALL | (re.IGNORECASE if statement.any_case else 0))
    return (found is None) == statement.negated


@dataclass(frozen=True)
class Described:
    """A table or view as queries see it. ``table``: its definition; None for views and streams."""

    schema: Schema
    table: CreateTable | None = None


def columns(found: Described, *, title: str, statement: Show | None = None) -> Answer:
    """The columns of a table, as DESCRIBE shows them."""
    table = found.table
    key = () if table is None else table.primary_key
    computed = {} if table is None else {each.name: clause_of(each) for each in table.computed}
    watermark = None if table is None else table.watermark
    time = {} if watermark is None else {watermark.column: text_of(watermark.of)}
    rows = [
        (
            field.name,
            field.type.label,
            field.type.nullable,
            f"PRI({', '.join(key)})" if field.name in key else None,
            computed.get(field.name),
            time.get(field.name),
        )
        for field in found.schema
        if statement is None or _accepts(statement, field.name)
    ]
    return Answer((title, "type", "null", "key", "extras", "watermark"), rows)


def text_of(query: Query) -> str:
    """A query or expression as it is written."""
    return query.source.text[query.start : query.end]


def table_ddl(path: str, table: CreateTable) -> Answer:
    """The statement that creates a table, with stars in place of options that may be secrets."""
    return text(
        create_table(path, replace(table, options={name: public_value(name, value) for name, value in table.options.items()}))
    )


def create_table(path: str, table: CreateTable) -> str:
    """The statement that creates a table."""
    lines = [f"  {_quoted(name)} {_declared(column)}" for name, column in columns_of(table).items()]
    if table.watermark is not None:
        lines.append(f"  WATERMARK FOR {_quoted(table.watermark.column)} AS {text_of(table.watermark.of)}")
    if table.primary_key:
        lines.append(f"  PRIMARY KEY ({', '.join(map(_quoted, table.primary_key))}) NOT ENFORCED")
    options = [f"  {literal(name)} = {literal(value)}" for name, value in sorted(table.options.items())]
    body = ",\n".join(lines)
    partitions = f"PARTITIONED BY ({', '.join(map(_quoted, table.partitions))})\n" if table.partitions else ""
    return f"CREATE TABLE {_quoted(path)} (\n{body}\n)\n{partitions}WITH (\n{_joined(options)}\n)"


def _declared(column: AnyColumn) -> str:
    if isinstance(column, Field):
        return str(column.type)
    return clause_of(column) if isinstance(column, ComputedColumn) else f"{column.type} {clause_of(column)}"


def clause_of(column: ComputedColumn | MetadataColumn) -> str:
    """How the declaration of a column ends."""
    if isinstance(column, ComputedColumn):
        return f"AS {text_of(column.of)}"
    return f"METADATA FROM {literal(column.key)}{' VIRTUAL' if column.virtual else ''}"


def view_ddl(path: str, view: View) -> Answer:
    return text(create_view(path, view))


def create_view(path: str, view: View) -> str:
    """The statement that creates a view."""
    statement = view.statement
    shown = f" ({', '.join(map(_quoted, statement.columns))})" if statement.columns else ""
    return f"CREATE VIEW {_quoted(path)}{shown} AS\n{text_of(statement.query)}"


def insert_into(path: str, query: Query) -> str:
    """The statement that writes a query's result into a table."""
    return f"INSERT INTO {_quoted(path)} {text_of(query)}"


def function_ddl(path: str, of: str) -> str:
    """The statement that creates a function. ``of``: its module and name there."""
    return f"CREATE FUNCTION {_quoted(path)} AS {literal(of)} LANGUAGE PYTHON"


def _joined(lines: list[str]) -> str:
    return ",\n".join(lines)


def literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _quoted(name: str) -> str:
    return ".".join(f"`{part}`" for part in name.split("."))


def tableau(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """The lines of a table with borders, as Flink prints it."""
    shown = [tuple(map(cell, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *shown, strict=True)]
    border = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    yield border
    yield _line(columns, widths)
    yield border
    for row in shown:
        yield _line(row, widths)
    if shown:
        yield border
    yield f"{len(shown)} row{'' if len(shown) == 1 else 's'} in set"


def cell(value: Any) -> str:
    """A value as Flink prints it."""
    if isinstance(value, bool):
        return str(value).upper()
    return "<NULL>" if value is None else str(value)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(value.rjust(width) for value, width in zip(row, widths, strict=True)) + " |"

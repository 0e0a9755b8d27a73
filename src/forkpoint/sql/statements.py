"""Statements other than queries: DDL, INSERT, SET. Queries are parsed in ``sql.queries``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forkpoint.relational.types import Field
from forkpoint.sql.errors import Text, did_you_mean
from forkpoint.sql.tokens import Tokens, statements_of
from forkpoint.sql.types import column_type

if TYPE_CHECKING:
    from forkpoint.sql.reading import Reading


@dataclass(frozen=True)
class Query:
    """The part of a script that is a query, from ``start`` to ``end``."""

    source: Text
    start: int
    end: int


@dataclass(frozen=True)
class ComputedColumn:
    """A column that is computed when the table is read. ``position``: the number of other columns before it."""

    name: str
    of: Query
    position: int


@dataclass(frozen=True)
class WatermarkClause:
    """``WATERMARK FOR column AS of``. ``at``: where the column is named."""

    column: str
    at: int
    of: Query


@dataclass(frozen=True)
class CreateTable:
    """``offsets``: of the options, by name, and of the table's name as ``""``. ``schema``: the columns that are read and written.
    ``reading``: the columns of the table in queries, if some are computed, or are event time."""

    name: str
    schema: tuple[Field, ...]
    primary_key: tuple[str, ...]
    options: dict[str, str] = field(repr=False)  # they may hold secrets
    if_not_exists: bool
    source: Text
    offsets: dict[str, int]
    reading: Reading | None = None


@dataclass(frozen=True)
class CreateView:
    name: str
    columns: tuple[str, ...]
    query: Query
    if_not_exists: bool
    at: int


@dataclass(frozen=True)
class Drop:
    kind: str
    name: str
    if_exists: bool
    at: int


@dataclass(frozen=True)
class Insert:
    """``columns``: of the table, in the query's order; empty for all of them."""

    table: str
    columns: tuple[str, ...]
    query: Query
    at: int


@dataclass(frozen=True)
class Set:
    """``value``: None to show the setting."""

    key: str | None
    value: str | None
    at: int


@dataclass(frozen=True)
class Explain:
    query: Query


Statement = Query | CreateTable | CreateView | Drop | Insert | Set | Explain


def parse(source: Text) -> Iterator[Statement]:
    """The statements of a script. Raises SqlError, with the position."""
    for tokens in statements_of(source):
        tokens.take("EXECUTE", "STATEMENT", "SET")
        tokens.take("BEGIN")
        if tokens.take("END") and tokens.done:
            continue
        yield _statement(source, tokens)


def _statement(source: Text, tokens: Tokens) -> Statement:
    at = tokens.offset
    if tokens.take("CREATE"):
        tokens.take("TEMPORARY")
        if tokens.take("TABLE"):
            return _create_table(source, tokens)
        if tokens.take("VIEW"):
            return _create_view(source, tokens)
        raise tokens.unexpected("TABLE or VIEW")
    if tokens.take("DROP"):
        tokens.take("TEMPORARY")
        kind = "VIEW" if tokens.take("VIEW") else "TABLE"
        if kind == "TABLE":
            tokens.expect("TABLE")
        if_exists = tokens.take("IF", "EXISTS")
        at = tokens.offset
        name = table_name(tokens)
        tokens.finish()
        return Drop(kind, name, if_exists, at)
    if tokens.take("INSERT"):
        if tokens.peek("OVERWRITE"):
            raise source.error(tokens.offset, "INSERT OVERWRITE is not supported yet; use INSERT INTO")
        tokens.expect("INTO")
        at = tokens.offset
        table = table_name(tokens)
        columns = tuple(tokens.names("a column")) if tokens.peek("(") else ()
        return Insert(table, columns, _query(source, tokens), at)
    if tokens.take("SET"):
        if tokens.done:
            return Set(None, None, at)
        at = tokens.offset
        key = tokens.text("a setting in single quotes, such as 'pipeline.name'")
        if tokens.done:
            return Set(key, None, at)
        tokens.expect("=")
        value = tokens.text("its value in single quotes")
        tokens.finish()
        return Set(key, value, at)
    if tokens.take("EXPLAIN"):
        return Explain(_query(source, tokens))
    if tokens.peek("SELECT") or tokens.peek("WITH") or tokens.peek("("):
        return _query(source, tokens)
    if tokens.peek("ADD"):
        raise source.error(at, "ADD JAR: forkpoint runs Python; install the connector's package with pip instead")
    raise tokens.unexpected("a statement: SELECT, INSERT INTO, CREATE, DROP, SET or EXPLAIN")


def table_name(tokens: Tokens) -> str:
    """A table's name, with its catalogue and database if they are given."""
    parts = [tokens.name("a table's name")]
    while tokens.take("."):
        parts.append(tokens.name("a table's name"))
    return ".".join(parts)


def _query(source: Text, tokens: Tokens) -> Query:
    if not (tokens.peek("SELECT") or tokens.peek("WITH") or tokens.peek("(") or tokens.peek("VALUES")):
        raise tokens.unexpected("a query: SELECT")
    start = tokens.rest()
    return Query(source, start, tokens.end)


def _create_view(source: Text, tokens: Tokens) -> CreateView:
    if_not_exists = tokens.take("IF", "NOT", "EXISTS")
    at = tokens.offset
    name = table_name(tokens)
    columns = tuple(tokens.names("a column")) if tokens.peek("(") else ()
    tokens.expect("AS")
    return CreateView(name, columns, _query(source, tokens), if_not_exists, at)


def _create_table(source: Text, tokens: Tokens) -> CreateTable:
    if_not_exists = tokens.take("IF", "NOT", "EXISTS")
    offsets = {"": tokens.offset}
    name = table_name(tokens)
    tokens.expect("(")
    fields: dict[str, Field] = {}
    computed: dict[str, ComputedColumn] = {}
    watermark: WatermarkClause | None = None
    key: list[str] = []
    key_at = 0
    while True:
        at = tokens.offset
        if tokens.peek("PRIMARY") or tokens.peek("CONSTRAINT"):
            if tokens.take("CONSTRAINT"):
                tokens.name("the constraint's name")
            tokens.expect("PRIMARY", "KEY")
            key_at, key = at, tokens.names("a column")
            tokens.expect("NOT", "ENFORCED")
        elif tokens.take("WATERMARK", "FOR"):
            if watermark is not None:
                raise source.error(at, "a table has one WATERMARK")
            column_at, column = tokens.offset, tokens.name("the column that is event time")
            tokens.expect("AS")
            watermark = WatermarkClause(column, column_at, _expression(source, tokens))
        else:
            found, is_key = _column(source, tokens, len(fields))
            if found.name in fields or found.name in computed:
                raise source.error(at, f"column {found.name!r} is declared twice")
            if isinstance(found, ComputedColumn):
                computed[found.name] = found
            else:
                fields[found.name] = found
            if is_key:
                key_at, key = at, [found.name]
        if not tokens.take(","):
            break
    tokens.expect(")")
    if tokens.take("COMMENT"):
        tokens.text("a comment in single quotes")
    if tokens.peek("PARTITIONED"):
        raise source.error(tokens.offset, "PARTITIONED BY is not supported yet")
    options = _options(source, tokens, offsets)
    for column in key:
        if column not in fields:
            raise source.error(key_at, f"the primary key has no column {column!r}; {did_you_mean(column, fields)}")
        fields[column] = Field(column, fields[column].type.with_null(False))
    tokens.finish()
    schema, reading = tuple(fields.values()), None
    if computed or watermark is not None:
        from forkpoint.sql.reading import bind_reading  # which binds expressions, and so needs this module

        reading = bind_reading(source, schema, tuple(computed.values()), watermark)
    return CreateTable(name, schema, tuple(key), options, if_not_exists, source, offsets, reading)


def _options(source: Text, tokens: Tokens, offsets: dict[str, int]) -> dict[str, str]:
    tokens.expect("WITH")
    tokens.expect("(")
    options: dict[str, str] = {}
    while not options or tokens.take(","):
        at = tokens.offset
        key = tokens.text("an option in single quotes")
        if key in options:
            raise source.error(at, f"option {key!r} is given twice")
        tokens.expect("=")
        offsets[key] = tokens.offset
        options[key] = tokens.text("the option's value in single quotes")
    tokens.expect(")")
    return options


def _expression(source: Text, tokens: Tokens) -> Query:
    """An expression in a list of columns."""
    start = tokens.skip_expression()
    return Query(source, start, tokens.end)


def _column(source: Text, tokens: Tokens, position: int) -> tuple[Field | ComputedColumn, bool]:
    name, at = tokens.name("a column"), tokens.offset
    if tokens.take("AS"):
        computed = ComputedColumn(name, _expression(source, tokens), position)
        if tokens.take("COMMENT"):
            tokens.text("a comment in single quotes")
        return computed, False
    if tokens.peek("METADATA"):
        raise source.error(at, "metadata columns are not supported yet")
    of = column_type(source, tokens)
    if tokens.peek("METADATA"):
        raise source.error(tokens.offset, "metadata columns are not supported yet")
    is_key = False
    if tokens.take("NOT", "NULL"):
        of = of.with_null(False)
    else:
        tokens.take("NULL")
    if tokens.take("PRIMARY", "KEY"):
        tokens.expect("NOT", "ENFORCED")
        of, is_key = of.with_null(False), True
    if tokens.take("COMMENT"):
        tokens.text("a comment in single quotes")
    return Field(name, of), is_key

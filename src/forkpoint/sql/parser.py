"""A script becomes statements. What a query means is found later, by ``sql.queries``."""

from __future__ import annotations

from collections.abc import Iterator

from forkpoint.sql.alterations import AlterTable, AlterView, alteration
from forkpoint.sql.catalog_statements import CatalogStatement, catalog_statement
from forkpoint.sql.errors import Text
from forkpoint.sql.statements import (
    TABLE_NAME,
    CreateTable,
    CreateTableAs,
    CreateView,
    Drop,
    Explain,
    Insert,
    Query,
    Reset,
    Set,
    create_table,
    parse_query,
)
from forkpoint.sql.tokens import Tokens, statements_of

Statement = (
    Query
    | CreateTable
    | CreateTableAs
    | CreateView
    | AlterTable
    | AlterView
    | Drop
    | Insert
    | Set
    | Reset
    | Explain
    | CatalogStatement
)


def parse(source: Text) -> Iterator[Statement]:
    """The statements of a script. Raises SqlError, with the position."""
    for tokens in statements_of(source):
        if not tokens.take("BEGIN", "STATEMENT", "SET"):
            tokens.take("EXECUTE", "STATEMENT", "SET")
            tokens.take("BEGIN")
        if tokens.done or (tokens.take("END") and tokens.done):
            continue
        found = _statement(source, tokens)
        tokens.finish()
        yield found


def _statement(source: Text, tokens: Tokens) -> Statement:
    at = tokens.offset
    found = catalog_statement(source, tokens)
    if found is not None:
        return found
    if tokens.take("CREATE"):
        if tokens.peek("OR", "REPLACE"):
            problem = (
                "CREATE OR REPLACE is not supported: connectors do not delete what a table has; DROP and CREATE, or ALTER it"
            )
            raise source.error(tokens.offset, problem)
        tokens.take("TEMPORARY")
        if tokens.take("TABLE"):
            return create_table(source, tokens)
        if tokens.take("VIEW"):
            return _create_view(source, tokens)
        raise tokens.unexpected("TABLE, VIEW, DATABASE or CATALOG")
    if tokens.take("ALTER"):
        return alteration(source, tokens)
    if tokens.take("DROP"):
        tokens.take("TEMPORARY")
        kind = "VIEW" if tokens.take("VIEW") else "TABLE"
        if kind == "TABLE":
            tokens.expect("TABLE")
        if_exists = tokens.take("IF", "EXISTS")
        at = tokens.offset
        return Drop(kind, tokens.path(TABLE_NAME), if_exists, at)
    if tokens.peek("INSERT"):
        return _insert(source, tokens)
    if tokens.take("SET"):
        if tokens.done:
            return Set(None, None, at)
        at = tokens.offset
        key = tokens.text("a setting in single quotes, such as 'pipeline.name'")
        if tokens.done:
            return Set(key, None, at)
        tokens.expect("=")
        return Set(key, tokens.text("its value in single quotes"), at)
    if tokens.take("RESET"):
        at = tokens.offset
        return Reset(None if tokens.done else tokens.text("a setting in single quotes"), at)
    if tokens.take("EXPLAIN"):
        return Explain(_explained(source, tokens))
    if tokens.peek("SELECT") or tokens.peek("WITH") or tokens.peek("("):
        return parse_query(source, tokens)
    if tokens.peek("ADD") or tokens.peek("REMOVE"):
        raise source.error(at, "ADD JAR: forkpoint runs Python; install the connector's package with pip instead")
    raise tokens.unexpected("a statement: SELECT, INSERT INTO, CREATE, ALTER, DROP, SHOW, DESCRIBE, USE, SET, RESET or EXPLAIN")


def _insert(source: Text, tokens: Tokens) -> Insert:
    tokens.expect("INSERT")
    if tokens.peek("OVERWRITE"):
        raise source.error(tokens.offset, "INSERT OVERWRITE is not supported yet; use INSERT INTO")
    tokens.expect("INTO")
    at = tokens.offset
    table = tokens.path(TABLE_NAME)
    columns = tuple(tokens.names("a column")) if tokens.peek("(") else ()
    return Insert(table, columns, parse_query(source, tokens), at)


def _explained(source: Text, tokens: Tokens) -> Query | Insert:
    tokens.take("PLAN", "FOR")
    for detail in ("ESTIMATED_COST", "JSON_EXECUTION_PLAN", "PLAN_ADVICE"):
        if tokens.peek(detail):
            raise source.error(tokens.offset, f"EXPLAIN {detail} is not supported; EXPLAIN alone shows changes and state")
    tokens.take("CHANGELOG_MODE")  # is always shown
    return _insert(source, tokens) if tokens.peek("INSERT") else parse_query(source, tokens)


def _create_view(source: Text, tokens: Tokens) -> CreateView:
    if_not_exists = tokens.take("IF", "NOT", "EXISTS")
    at = tokens.offset
    name = tokens.path(TABLE_NAME)
    columns = tuple(tokens.names("a column")) if tokens.peek("(") else ()
    tokens.expect("AS")
    return CreateView(name, columns, parse_query(source, tokens), if_not_exists, at)

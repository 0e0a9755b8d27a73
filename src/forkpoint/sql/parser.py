"""A script becomes statements. What a query means is found later, by ``sql.binding``."""

from __future__ import annotations

from collections.abc import Iterator

from forkpoint.sql.alterations import AlterTable, AlterView, alteration
from forkpoint.sql.catalog_statements import CatalogStatement, catalog_statement
from forkpoint.sql.errors import SqlError, Text
from forkpoint.sql.function_statements import FunctionStatement, function_statement
from forkpoint.sql.hints import options_after
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
    | FunctionStatement
)


_DETAILS = ("CHANGELOG_MODE", "JSON_EXECUTION_PLAN", "PLAN_ADVICE")  # the first one is always shown
_SETS = (("EXECUTE", "STATEMENT", "SET"), ("BEGIN", "STATEMENT", "SET"))


def parse(source: Text) -> Iterator[Statement]:
    """The statements of a script. Raises SqlError, with the position."""
    return (statement for statement, _ in parse_with_text(source))


def parse_with_text(source: Text) -> Iterator[tuple[Statement, str]]:
    """The statements of a script, each with its text, without BEGIN and END of statement sets."""
    for tokens in statements_of(source):
        if any(tokens.take(*words) for words in _SETS):
            tokens.take("BEGIN")
        if tokens.done or (tokens.take("END") and tokens.done):
            continue
        start = tokens.offset
        found = _statement(source, tokens)
        tokens.finish()
        yield found, source.text[start : tokens.end]


def is_complete(text: str) -> bool:
    """Whether a semicolon ends the text, and the statement set that it may begin."""
    if not text.rstrip().endswith(";"):
        return False
    try:
        statements = list(statements_of(Text(text)))
    except SqlError:  # a quote is open
        return False
    begins = bool(statements) and any(statements[0].peek(*words) for words in _SETS)
    return not begins or statements[-1].peek("END")


def _statement(source: Text, tokens: Tokens) -> Statement:
    at = tokens.offset
    found = catalog_statement(source, tokens) or function_statement(source, tokens)
    if found is not None:
        return found
    if tokens.take("CREATE"):
        if tokens.peek("OR", "REPLACE"):
            problem = (
                "CREATE OR REPLACE is not supported: connectors do not delete what a table has; DROP and CREATE, or ALTER it"
            )
            raise source.error(tokens.offset, problem)
        temporary = tokens.take("TEMPORARY")
        if tokens.take("TABLE"):
            return create_table(source, tokens, temporary=temporary)
        if tokens.take("VIEW"):
            return _create_view(source, tokens, temporary=temporary)
        raise tokens.unexpected("TABLE, VIEW, FUNCTION, DATABASE or CATALOG")
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
        return _explain(source, tokens)
    if tokens.peek("SELECT") or tokens.peek("WITH") or tokens.peek("(") or tokens.peek("VALUES"):
        return parse_query(source, tokens)
    if tokens.peek("ADD") or tokens.peek("REMOVE"):
        raise source.error(at, "ADD JAR: forkpoint runs Python; install the connector's package with pip instead")
    raise tokens.unexpected("a statement: SELECT, INSERT INTO, CREATE, ALTER, DROP, SHOW, DESCRIBE, USE, SET, RESET or EXPLAIN")


def _insert(source: Text, tokens: Tokens) -> Insert:
    tokens.expect("INSERT")
    overwrites = tokens.take("OVERWRITE")
    if not overwrites:
        tokens.expect("INTO")
    at = tokens.offset
    table = tokens.path(TABLE_NAME)
    partition = _partition(tokens) if tokens.take("PARTITION") else ()
    options = options_after(source, tokens.end)
    columns = tuple(tokens.names("a column")) if tokens.peek("(") else ()
    return Insert(table, columns, parse_query(source, tokens), at, options, overwrites, partition)


def _partition(tokens: Tokens) -> tuple[tuple[str, str], ...]:
    """``(column = value, …)``."""
    tokens.expect("(")
    found: list[tuple[str, str]] = []
    while not found or tokens.take(","):
        column = tokens.name("a column of PARTITIONED BY")
        tokens.expect("=")
        found.append((column, tokens.literal("the value of the partition")))
    tokens.expect(")")
    return tuple(found)


def _explain(source: Text, tokens: Tokens) -> Explain:
    details = set()
    if not tokens.take("PLAN", "FOR"):
        while found := next((detail for detail in _DETAILS if tokens.take(detail)), None):
            details.add(found)
            if not tokens.take(","):
                break
        if tokens.peek("ESTIMATED_COST"):
            raise source.error(tokens.offset, "costs are not estimated; `forkpoint explain JOB` shows those of a running job")
    of = _insert(source, tokens) if tokens.peek("INSERT") else parse_query(source, tokens)
    return Explain(of, frozenset(details))


def _create_view(source: Text, tokens: Tokens, *, temporary: bool) -> CreateView:
    if_not_exists = tokens.take("IF", "NOT", "EXISTS")
    at = tokens.offset
    name = tokens.path(TABLE_NAME)
    columns = tuple(tokens.names("a column")) if tokens.peek("(") else ()
    tokens.expect("AS")
    return CreateView(name, columns, parse_query(source, tokens), if_not_exists, at, temporary)

"""Statements about the catalogue itself: SHOW, DESCRIBE, USE, and CREATE and DROP of catalogues and databases."""

from __future__ import annotations

from dataclasses import dataclass

from forkpoint.sql.errors import Text
from forkpoint.sql.tokens import Tokens

IN_MEMORY, STORED = "generic_in_memory", "state-root"
"""The types of catalogues: those that end with the session, and those that are kept under the state root."""
_LISTS = ("TABLES", "VIEWS", "CATALOGS", "DATABASES", "USER FUNCTIONS", "FUNCTIONS", "COLUMNS")
_NOT_HERE = {
    "MODULES": "there are no modules; SHOW FUNCTIONS lists the functions",
    "JARS": "forkpoint runs Python; `pip list` shows what is installed",
    "PARTITIONS": "use a file listing of the table's path",
    "JOBS": "use `forkpoint list`",
}


@dataclass(frozen=True)
class Show:
    """SHOW TABLES and the like. ``of``: the catalogue, database or table in FROM. ``pattern``: of LIKE, or of ILIKE if
    ``any_case``."""

    what: str
    of: str | None
    pattern: str | None
    negated: bool
    any_case: bool
    at: int


@dataclass(frozen=True)
class ShowCurrent:
    """``what``: CATALOG or DATABASE."""

    what: str


@dataclass(frozen=True)
class ShowCreate:
    """``what``: TABLE or VIEW."""

    what: str
    name: str
    at: int


@dataclass(frozen=True)
class Describe:
    name: str
    at: int


@dataclass(frozen=True)
class DescribeCatalog:
    name: str
    at: int


@dataclass(frozen=True)
class Use:
    """``what``: CATALOG or DATABASE."""

    what: str
    name: str
    at: int


@dataclass(frozen=True)
class CreateSpace:
    """CREATE CATALOG or DATABASE. ``first``: the new catalogue's first database. ``of``: its type."""

    what: str
    name: str
    if_not_exists: bool
    first: str
    at: int
    of: str = IN_MEMORY


@dataclass(frozen=True)
class DropSpace:
    """DROP CATALOG or DATABASE. ``cascade``: with the database's tables."""

    what: str
    name: str
    if_exists: bool
    cascade: bool
    at: int


CatalogStatement = Show | ShowCurrent | ShowCreate | Describe | DescribeCatalog | Use | CreateSpace | DropSpace


def catalog_statement(source: Text, tokens: Tokens) -> CatalogStatement | None:
    """The statement, if it is one of these. Raises SqlError."""
    if tokens.take("SHOW"):
        return _show(source, tokens)
    if tokens.take("DESCRIBE") or tokens.take("DESC"):
        if tokens.take("CATALOG"):
            tokens.take("EXTENDED")
            at = tokens.offset
            return DescribeCatalog(tokens.path("a catalogue's name"), at)
        at = tokens.offset
        return Describe(tokens.path("a table's name"), at)
    if tokens.take("USE"):
        what = "CATALOG" if tokens.take("CATALOG") else "DATABASE"
        if tokens.peek("MODULES"):
            raise source.error(tokens.offset, _NOT_HERE["MODULES"])
        at = tokens.offset
        return Use(what, tokens.path(f"a {what.lower()}'s name"), at)
    for what in ("CATALOG", "DATABASE"):
        if tokens.take("CREATE", what):
            return _create_space(source, tokens, what)
        if tokens.take("DROP", what):
            if_exists, at = tokens.take("IF", "EXISTS"), tokens.offset
            name = tokens.path(f"a {what.lower()}'s name")
            cascade = what == "DATABASE" and tokens.take("CASCADE")
            tokens.take("RESTRICT")
            return DropSpace(what, name, if_exists, cascade, at)
    return None


def _show(source: Text, tokens: Tokens) -> CatalogStatement:
    for what in ("TABLE", "VIEW"):
        if tokens.take("CREATE", what):
            at = tokens.offset
            return ShowCreate(what, tokens.path(f"a {what.lower()}'s name"), at)
    for what in ("CATALOG", "DATABASE"):
        if tokens.take("CURRENT", what):
            return ShowCurrent(what)
    at = tokens.offset
    for what, why in _NOT_HERE.items():
        if tokens.peek(what):
            raise source.error(at, f"SHOW {what} is not supported: {why}")
    what = next((each for each in _LISTS if tokens.take(*each.split())), "")
    if not what:
        raise tokens.unexpected(f"{', '.join(_LISTS)}, CREATE TABLE, CREATE VIEW, CURRENT CATALOG or CURRENT DATABASE")
    of = None
    if what not in ("CATALOGS", "USER FUNCTIONS", "FUNCTIONS") and (tokens.take("FROM") or tokens.take("IN")):
        at, of = tokens.offset, tokens.path("a name")
    elif what == "COLUMNS":
        raise tokens.unexpected("FROM and a table's name")
    negated = tokens.take("NOT")
    any_case = tokens.take("ILIKE")
    pattern = tokens.text("a pattern in single quotes") if any_case or tokens.take("LIKE") else None
    if negated and pattern is None:
        raise tokens.unexpected("LIKE or ILIKE")
    return Show(what, of, pattern, negated, any_case, at)


def _create_space(source: Text, tokens: Tokens, what: str) -> CreateSpace:
    if_not_exists, at = tokens.take("IF", "NOT", "EXISTS"), tokens.offset
    name = tokens.path(f"a {what.lower()}'s name")
    if tokens.take("COMMENT"):
        tokens.text("a comment in single quotes")
    offsets: dict[str, int] = {}
    options = tokens.options(offsets) if tokens.take("WITH") else {}
    known = {"type", "default-database"} if what == "CATALOG" else set()
    for option in options.keys() - known:
        raise source.error(offsets[option], f"a {what.lower()} has no option {option!r}")
    of = options.get("type", IN_MEMORY)
    if of not in (IN_MEMORY, STORED):
        problem = f"a catalogue's type is {IN_MEMORY!r} (it ends with the session) or {STORED!r} (kept under the state root)"
        raise source.error(offsets["type"], problem)
    return CreateSpace(what, name, if_not_exists, options.get("default-database", "default"), at, of)

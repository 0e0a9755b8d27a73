"""Statements as values, and CREATE TABLE. ``sql.parser`` reads the others, ``sql.binding`` what queries mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from forkpoint.relational.types import Field, SqlType
from forkpoint.sql.errors import Text, did_you_mean
from forkpoint.sql.tokens import Tokens
from forkpoint.sql.types import column_type

if TYPE_CHECKING:
    from forkpoint.sql.binding.reading import Reading

TABLE_NAME = "a table's name"


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
class MetadataColumn:
    """A column about the message or file that a row is from. ``key``: the connector's name for it. ``position``: as of computed
    columns."""

    name: str
    type: SqlType
    key: str
    virtual: bool
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
    ``reading``: the columns of the table in queries, if some are ``computed``, or are event time; bound from these, once the
    table is created. ``temporary``: no other session has it."""

    name: str
    schema: tuple[Field, ...]
    primary_key: tuple[str, ...]
    options: dict[str, str] = field(repr=False)  # they may hold secrets
    if_not_exists: bool
    source: Text
    offsets: dict[str, int]
    computed: tuple[ComputedColumn | MetadataColumn, ...] = ()
    watermark: WatermarkClause | None = None
    reading: Reading | None = None
    like: Like | None = None
    partitions: tuple[str, ...] = ()
    temporary: bool = False

    def with_options(self, options: Mapping[str, str]) -> CreateTable:
        """The table with further options, or other values of those that it has."""
        return replace(self, options={**self.options, **options})

    @property
    def metadata(self) -> tuple[MetadataColumn, ...]:
        return tuple(each for each in self.computed if isinstance(each, MetadataColumn))

    @property
    def read_schema(self) -> tuple[Field, ...]:
        """The columns that a source of the table reads."""
        return (*self.schema, *(Field(each.name, each.type) for each in self.metadata))


AnyColumn = Field | ComputedColumn | MetadataColumn
LIKE_FEATURES = ("ALL", "CONSTRAINTS", "PARTITIONS", "GENERATED", "METADATA", "OPTIONS", "WATERMARKS")


@dataclass(frozen=True)
class Like:
    """``features``: INCLUDING, EXCLUDING or OVERWRITING, by what it applies to."""

    table: str
    features: dict[str, str]
    at: int


@dataclass(frozen=True)
class CreateTableAs:
    """CREATE TABLE … AS SELECT: ``table`` has the query's columns, and its key."""

    table: CreateTable
    query: Query


@dataclass(frozen=True)
class CreateView:
    name: str
    columns: tuple[str, ...]
    query: Query
    if_not_exists: bool
    at: int
    temporary: bool = False


@dataclass(frozen=True)
class Drop:
    kind: str
    name: str
    if_exists: bool
    at: int


@dataclass(frozen=True)
class Insert:
    """``columns``: of the table, in the query's order; empty for all of them. ``options``: of the hint OPTIONS. ``overwrites``:
    whether the rows replace those that the table has. ``partition``: the texts of columns that all rows share."""

    table: str
    columns: tuple[str, ...]
    query: Query
    at: int
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    overwrites: bool = False
    partition: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Set:
    """``value``: None to show the setting."""

    key: str | None
    value: str | None
    at: int


@dataclass(frozen=True)
class Reset:
    """``key``: None for all settings."""

    key: str | None
    at: int


@dataclass(frozen=True)
class Explain:
    """``details``: what else is asked for, by Flink's names."""

    of: Query | Insert
    details: frozenset[str] = frozenset()


def parse_query(source: Text, tokens: Tokens) -> Query:
    if not (tokens.peek("SELECT") or tokens.peek("WITH") or tokens.peek("(") or tokens.peek("VALUES")):
        raise tokens.unexpected("a query: SELECT")
    start = tokens.rest()
    return Query(source, start, tokens.end)


def create_table(source: Text, tokens: Tokens, *, temporary: bool = False) -> CreateTable | CreateTableAs:
    if_not_exists = tokens.take("IF", "NOT", "EXISTS")
    offsets = {"": tokens.offset}
    name = tokens.path(TABLE_NAME)
    more = tokens.take("(")
    fields: dict[str, Field] = {}
    computed: dict[str, ComputedColumn | MetadataColumn] = {}
    watermark: WatermarkClause | None = None
    key: list[str] = []
    key_at = 0
    while more:
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
            watermark = parse_watermark(source, tokens)
        else:
            found, is_key = parse_column(source, tokens, len(fields))
            if found.name in fields or found.name in computed:
                raise source.error(at, f"column {found.name!r} is declared twice")
            if isinstance(found, Field):
                fields[found.name] = found
            else:
                computed[found.name] = found
            if is_key:
                key_at, key = at, [found.name]
        more = tokens.take(",")
    if fields or key or computed or watermark is not None:
        tokens.expect(")")
    if tokens.take("COMMENT"):
        tokens.text("a comment in single quotes")
    partitions = tokens.names("a column") if tokens.take("PARTITIONED", "BY") else []
    for column in partitions:
        if fields and column not in fields:
            raise source.error(offsets[""], f"PARTITIONED BY has no column {column!r}; {did_you_mean(column, fields)}")
    options = tokens.options(offsets) if tokens.take("WITH") else {}
    like = _like(source, tokens) if tokens.take("LIKE") else None
    query = parse_query(source, tokens) if tokens.take("AS") else None
    table = CreateTable(
        name,
        tuple(fields.values()),
        tuple(key),
        options,
        if_not_exists,
        source,
        offsets,
        tuple(computed.values()),
        watermark,
        like=like,
        partitions=tuple(partitions),
        temporary=temporary,
    )
    if query is not None:
        if fields or computed:
            raise source.error(offsets[""], f"table {name!r} has the columns of its query; leave out others, or INSERT INTO it")
        return CreateTableAs(table, query)
    if like is not None:
        return table
    if not fields:
        raise source.error(offsets[""], f"table {name!r} has no columns; give them, or LIKE a table, or AS SELECT …")
    if not options:
        raise tokens.unexpected("WITH")
    for column in key:
        if column not in fields:
            raise source.error(key_at, f"the primary key has no column {column!r}; {did_you_mean(column, fields)}")
        fields[column] = Field(column, fields[column].type.with_null(False))
    return replace(table, schema=tuple(fields.values()))


def _like(source: Text, tokens: Tokens) -> Like:
    at = tokens.offset
    table = tokens.path(TABLE_NAME)
    features: dict[str, str] = {}
    if tokens.take("("):
        while not tokens.take(")"):
            how = next((each for each in ("INCLUDING", "EXCLUDING", "OVERWRITING") if tokens.take(each)), None)
            if how is None:
                raise tokens.unexpected("INCLUDING, EXCLUDING or OVERWRITING")
            what = next((each for each in LIKE_FEATURES if tokens.take(each)), None)
            if what is None or (how == "OVERWRITING" and what in ("ALL", "CONSTRAINTS", "PARTITIONS")):
                raise tokens.unexpected(f"what {how} is about: {', '.join(LIKE_FEATURES)}")
            features[what] = how
            tokens.take(",")
    return Like(table, features, at)


def parse_watermark(source: Text, tokens: Tokens) -> WatermarkClause:
    at, column = tokens.offset, tokens.name("the column that is event time")
    tokens.expect("AS")
    return WatermarkClause(column, at, _expression(source, tokens))


def _expression(source: Text, tokens: Tokens, *ends: str) -> Query:
    """An expression in a list of columns, which a comma, a parenthesis or one of these words ends."""
    start = tokens.skip_expression(*ends)
    return Query(source, start, tokens.end)


def parse_column(source: Text, tokens: Tokens, position: int, *ends: str) -> tuple[AnyColumn, bool]:
    name = tokens.name("a column")
    if tokens.take("AS"):
        computed = ComputedColumn(name, _expression(source, tokens, *ends), position)
        if tokens.take("COMMENT"):
            tokens.text("a comment in single quotes")
        return computed, False
    of = column_type(source, tokens)
    is_key = False
    if tokens.take("NOT", "NULL"):
        of = of.with_null(False)
    else:
        tokens.take("NULL")
    if tokens.take("METADATA"):
        key = tokens.text("the metadata's name in single quotes") if tokens.take("FROM") else name
        virtual = tokens.take("VIRTUAL")
        if tokens.take("COMMENT"):
            tokens.text("a comment in single quotes")
        return MetadataColumn(name, of, key, virtual, position), False
    if tokens.take("PRIMARY", "KEY"):
        tokens.expect("NOT", "ENFORCED")
        of, is_key = of.with_null(False), True
    if tokens.take("COMMENT"):
        tokens.text("a comment in single quotes")
    return Field(name, of), is_key

"""ALTER TABLE and ALTER VIEW."""

from __future__ import annotations

from dataclasses import dataclass, field

from forkpoint.relational.types import Field
from forkpoint.sql.errors import Text
from forkpoint.sql.statements import (
    TABLE_NAME,
    ComputedColumn,
    Query,
    WatermarkClause,
    parse_column,
    parse_query,
    parse_watermark,
)
from forkpoint.sql.tokens import Tokens


@dataclass(frozen=True)
class Rename:
    """``column``: the column to rename; None for the table or view itself."""

    column: str | None
    to: str


@dataclass(frozen=True)
class SetOptions:
    options: dict[str, str] = field(repr=False)
    offsets: dict[str, int]


@dataclass(frozen=True)
class ResetOptions:
    keys: tuple[str, ...]


@dataclass(frozen=True)
class PlacedColumn:
    """``after``: the column that precedes it, "" for none, None for where it is or the end."""

    column: Field | ComputedColumn
    is_key: bool
    after: str | None


@dataclass(frozen=True)
class PutColumns:
    """ADD, or with ``present`` MODIFY."""

    columns: tuple[PlacedColumn, ...]
    key: tuple[str, ...]
    watermark: WatermarkClause | None
    present: bool


@dataclass(frozen=True)
class DropColumns:
    """Without names: the primary key."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class DropWatermark:
    pass


Change = Rename | SetOptions | ResetOptions | PutColumns | DropColumns | DropWatermark


@dataclass(frozen=True)
class AlterTable:
    name: str
    change: Change
    if_exists: bool
    at: int
    source: Text


@dataclass(frozen=True)
class AlterView:
    name: str
    change: Rename | Query
    at: int
    source: Text


def alteration(source: Text, tokens: Tokens) -> AlterTable | AlterView:
    if tokens.take("VIEW"):
        at = tokens.offset
        name = tokens.path("a view's name")
        if tokens.take("RENAME", "TO"):
            return AlterView(name, Rename(None, tokens.path("its new name")), at, source)
        tokens.expect("AS")
        return AlterView(name, parse_query(source, tokens), at, source)
    tokens.expect("TABLE")
    if_exists, at = tokens.take("IF", "EXISTS"), tokens.offset
    return AlterTable(tokens.path(TABLE_NAME), _change(source, tokens), if_exists, at, source)


def _change(source: Text, tokens: Tokens) -> Change:
    if tokens.take("RENAME", "TO"):
        return Rename(None, tokens.path("its new name"))
    if tokens.take("RENAME"):
        column = tokens.name("a column")
        tokens.expect("TO")
        return Rename(column, tokens.name("its new name"))
    if tokens.take("SET"):
        offsets: dict[str, int] = {}
        return SetOptions(tokens.options(offsets), offsets)
    if tokens.take("RESET"):
        tokens.expect("(")
        keys = [tokens.text("an option in single quotes")]
        while tokens.take(","):
            keys.append(tokens.text("an option in single quotes"))
        tokens.expect(")")
        return ResetOptions(tuple(keys))
    if tokens.take("DROP", "PRIMARY", "KEY") or tokens.take("DROP", "CONSTRAINT"):
        if not tokens.done:
            tokens.name("the constraint's name")
        return DropColumns(())
    if tokens.take("DROP", "WATERMARK"):
        return DropWatermark()
    if tokens.take("DROP"):
        return DropColumns(tuple(tokens.names("a column")) if tokens.peek("(") else (tokens.name("a column"),))
    present = tokens.take("MODIFY")
    if not present and not tokens.take("ADD"):
        raise tokens.unexpected("RENAME, SET, RESET, ADD, MODIFY or DROP")
    several = tokens.take("(")
    columns: list[PlacedColumn] = []
    key: list[str] = []
    watermark: WatermarkClause | None = None
    while True:
        if tokens.take("CONSTRAINT"):
            tokens.name("the constraint's name")
        if tokens.take("PRIMARY", "KEY"):
            key = tokens.names("a column")
            tokens.expect("NOT", "ENFORCED")
        elif tokens.take("WATERMARK", "FOR"):
            watermark = parse_watermark(source, tokens)
        else:
            columns.append(_placed_column(source, tokens))
        if not (several and tokens.take(",")):
            break
    if several:
        tokens.expect(")")
    return PutColumns(tuple(columns), tuple(key), watermark, present)


def _placed_column(source: Text, tokens: Tokens) -> PlacedColumn:
    column, is_key = parse_column(source, tokens, 0, "FIRST", "AFTER")
    if tokens.take("FIRST"):
        return PlacedColumn(column, is_key, "")
    return PlacedColumn(column, is_key, tokens.name("a column") if tokens.take("AFTER") else None)

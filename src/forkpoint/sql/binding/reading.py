"""What a table's DDL says of reading it: computed columns, and the event time of its rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from forkpoint.relational.expressions import Call, Column, Expression, Item, items_of
from forkpoint.relational.functions.changing import PROCTIME, calls_in, of_column
from forkpoint.relational.functions.times import MONTHS
from forkpoint.relational.functions.user import NO_FUNCTIONS, Functions
from forkpoint.relational.types import Field, Schema
from forkpoint.sql.binding.expressions import COMPUTED, Binder
from forkpoint.sql.binding.scopes import Relation, Scope
from forkpoint.sql.binding.times import interval_of
from forkpoint.sql.errors import SqlError, Text, did_you_mean
from forkpoint.sql.grammar import refuse_unread_parts
from forkpoint.sql.statements import ComputedColumn, CreateTable, MetadataColumn, Query, WatermarkClause
from forkpoint.sql.syntax import syntax_tree, tokens_of
from forkpoint.sql.tokens import named_calls

_EXAMPLE = "WATERMARK FOR {0} AS {0} - INTERVAL '5' SECOND"


@dataclass(frozen=True)
class Watermark:
    """The watermark of rows is the latest ``time`` less ``delay_ms``; None: they have watermarks already."""

    time: Expression
    delay_ms: int | None


@dataclass(frozen=True)
class Reading:
    """``columns``: all columns of the table in queries, over its columns in messages or files, and over ``once``: those that are
    computed where the table is read, because their values differ each time."""

    columns: tuple[Item, ...]
    watermark: Watermark | None
    once: tuple[Item, ...] = ()


def bound(table: CreateTable, functions: Functions = NO_FUNCTIONS) -> CreateTable:
    """The table with what its clauses say of reading it. Raises SqlError. ``functions``: the user's."""
    clause, reading = table.watermark, None
    if table.computed or clause is not None:
        source = table.source if clause is None else clause.of.source
        reading = bind_reading(source, table.schema, table.computed, clause, functions)
    return replace(table, reading=reading)


def bind_reading(
    source: Text,
    schema: Schema,
    computed: tuple[ComputedColumn | MetadataColumn, ...],
    clause: WatermarkClause | None,
    functions: Functions = NO_FUNCTIONS,
) -> Reading:
    """Raises SqlError."""
    columns, once = [*items_of(schema)], []
    read = (*schema, *(Field(each.name, each.type) for each in computed if isinstance(each, MetadataColumn)))
    for nth, column in enumerate(computed):
        if isinstance(column, MetadataColumn):
            of: Expression = Column(column.name, column.type)
        else:
            tree, binder = _parsed(column.of, read, COMPUTED, functions)
            of = binder.bind(tree)
            if any(each.function != PROCTIME for each in calls_in(of)):
                once.append(Item(column.name, of_column(of, column.name)))
                of = Column(column.name, of.type)
        columns.insert(column.position + nth, Item(column.name, of))
    watermark = None if clause is None else _watermark(source, tuple(columns), clause)
    return Reading(tuple(columns), watermark, tuple(once))


def _parsed(of: Query, schema: Schema, clause: str, functions: Functions = NO_FUNCTIONS) -> tuple[Any, Binder]:
    tree = syntax_tree(named_calls(tokens_of(of), functions.names), of)
    columns = {field.name: Column(field.name, field.type) for field in schema}
    binder = Binder(Scope(of.source, (Relation("", columns),), functions=functions), of.start, None, clause)
    refuse_unread_parts(tree, binder.error)
    return tree, binder


def _watermark(source: Text, columns: tuple[Item, ...], clause: WatermarkClause) -> Watermark:
    found = {item.name: item.of for item in columns}
    if clause.column not in found:
        raise source.error(clause.at, f"there is no column {clause.column!r}; {did_you_mean(clause.column, found)}")
    time = found[clause.column]
    if isinstance(time, Call) and time.function == PROCTIME:
        raise source.error(clause.at, f"column {clause.column!r} is PROCTIME(), not a time of the rows; it has no watermark")
    if time.type.name not in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        raise source.error(
            clause.at,
            f"event time is a TIMESTAMP or TIMESTAMP_LTZ, not {time.type.name}; compute a column, such as "
            f"ts AS TO_TIMESTAMP_LTZ({clause.column}, 3), and write {_EXAMPLE.format('ts')}",
        )
    tree, binder = _parsed(clause.of, (), "in WATERMARK")
    return Watermark(time, _delay_ms(tree, binder, clause))


def _delay_ms(tree: Any, binder: Binder, clause: WatermarkClause) -> int:
    if _is_column(tree, clause.column):
        return 0
    if isinstance(tree, exp.Sub) and _is_column(tree.this, clause.column) and isinstance(tree.expression, exp.Interval):
        unit, count = interval_of(binder, tree.expression)
        if unit not in MONTHS and count >= 0 and count % 1000 == 0:
            return count // 1000
    raise _unsupported(binder, tree, clause.column)


def _is_column(tree: Any, name: str) -> bool:
    return isinstance(tree, exp.Column) and not tree.table and tree.name == name


def _unsupported(binder: Binder, tree: Any, column: str) -> SqlError:
    return binder.error(
        tree,
        f"a watermark is the event time itself, or less an interval of whole milliseconds: {_EXAMPLE.format(column)}",
    )

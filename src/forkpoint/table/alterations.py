"""What ALTER TABLE, LIKE and AS make of a table's definition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from forkpoint.relational.types import Field
from forkpoint.sql.alterations import AlterTable, Change, DropColumns, DropWatermark, PutColumns, Rename, ResetOptions, SetOptions
from forkpoint.sql.errors import SqlError, did_you_mean
from forkpoint.sql.statements import AnyColumn, ComputedColumn, CreateTable, MetadataColumn

Columns = dict[str, AnyColumn]


def altered(table: CreateTable, statement: AlterTable) -> CreateTable:
    """The table after a change other than that of its name. Raises SqlError."""
    offsets = statement.change.offsets if isinstance(statement.change, SetOptions) else {}
    table = replace(table, source=statement.source, offsets={"": statement.at, **offsets})
    return _changed(table, statement.change)


def _changed(table: CreateTable, change: Change) -> CreateTable:
    columns = columns_of(table)
    match change:
        case SetOptions(options):
            return table.with_options(options)
        case ResetOptions(keys):
            return replace(table, options={name: value for name, value in table.options.items() if name not in keys})
        case DropWatermark():
            return replace(table, watermark=None)
        case Rename(column=str(name), to=to):
            _check_present(table, columns, name)
            _check_absent(table, columns, to)
            renamed = [replace_name(each, to) if each.name == name else each for each in columns.values()]
            key, partitions = (
                tuple(to if each == name else each for each in names) for names in (table.primary_key, table.partitions)
            )
            return replace(with_columns(table, renamed), primary_key=key, partitions=partitions)
        case DropColumns(()):
            if not table.primary_key:
                raise _error(table, f"table {table.name!r} has no primary key")
            return replace(table, primary_key=())
        case DropColumns(names):
            for name in names:
                _check_present(table, columns, name)
                if name in table.partitions:
                    raise _error(table, f"table {table.name!r} is partitioned by column {name!r}")
                if name in table.primary_key:
                    raise _error(table, f"column {name!r} is part of the primary key; DROP PRIMARY KEY first")
                del columns[name]
            return with_columns(table, columns.values())
        case PutColumns():
            return _put(table, columns, change)
    raise AssertionError(change)


def _put(table: CreateTable, columns: Columns, change: PutColumns) -> CreateTable:
    order, key = list(columns), list(change.key)
    for placed in change.columns:
        name = placed.column.name
        (_check_present if change.present else _check_absent)(table, columns, name)
        columns[name] = placed.column
        if placed.is_key:
            key = [name]
        if name in order and placed.after is not None:
            order.remove(name)
        if name not in order:
            if placed.after:
                _check_present(table, {each: columns[each] for each in order}, placed.after)
            at = len(order) if placed.after is None else order.index(placed.after) + 1 if placed.after else 0
            order.insert(at, name)
    for what, given, has in (("primary key", key, table.primary_key), ("watermark", change.watermark, table.watermark)):
        if given and has and not change.present:
            raise _error(table, f"table {table.name!r} has a {what} already; MODIFY it")
    table = replace(with_columns(table, (columns[name] for name in order)), watermark=change.watermark or table.watermark)
    return with_key(table, tuple(key) or table.primary_key)


def like(statement: CreateTable, parent: CreateTable) -> CreateTable:
    """The table of CREATE TABLE … LIKE. Raises SqlError."""
    assert statement.like is not None
    features = statement.like.features

    def mode(what: str) -> str:
        return features.get(what) or features.get("ALL") or ("OVERWRITING" if what == "OPTIONS" else "INCLUDING")

    columns = columns_of(parent)
    if mode("GENERATED") == "EXCLUDING":
        columns = {name: each for name, each in columns.items() if not isinstance(each, ComputedColumn)}
    if mode("METADATA") == "EXCLUDING":
        columns = {name: each for name, each in columns.items() if not isinstance(each, MetadataColumn)}
    for name, column in columns_of(statement).items():
        kinds = {"GENERATED": ComputedColumn, "METADATA": MetadataColumn}
        if not any(mode(what) == "OVERWRITING" and isinstance(columns.get(name), kind) for what, kind in kinds.items()):
            _check_absent(statement, columns, name)
        columns[name] = column
    options = parent.options if mode("OPTIONS") != "EXCLUDING" else {}
    both = sorted(options.keys() & statement.options.keys())
    if both and mode("OPTIONS") == "INCLUDING":
        raise _error(statement, f"option {both[0]!r} is given by both tables; use OVERWRITING OPTIONS")
    key = parent.primary_key if mode("CONSTRAINTS") == "INCLUDING" else ()
    if key and statement.primary_key:
        raise _error(statement, f"table {parent.name!r} has a primary key, too; use EXCLUDING CONSTRAINTS")
    watermark = parent.watermark if mode("WATERMARKS") != "EXCLUDING" else None
    if watermark and statement.watermark and mode("WATERMARKS") == "INCLUDING":
        raise _error(statement, f"table {parent.name!r} has a watermark, too; use OVERWRITING WATERMARKS")
    table = replace(
        with_columns(statement, columns.values()),
        options={**options, **statement.options},
        watermark=statement.watermark or watermark,
        partitions=statement.partitions or (parent.partitions if mode("PARTITIONS") == "INCLUDING" else ()),
        like=None,
    )
    return with_key(table, key or statement.primary_key)


def with_key(table: CreateTable, key: tuple[str, ...]) -> CreateTable:
    """The table with this primary key, whose columns are NOT NULL. Raises SqlError if it has no such column."""
    fields = {field.name: field for field in table.schema}
    for name in key:
        if name not in fields:
            raise _error(table, f"the primary key has no column {name!r}; {did_you_mean(name, fields)}")
    schema = tuple(Field(each.name, each.type.with_null(each.type.nullable and each.name not in key)) for each in table.schema)
    return replace(table, schema=schema, primary_key=key)


def columns_of(table: CreateTable) -> Columns:
    """All columns of a table's definition, in their order."""
    columns: list[AnyColumn] = list(table.schema)
    for nth, each in enumerate(table.computed):
        columns.insert(each.position + nth, each)
    return {each.name: each for each in columns}


def with_columns(table: CreateTable, columns: Iterable[AnyColumn]) -> CreateTable:
    """The table with these columns, in their order."""
    schema: list[Field] = []
    computed: list[ComputedColumn | MetadataColumn] = []
    for each in columns:
        if isinstance(each, Field):
            schema.append(each)
        else:
            computed.append(replace(each, position=len(schema)))
    if not schema:
        raise _error(table, f"table {table.name!r} would have no columns")
    return replace(table, schema=tuple(schema), computed=tuple(computed))


def replace_name(column: AnyColumn, name: str) -> AnyColumn:
    return Field(name, column.type) if isinstance(column, Field) else replace(column, name=name)


def _check_present(table: CreateTable, columns: Mapping[str, object], name: str) -> None:
    if name not in columns:
        raise _error(table, f"table {table.name!r} has no column {name!r}; {did_you_mean(name, columns)}")


def _check_absent(table: CreateTable, columns: Mapping[str, object], name: str) -> None:
    if name in columns:
        raise _error(table, f"column {name!r} exists already")


def _error(table: CreateTable, problem: str) -> SqlError:
    return table.source.error(table.offsets[""], problem)

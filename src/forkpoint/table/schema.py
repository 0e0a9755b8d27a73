"""Schema: the columns, event time and primary key of a table that a program declares, by PyFlink's names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from forkpoint.errors import ConfigError
from forkpoint.relational.expressions import Expression, Item
from forkpoint.relational.functions import castable
from forkpoint.relational.functions.user import NO_FUNCTIONS, Functions
from forkpoint.relational.precision import converted
from forkpoint.relational.types import Field
from forkpoint.sql.errors import Text, did_you_mean
from forkpoint.sql.statements import ComputedColumn, Query, WatermarkClause
from forkpoint.table.api.expression import Expression as TableExpression
from forkpoint.table.api.nodes import literal, quoted
from forkpoint.table.data_types import DataType, sql_type_of

if TYPE_CHECKING:
    from forkpoint.sql.binding.reading import Reading

_SOURCE_WATERMARK = "SOURCE_WATERMARK()"


@dataclass(frozen=True)
class Physical:
    """A column that is read and written."""

    name: str
    type: DataType | str

    def __str__(self) -> str:
        return f"{quoted(self.name)} {self.type if isinstance(self.type, DataType) else f'[{self.type}]'}"

    @property
    def ddl(self) -> str:
        return f"{quoted(self.name)} {self.type}"


@dataclass(frozen=True)
class Computed:
    """A column that is computed when the table is read. ``of``: SQL."""

    name: str
    of: str

    def __str__(self) -> str:
        return f"{quoted(self.name)} AS [{self.of}]"

    @property
    def ddl(self) -> str:
        return f"{quoted(self.name)} AS {self.of}"


@dataclass(frozen=True)
class Metadata:
    """A column about the message that a row is from."""

    name: str
    type: DataType | str
    key: str | None
    virtual: bool

    def __str__(self) -> str:
        return f"{quoted(self.name)} {self._clause}"

    @property
    def _clause(self) -> str:
        return f"METADATA{'' if self.key is None else f' FROM {literal(self.key)}'}{' VIRTUAL' * self.virtual}"

    @property
    def ddl(self) -> str:
        return f"{quoted(self.name)} {self.type} {self._clause}"


Declared = Physical | Computed | Metadata


@dataclass(frozen=True)
class Schema:
    """The columns of a table, its event time and its primary key, created with ``new_builder()``."""

    _columns: tuple[Declared, ...] = ()
    _watermark: tuple[str, str] | None = None
    _key: tuple[str, ...] = ()
    _key_name: str = ""

    @staticmethod
    def new_builder() -> Schema.Builder:
        """A builder of a schema."""
        return Schema.Builder()

    def __str__(self) -> str:
        lines = [f"  {column}" for column in self._columns]
        if self._watermark is not None:
            lines.append(f"  WATERMARK FOR {quoted(self._watermark[0])} AS [{self._watermark[1]}]")
        if self._key:
            lines.append(f"  CONSTRAINT {quoted(self._key_name)} PRIMARY KEY ({_list(self._key)}) NOT ENFORCED")
        return "(\n" + ",\n".join(lines) + "\n)"

    def ddl(self) -> str:
        """What CREATE TABLE has in parentheses."""
        lines = [column.ddl for column in self._columns]
        if self._watermark is not None:
            lines.append(f"WATERMARK FOR {quoted(self._watermark[0])} AS {self._watermark[1]}")
        if self._key:
            lines.append(f"PRIMARY KEY ({_list(self._key)}) NOT ENFORCED")
        return ",\n  ".join(lines)

    class Builder:
        """Builds a schema. The methods return the builder."""

        def __init__(self) -> None:
            self._schema = Schema()

        def _add(self, *columns: Declared) -> Schema.Builder:
            self._schema = replace(self._schema, _columns=(*self._schema._columns, *columns))
            return self

        def column(self, column_name: str, data_type: DataType | str) -> Schema.Builder:
            """Add a column. The type may be SQL: ``"DECIMAL(10, 2)"``."""
            return self._add(Physical(column_name, data_type))

        def column_by_expression(self, column_name: str, expr: str | TableExpression) -> Schema.Builder:
            """Add a column that is computed from others, such as ``"TO_TIMESTAMP_LTZ(ms, 3)"``."""
            return self._add(Computed(column_name, str(expr)))

        def column_by_metadata(
            self, column_name: str, data_type: DataType | str, metadata_key: str | None = None, is_virtual: bool = False
        ) -> Schema.Builder:
            """Add a column about the message that a row is from, such as Kafka's ``"offset"``."""
            return self._add(Metadata(column_name, data_type, metadata_key, is_virtual))

        def watermark(self, column_name: str, watermark_expr: str | TableExpression) -> Schema.Builder:
            """Make a column event time, with watermarks such as ``"ts - INTERVAL '5' SECOND"``.

            ``"SOURCE_WATERMARK()"`` keeps the watermarks of the stream, whose timestamps the column must have.
            """
            self._schema = replace(self._schema, _watermark=(column_name, str(watermark_expr)))
            return self

        def primary_key(self, *column_names: str) -> Schema.Builder:
            """The columns of which each row has other values."""
            return self.primary_key_named(f"PK_{'_'.join(column_names)}", *column_names)

        def primary_key_named(self, constraint_name: str, *column_names: str) -> Schema.Builder:
            """A primary key with a name, which has no effect."""
            self._schema = replace(self._schema, _key=column_names, _key_name=constraint_name)
            return self

        def from_schema(self, unresolved_schema: Schema) -> Schema.Builder:
            """Add what another schema has."""
            given = unresolved_schema
            self._add(*given._columns)
            if given._watermark is not None:
                self.watermark(*given._watermark)
            return self.primary_key_named(given._key_name, *given._key) if given._key else self

        def from_row_data_type(self, data_type: DataType) -> Schema.Builder:
            """Add the fields of a ``DataTypes.ROW``."""
            return self.from_fields(data_type.field_names(), data_type.field_types())

        def from_fields(self, field_names: Sequence[str], field_data_types: Sequence[DataType | str]) -> Schema.Builder:
            """Add columns by their names and types."""
            return self._add(*(Physical(*each) for each in zip(field_names, field_data_types, strict=True)))

        def build(self) -> Schema:
            """The schema."""
            return self._schema


def _list(names: Sequence[str]) -> str:
    return ", ".join(map(quoted, names))


def with_digits(fields: tuple[Field, ...], schema: Schema | None) -> tuple[Field, ...]:
    """The columns of a stream with the digits of seconds that a schema declares."""
    columns = () if schema is None else schema._columns
    declared = {each.name: sql_type_of(each.type) for each in columns if isinstance(each, Physical)}
    same = {each.name: of for each in fields if (of := declared.get(each.name)) and of.same_values(each.type)}
    return tuple(Field(each.name, same.get(each.name, each.type).with_null(each.type.nullable)) for each in fields)


def reading_of(schema: Schema, fields: tuple[Field, ...], functions: Functions = NO_FUNCTIONS) -> Reading:
    """The columns of a stream's table in queries: those that the schema declares, or if it declares none of the stream's fields,
    these and the computed ones. Raises ConfigError."""
    from forkpoint.sql.binding.reading import bind_reading  # loads sqlglot

    names = [field.name for field in fields]
    declared = [column for column in schema._columns if isinstance(column, Physical)]
    computed = []
    for column in schema._columns:
        match column:
            case Metadata(name) if name not in names:
                raise ConfigError(
                    f'column {name!r}: of metadata, a stream has "rowtime" only; map() it to elements with the field'
                )
            case Computed(name, of):
                if name in names:
                    raise ConfigError(f"column {name!r} is there already; give the computed column another name")
                names.append(name)
                computed.append(ComputedColumn(name, _query(of), len(fields)))
    if schema._watermark is None:
        found = bind_reading(Text(""), fields, tuple(computed), None, functions)
    else:
        watermarked, of = schema._watermark
        own = of.strip().upper() == _SOURCE_WATERMARK
        clause = WatermarkClause(watermarked, 0, _query(quoted(watermarked) if own else of))
        found = bind_reading(Text(of), fields, tuple(computed), clause, functions)
        if own and found.watermark:
            found = replace(found, watermark=replace(found.watermark, delay_ms=None))
    if not declared:
        return found
    read = {item.name: item.of for item in found.columns}
    return replace(found, columns=tuple(_column(column, read) for column in schema._columns))


def _column(declared: Declared, read: dict[str, Expression]) -> Item:
    """A declared column of a stream, of its type."""
    if declared.name not in read:
        raise ConfigError(f"the stream has no field {declared.name!r}; {did_you_mean(declared.name, read)}")
    of = read[declared.name]
    if isinstance(declared, Physical):
        wanted = sql_type_of(declared.type)
        if not castable(of.type, wanted):
            raise ConfigError(f"field {declared.name!r} of the stream is {of.type.label}, the schema says {wanted.label}")
        of = converted(of, wanted)
    return Item(declared.name, of)


def _query(expression: str) -> Query:
    return Query(Text(expression, "Schema"), 0, len(expression))

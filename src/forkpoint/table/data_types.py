"""``DataTypes``: the types of columns in a program, by PyFlink's names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from forkpoint.errors import ConfigError, GraphError
from forkpoint.relational.digits import MOST
from forkpoint.relational.types import (
    CLOCKS,
    INTERVAL_OF_DAYS,
    INTERVAL_OF_MONTHS,
    Field,
    SqlType,
    array_type,
    decimal_type,
    map_type,
    precision_of,
    quoted,
    row_of,
    sql_type,
    time_type,
)
from forkpoint.types import TypeInformation, type_of


@dataclass(frozen=True)
class Resolution:
    """The unit of an INTERVAL. ``precision``: without effect, all have microseconds."""

    unit: str
    precision: int = 0


@dataclass(frozen=True)
class DataType:
    """A type. ``numbers``: those in parentheses, such as precision and scale of a DECIMAL. ``parts``: the fields of a ROW, the
    element of an ARRAY, the key and the value of a MAP."""

    name: str
    is_nullable: bool = True
    numbers: tuple[int, ...] = ()
    parts: tuple[RowField, ...] = ()

    def __str__(self) -> str:
        return self.label if self.is_nullable else f"{self.label} NOT NULL"

    __repr__ = __str__

    @property
    def label(self) -> str:
        """The type as SQL writes it, without NOT NULL."""
        if self.parts or self.name == "ROW":
            names = [f"{quoted(part.name)} " if self.name == "ROW" else "" for part in self.parts]
            return f"{self.name}<{', '.join(f'{n}{part.data_type.label}' for n, part in zip(names, self.parts, strict=True))}>"
        return f"{self.name}({', '.join(map(str, self.numbers))})" if self.numbers else self.name

    @property
    def sql(self) -> SqlType:
        """The type in plans. Raises ConfigError if SQL has no such type yet."""
        match self.name, self.parts:
            case "DECIMAL", ():
                precision, scale = self.numbers
                return decimal_type((precision, scale), self.is_nullable)
            case "ARRAY" | "LIST_VIEW", (element,):
                return array_type(element.data_type.sql).with_null(self.is_nullable)
            case "MAP" | "MAP_VIEW", (key, value):
                return map_type(key.data_type.sql, value.data_type.sql).with_null(self.is_nullable)
            case "ROW", parts:
                types = [part.data_type.sql for part in parts]
                return row_of([part.name for part in parts], types).with_null(self.is_nullable)
        if self.name in CLOCKS and self.numbers:
            return time_type(self.name, self.numbers[0], self.is_nullable)
        found = {"CHAR": "STRING", "VARCHAR": "STRING", "BINARY": "BYTES", "VARBINARY": "BYTES"}.get(self.name, self.name)
        if found == "MULTISET":
            raise ConfigError(f"type {self} is not supported yet")
        return SqlType(found, self.is_nullable)

    @property
    def names(self) -> list[str]:
        """The names of a ROW's fields."""
        return [part.name for part in self.parts]

    @property
    def fields(self) -> list[RowField]:
        """The fields of a ROW."""
        return list(self.parts)

    def field_names(self) -> list[str]:
        """The names of a ROW's fields."""
        return self.names

    def field_types(self) -> list[DataType]:
        """The types of a ROW's fields."""
        return [part.data_type for part in self.parts]

    def nullable(self) -> Self:
        """The same type, which may be NULL."""
        return replace(self, is_nullable=True)

    def not_null(self) -> Self:
        """The same type, which is never NULL."""
        return replace(self, is_nullable=False)

    def bridged_to(self, conversion_class: str) -> Self:
        """The same type: there are no Java classes here."""
        return self


@dataclass(frozen=True)
class RowField:
    """A field of ``DataTypes.ROW``."""

    name: str
    data_type: DataType
    description: str | None = None


def data_type_of(of: SqlType) -> DataType:
    """The type of a column in a plan."""
    match of.name:
        case "DECIMAL":
            numbers = of.digits if isinstance(of.digits, tuple) else ()
            return DataType("DECIMAL", of.nullable, numbers)
        case "TIMESTAMP" | "TIMESTAMP_LTZ":
            return DataType(of.name, of.nullable, (precision_of(of),))
        case "TIME" if isinstance(of.precision, int):
            return DataType(of.name, of.nullable, (of.precision,))
    return DataType(of.name, of.nullable, parts=tuple(RowField(each.name, data_type_of(each.type)) for each in of.fields))


def fields_of(row: DataType) -> tuple[Field, ...]:
    """The columns of a table with rows of ``DataTypes.ROW``."""
    return tuple(Field(part.name, part.data_type.sql) for part in row.parts)


class _Names(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise GraphError(f"DataTypes.{name} is not supported; see the types in docs/sql.md")


class DataTypes(metaclass=_Names):
    """The types of columns. Lengths are not enforced: texts have any length."""

    @staticmethod
    def NULL() -> DataType:  # noqa: N802
        """The type of None."""
        return DataType("NULL")

    @staticmethod
    def CHAR(length: int, nullable: bool = True) -> DataType:  # noqa: N802
        """Text."""
        return DataType("CHAR", nullable, (length,))

    @staticmethod
    def VARCHAR(length: int, nullable: bool = True) -> DataType:  # noqa: N802
        """Text."""
        return DataType("VARCHAR", nullable, (length,))

    @staticmethod
    def STRING(nullable: bool = True) -> DataType:  # noqa: N802
        """Text."""
        return DataType("STRING", nullable)

    @staticmethod
    def BOOLEAN(nullable: bool = True) -> DataType:  # noqa: N802
        """True or False."""
        return DataType("BOOLEAN", nullable)

    @staticmethod
    def BINARY(length: int, nullable: bool = True) -> DataType:  # noqa: N802
        """Bytes."""
        return DataType("BINARY", nullable, (length,))

    @staticmethod
    def VARBINARY(length: int, nullable: bool = True) -> DataType:  # noqa: N802
        """Bytes."""
        return DataType("VARBINARY", nullable, (length,))

    @staticmethod
    def BYTES(nullable: bool = True) -> DataType:  # noqa: N802
        """Bytes."""
        return DataType("BYTES", nullable)

    @staticmethod
    def DATE(nullable: bool = True) -> DataType:  # noqa: N802
        """A date."""
        return DataType("DATE", nullable)

    @staticmethod
    def TIME(precision: int = 0, nullable: bool = True) -> DataType:  # noqa: N802
        """A time of the day with so many digits of seconds; without a number, to the microsecond."""
        return DataType("TIME", nullable, (precision,) if precision else ())

    @staticmethod
    def TIMESTAMP(precision: int = 6, nullable: bool = True) -> DataType:  # noqa: N802
        """A datetime without a time zone, with so many digits of seconds; more than 6 are zeros."""
        return DataType("TIMESTAMP", nullable, (precision,))

    @staticmethod
    def TIMESTAMP_LTZ(precision: int = 6, nullable: bool = True) -> DataType:  # noqa: N802
        """A datetime with a time zone, with so many digits of seconds; more than 6 are zeros."""
        return DataType("TIMESTAMP_LTZ", nullable, (precision,))

    TIMESTAMP_WITH_LOCAL_TIME_ZONE = TIMESTAMP_LTZ

    @staticmethod
    def INTERVAL(  # noqa: N802
        upper_resolution: Resolution, lower_resolution: Resolution | None = None, nullable: bool = True
    ) -> DataType:
        """A timedelta, or with ``YEAR()`` or ``MONTH()`` an int of months. All units of a kind are one type."""
        units = {each.unit for each in (upper_resolution, lower_resolution) if each is not None}
        of_months = units & {"YEAR", "MONTH"}
        if of_months and of_months != units:
            raise ConfigError(f"DataTypes.INTERVAL takes units of days, or of years, not {' and '.join(sorted(units))}")
        return DataType(INTERVAL_OF_MONTHS if of_months else INTERVAL_OF_DAYS, nullable)

    @staticmethod
    def YEAR(precision: int = 2) -> Resolution:  # noqa: N802
        """The unit of an INTERVAL."""
        return Resolution("YEAR", precision)

    @staticmethod
    def MONTH() -> Resolution:  # noqa: N802
        """The unit of an INTERVAL."""
        return Resolution("MONTH")

    @staticmethod
    def DAY(precision: int = 2) -> Resolution:  # noqa: N802
        """The unit of an INTERVAL."""
        return Resolution("DAY", precision)

    @staticmethod
    def HOUR() -> Resolution:  # noqa: N802
        """The unit of an INTERVAL."""
        return Resolution("HOUR")

    @staticmethod
    def MINUTE() -> Resolution:  # noqa: N802
        """The unit of an INTERVAL."""
        return Resolution("MINUTE")

    @staticmethod
    def SECOND(precision: int = 6) -> Resolution:  # noqa: N802
        """The unit of an INTERVAL."""
        return Resolution("SECOND", precision)

    @staticmethod
    def DECIMAL(precision: int, scale: int, nullable: bool = True) -> DataType:  # noqa: N802
        """A Decimal with ``precision`` digits, ``scale`` of them after the point."""
        if not 1 <= precision <= MOST or not 0 <= scale <= precision:
            raise ConfigError(
                f"DataTypes.DECIMAL({precision}, {scale}) has 1 to {MOST} digits, of which at most all are after the point"
            )
        return DataType("DECIMAL", nullable, (precision, scale))

    @staticmethod
    def TINYINT(nullable: bool = True) -> DataType:  # noqa: N802
        """An int of 8 bits."""
        return DataType("TINYINT", nullable)

    @staticmethod
    def SMALLINT(nullable: bool = True) -> DataType:  # noqa: N802
        """An int of 16 bits."""
        return DataType("SMALLINT", nullable)

    @staticmethod
    def INT(nullable: bool = True) -> DataType:  # noqa: N802
        """An int of 32 bits."""
        return DataType("INT", nullable)

    @staticmethod
    def BIGINT(nullable: bool = True) -> DataType:  # noqa: N802
        """An int of 64 bits."""
        return DataType("BIGINT", nullable)

    @staticmethod
    def FLOAT(nullable: bool = True) -> DataType:  # noqa: N802
        """A float of 32 bits."""
        return DataType("FLOAT", nullable)

    @staticmethod
    def DOUBLE(nullable: bool = True) -> DataType:  # noqa: N802
        """A float of 64 bits."""
        return DataType("DOUBLE", nullable)

    @staticmethod
    def ARRAY(element_type: DataType, nullable: bool = True) -> DataType:  # noqa: N802
        """A list."""
        return DataType("ARRAY", nullable, parts=(RowField("element", element_type),))

    @staticmethod
    def MAP(key_type: DataType, value_type: DataType, nullable: bool = True) -> DataType:  # noqa: N802
        """A dict."""
        return DataType("MAP", nullable, parts=(RowField("key", key_type), RowField("value", value_type)))

    @staticmethod
    def LIST_VIEW(element_type: DataType) -> DataType:  # noqa: N802
        """A ListView in the accumulator of an aggregate function."""
        return DataType("LIST_VIEW", False, parts=(RowField("element", element_type),))

    @staticmethod
    def MAP_VIEW(key_type: DataType, value_type: DataType) -> DataType:  # noqa: N802
        """A MapView in the accumulator of an aggregate function."""
        return DataType("MAP_VIEW", False, parts=(RowField("key", key_type), RowField("value", value_type)))

    @staticmethod
    def ROW(row_fields: Sequence[RowField | DataType] = (), nullable: bool = True) -> DataType:  # noqa: N802
        """A Row of fields, or of types without names."""
        fields = [each if isinstance(each, RowField) else RowField(f"f{at}", each) for at, each in enumerate(row_fields)]
        return DataType("ROW", nullable, parts=tuple(fields))

    @staticmethod
    def FIELD(name: str, data_type: DataType, description: str | None = None) -> RowField:  # noqa: N802
        """A field of a ROW."""
        return RowField(name, data_type, description)


def sql_type_of(given: Any) -> SqlType:
    """The type for a DataType, a text such as ``"ROW<a INT>"``, a type of streams, or an annotation. Raises ConfigError."""
    if isinstance(given, DataType):
        return given.sql
    if isinstance(given, SqlType):
        return given
    if isinstance(given, str):
        from forkpoint.sql.types import type_of_text  # loads sqlglot

        return type_of_text(given)
    of = given if isinstance(given, TypeInformation) else type_of(given)
    found = sql_type(of)
    if found is None:
        raise ConfigError(f"SQL has no type for {of}")
    return found

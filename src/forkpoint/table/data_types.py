"""SQL's types in Python, by PyFlink's names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from forkpoint.errors import ConfigError, GraphError
from forkpoint.relational.digits import MOST
from forkpoint.relational.types import SqlType, array_type, decimal_type, map_type, row_of, sql_type
from forkpoint.types import TypeInformation, type_of


@dataclass(frozen=True)
class DataType:
    """A type of SQL, created with ``DataTypes``."""

    sql: SqlType

    def nullable(self) -> Self:
        """The same type with NULL."""
        return type(self)(self.sql.with_null())

    def not_null(self) -> Self:
        """The same type without NULL. Parts of ARRAY, MAP and ROW can be NULL all the same."""
        return type(self)(self.sql.with_null(False))

    def bridged_to(self, conversion_class: str) -> Self:
        """The same type: there are no Java classes here."""
        return self

    def __str__(self) -> str:
        return str(self.sql)


@dataclass(frozen=True)
class RowField:
    """A field of ``DataTypes.ROW``."""

    name: str
    data_type: DataType
    description: str | None = None


class _Names(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise GraphError(f"DataTypes.{name} is not supported; see the types in docs/sql.md")


def _simple(name: str, nullable: bool) -> DataType:
    return DataType(SqlType(name, nullable))


class DataTypes(metaclass=_Names):
    """SQL's types: ``DataTypes.BIGINT()`` is ``"BIGINT"``."""

    @staticmethod
    def NULL() -> DataType:  # noqa: N802
        """The type of NULL, which fits every type."""
        return _simple("NULL", True)

    @staticmethod
    def CHAR(length: int, nullable: bool = True) -> DataType:  # noqa: N802
        """Text; its length isn't checked."""
        return _simple("STRING", nullable)

    @staticmethod
    def VARCHAR(length: int, nullable: bool = True) -> DataType:  # noqa: N802
        """Text; its length isn't checked."""
        return _simple("STRING", nullable)

    @staticmethod
    def STRING(nullable: bool = True) -> DataType:  # noqa: N802
        """Text."""
        return _simple("STRING", nullable)

    @staticmethod
    def BOOLEAN(nullable: bool = True) -> DataType:  # noqa: N802
        """True or False."""
        return _simple("BOOLEAN", nullable)

    @staticmethod
    def BINARY(length: int, nullable: bool = True) -> DataType:  # noqa: N802
        """Bytes; their number isn't checked."""
        return _simple("BYTES", nullable)

    @staticmethod
    def VARBINARY(length: int, nullable: bool = True) -> DataType:  # noqa: N802
        """Bytes; their number isn't checked."""
        return _simple("BYTES", nullable)

    @staticmethod
    def BYTES(nullable: bool = True) -> DataType:  # noqa: N802
        """Bytes."""
        return _simple("BYTES", nullable)

    @staticmethod
    def DATE(nullable: bool = True) -> DataType:  # noqa: N802
        """A date."""
        return _simple("DATE", nullable)

    @staticmethod
    def TIME(precision: int = 0, nullable: bool = True) -> DataType:  # noqa: N802
        """A time of the day, to the microsecond."""
        return _simple("TIME", nullable)

    @staticmethod
    def TIMESTAMP(precision: int = 6, nullable: bool = True) -> DataType:  # noqa: N802
        """A datetime without a time zone, to the microsecond."""
        return _simple("TIMESTAMP", nullable)

    @staticmethod
    def TIMESTAMP_LTZ(precision: int = 6, nullable: bool = True) -> DataType:  # noqa: N802
        """A datetime with a time zone, to the microsecond."""
        return _simple("TIMESTAMP_LTZ", nullable)

    TIMESTAMP_WITH_LOCAL_TIME_ZONE = TIMESTAMP_LTZ

    @staticmethod
    def DECIMAL(precision: int, scale: int, nullable: bool = True) -> DataType:  # noqa: N802
        """A Decimal with ``precision`` digits, ``scale`` of them after the point."""
        if not 1 <= precision <= MOST or not 0 <= scale <= precision:
            raise ConfigError(
                f"DataTypes.DECIMAL({precision}, {scale}) has 1 to {MOST} digits, of which at most all are after the point"
            )
        return DataType(decimal_type((precision, scale), nullable))

    @staticmethod
    def TINYINT(nullable: bool = True) -> DataType:  # noqa: N802
        """An int of 8 bits."""
        return _simple("TINYINT", nullable)

    @staticmethod
    def SMALLINT(nullable: bool = True) -> DataType:  # noqa: N802
        """An int of 16 bits."""
        return _simple("SMALLINT", nullable)

    @staticmethod
    def INT(nullable: bool = True) -> DataType:  # noqa: N802
        """An int of 32 bits."""
        return _simple("INT", nullable)

    @staticmethod
    def BIGINT(nullable: bool = True) -> DataType:  # noqa: N802
        """An int of 64 bits."""
        return _simple("BIGINT", nullable)

    @staticmethod
    def FLOAT(nullable: bool = True) -> DataType:  # noqa: N802
        """A float of 32 bits."""
        return _simple("FLOAT", nullable)

    @staticmethod
    def DOUBLE(nullable: bool = True) -> DataType:  # noqa: N802
        """A float of 64 bits."""
        return _simple("DOUBLE", nullable)

    @staticmethod
    def ARRAY(element_type: DataType, nullable: bool = True) -> DataType:  # noqa: N802
        """A list."""
        return DataType(array_type(element_type.sql).with_null(nullable))

    @staticmethod
    def MAP(key_type: DataType, value_type: DataType, nullable: bool = True) -> DataType:  # noqa: N802
        """A dict."""
        return DataType(map_type(key_type.sql, value_type.sql).with_null(nullable))

    @staticmethod
    def ROW(row_fields: Sequence[RowField | DataType] = (), nullable: bool = True) -> DataType:  # noqa: N802
        """A Row of fields, or of types without names."""
        fields = [each if isinstance(each, RowField) else RowField(f"f{i}", each) for i, each in enumerate(row_fields)]
        found = row_of([field.name for field in fields], [field.data_type.sql for field in fields])
        return DataType(found.with_null(nullable))

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

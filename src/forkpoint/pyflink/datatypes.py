"""`DataTypes`, as far as file schemas need them: each maps to a type of forkpoint. There is no Table API here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from forkpoint import GraphError, TypeInformation, Types


@dataclass(frozen=True)
class DataType:
    """The type of a column. ``digits``: precision and scale of a decimal, or of nested decimals. ``fields``: of a row."""

    type: TypeInformation
    digits: tuple[int, int] | None = None
    fields: tuple[RowField, ...] = ()
    is_nullable: bool = True

    def nullable(self) -> Self:
        """The same type, which may be None."""
        return replace(self, is_nullable=True)

    def not_null(self) -> Self:
        """The same type. Columns of files still accept None."""
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


class _Names(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise GraphError(
            f"DataTypes.{name} is not supported: forkpoint has no Table API, only types for columns of files. Instead, use "
            "Types, or Spark's types for DataFrames"
        )


class DataTypes(metaclass=_Names):
    """The types of columns; ``nullable`` has no effect."""

    @staticmethod
    def CHAR(length: int, nullable: bool = True) -> DataType:  # noqa: N802
        """Text; its length isn't checked."""
        return DataType(Types.STRING())

    @staticmethod
    def VARCHAR(length: int, nullable: bool = True) -> DataType:  # noqa: N802
        """Text; its length isn't checked."""
        return DataType(Types.STRING())

    @staticmethod
    def STRING(nullable: bool = True) -> DataType:  # noqa: N802
        """Text."""
        return DataType(Types.STRING())

    @staticmethod
    def BOOLEAN(nullable: bool = True) -> DataType:  # noqa: N802
        """True or False."""
        return DataType(Types.BOOLEAN())

    @staticmethod
    def BINARY(length: int, nullable: bool = True) -> DataType:  # noqa: N802
        """Bytes; their number isn't checked."""
        return DataType(Types.BYTES())

    @staticmethod
    def VARBINARY(length: int, nullable: bool = True) -> DataType:  # noqa: N802
        """Bytes; their number isn't checked."""
        return DataType(Types.BYTES())

    @staticmethod
    def BYTES(nullable: bool = True) -> DataType:  # noqa: N802
        """Bytes."""
        return DataType(Types.BYTES())

    @staticmethod
    def DATE(nullable: bool = True) -> DataType:  # noqa: N802
        """A date."""
        return DataType(Types.SQL_DATE())

    @staticmethod
    def TIME(precision: int = 0, nullable: bool = True) -> DataType:  # noqa: N802
        """A time of the day, to the microsecond."""
        return DataType(Types.SQL_TIME())

    @staticmethod
    def TIMESTAMP(precision: int = 6, nullable: bool = True) -> DataType:  # noqa: N802
        """A datetime without a time zone, to the microsecond."""
        return DataType(Types.SQL_TIMESTAMP())

    @staticmethod
    def TIMESTAMP_LTZ(precision: int = 6, nullable: bool = True) -> DataType:  # noqa: N802
        """A datetime with a time zone, to the microsecond."""
        return DataType(Types.INSTANT())

    TIMESTAMP_WITH_LOCAL_TIME_ZONE = TIMESTAMP_LTZ

    @staticmethod
    def DECIMAL(precision: int, scale: int, nullable: bool = True) -> DataType:  # noqa: N802
        """A Decimal with ``precision`` digits, ``scale`` of them after the point."""
        return DataType(Types.BIG_DEC(), (precision, scale))

    @staticmethod
    def TINYINT(nullable: bool = True) -> DataType:  # noqa: N802
        """An int of 8 bits."""
        return DataType(Types.BYTE())

    @staticmethod
    def SMALLINT(nullable: bool = True) -> DataType:  # noqa: N802
        """An int of 16 bits."""
        return DataType(Types.SHORT())

    @staticmethod
    def INT(nullable: bool = True) -> DataType:  # noqa: N802
        """An int of 32 bits."""
        return DataType(Types.INT())

    @staticmethod
    def BIGINT(nullable: bool = True) -> DataType:  # noqa: N802
        """An int of 64 bits."""
        return DataType(Types.LONG())

    @staticmethod
    def FLOAT(nullable: bool = True) -> DataType:  # noqa: N802
        """A float of 32 bits."""
        return DataType(Types.FLOAT())

    @staticmethod
    def DOUBLE(nullable: bool = True) -> DataType:  # noqa: N802
        """A float of 64 bits."""
        return DataType(Types.DOUBLE())

    @staticmethod
    def ARRAY(element_type: DataType, nullable: bool = True) -> DataType:  # noqa: N802
        """A list."""
        return DataType(Types.BASIC_ARRAY(element_type.type), element_type.digits)

    @staticmethod
    def MAP(key_type: DataType, value_type: DataType, nullable: bool = True) -> DataType:  # noqa: N802
        """A dict."""
        return DataType(Types.MAP(key_type.type, value_type.type), key_type.digits or value_type.digits)

    @staticmethod
    def ROW(row_fields: Sequence[RowField | DataType] = (), nullable: bool = True) -> DataType:  # noqa: N802
        """A Row of fields, or of types without names."""
        fields = [each if isinstance(each, RowField) else RowField(f"f{i}", each) for i, each in enumerate(row_fields)]
        of = Types.ROW_NAMED([field.name for field in fields], [field.data_type.type for field in fields])
        digits = next((field.data_type.digits for field in fields if field.data_type.digits), None)
        return DataType(of, digits, tuple(fields))

    @staticmethod
    def FIELD(name: str, data_type: DataType, description: str | None = None) -> RowField:  # noqa: N802
        """A field of a ROW."""
        return RowField(name, data_type, description)

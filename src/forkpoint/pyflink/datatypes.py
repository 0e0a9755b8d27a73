"""`DataTypes` as the columns of files: their decimals have any digits in a program, and their parts are never None."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from forkpoint import ConfigError, DataType, DataTypes, TypeInformation, Types
from forkpoint.relational.digits import Digits
from forkpoint.relational.types import SqlType
from forkpoint.table.data_types import RowField


def column_type(of: SqlType) -> TypeInformation:
    """The type of a column's values in a stream."""
    parts = [column_type(part.type) for part in of.fields]
    match of.name:
        case "DECIMAL":
            return Types.BIG_DEC()
        case "ARRAY":
            return Types.BASIC_ARRAY(*parts)
        case "MAP":
            return Types.MAP(*parts)
        case "ROW":
            return Types.ROW_NAMED([part.name for part in of.fields], parts)
    return of.with_null(False).stream_type


def digits_in(of: SqlType) -> Digits | None:
    """Precision and scale of a decimal, or of the first decimal inside of a type."""
    if of.digits is not msgspec.UNSET:
        return of.digits
    return next((found for part in of.fields if (found := digits_in(part.type)) is not None), None)


class RowType(DataType):
    """``DataTypes.ROW``, with PyFlink's ``add``."""

    def __init__(self, fields: Sequence[RowField] | None = None, nullable: bool = True) -> None:
        super().__init__("ROW", nullable, parts=tuple(fields or ()))

    def add(self, field: RowField | str, data_type: DataType | None = None) -> RowType:
        """The same type with one more field."""
        if not isinstance(field, RowField):
            if data_type is None:
                raise ConfigError(f"RowType.add({field!r}): the field's type is missing")
            field = RowField(field, data_type)
        return RowType([*self.parts, field], self.is_nullable)


# The classes behind `DataTypes`, which programs also call.
NullType, BooleanType, TinyIntType, SmallIntType = DataTypes.NULL, DataTypes.BOOLEAN, DataTypes.TINYINT, DataTypes.SMALLINT
IntType, BigIntType, FloatType, DoubleType = DataTypes.INT, DataTypes.BIGINT, DataTypes.FLOAT, DataTypes.DOUBLE
DecimalType, CharType, VarCharType = DataTypes.DECIMAL, DataTypes.CHAR, DataTypes.VARCHAR
BinaryType, VarBinaryType, DateType, TimeType = DataTypes.BINARY, DataTypes.VARBINARY, DataTypes.DATE, DataTypes.TIME
TimestampType, LocalZonedTimestampType = DataTypes.TIMESTAMP, DataTypes.TIMESTAMP_LTZ
ArrayType, MapType = DataTypes.ARRAY, DataTypes.MAP

"""`DataTypes` as the columns of files: their decimals have any digits in a program, and their parts are never None."""

from __future__ import annotations

import msgspec

from forkpoint import TypeInformation, Types
from forkpoint.relational.digits import Digits
from forkpoint.relational.types import SqlType
from forkpoint.table.data_types import DataType, DataTypes, RowField

__all__ = ["DataType", "DataTypes", "RowField", "column_type", "digits_in"]


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
